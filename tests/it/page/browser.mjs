// A real browser at the page, for the scripts beside this file. What they are given comes as JSON in the first argument.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const modules = process.env.OUTBOX_TEST_BROWSER;
const require = createRequire(`${modules}/these.js`);
const { chromium } = require("playwright-core");
const axe = require("axe-core");

export const given = JSON.parse(process.argv[2]);

const FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** A refusal that a script asks for is in the console as well: it is none of what must not be there. */
const REFUSED = /^Failed to load resource: the server responded with a status of (400|401|403|404)/;

/** What the API says. */
export async function api(path, options = {}) {
  const { token = given.operator, body } = options;
  const answer = await fetch(`${given.base}v1/${path}`, { method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers: { Authorization: `Bearer ${token}` } });
  assert.ok(answer.ok, `${path}: ${answer.status}`);
  return answer.json();
}

/** Runs a script with a page; what a browser complains of, or a request to anywhere else, is a failure. */
export async function browse(script, options = {}) {
  const browser = await chromium.launch({ executablePath: process.env.OUTBOX_TEST_CHROMIUM, args: FLAGS });
  const complaints = [];
  try {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light", ...options });
    context.setDefaultTimeout(20000);
    await context.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    const page = await context.newPage();
    page.on("console", (message) => {
      if (message.type() === "error" && !REFUSED.test(message.text())) complaints.push(message.text());
    });
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(given.base) && !url.startsWith("data:")) complaints.push(`a request to ${url}`);
    });
    page.on("dialog", (dialog) => complaints.push(`a dialog: ${dialog.message()}`));
    await page.goto(given.base);
    await script(page);
  } finally {
    await browser.close();
  }
  assert.deepEqual(complaints, []);
}

export async function signIn(page, token) {
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.getByRole("navigation", { name: "Views" }).waitFor();
  await arrived(page, "");
}

/** Waits until what the address says is shown. */
export async function arrived(page, hash) {
  await page.waitForFunction((want) => {
    const main = document.getElementById("main");
    return !main.hasAttribute("aria-busy") && main.dataset.address === location.hash && location.hash.startsWith(want);
  }, hash);
}

export async function go(page, view) {
  await page.evaluate((to) => { location.hash = to; }, `#/${view}`);
  await arrived(page, `#/${view}`);
}

/** The messages that a list shows, as links lead to them. */
export function listed(page) {
  return page.locator(".rows .id a").evaluateAll((links) => links.map((link) => link.hash.replace("#/message/", "")));
}

/** What axe finds on the page as it is now. */
export async function violations(page) {
  if (!(await page.evaluate(() => Boolean(window.axe)))) await page.evaluate(axe.source);
  return page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"], elementRef: false })).violations
    .map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html).join(" ")}`));
}

export async function eventually(what, condition) {
  const start = Date.now();
  while (!(await condition())) {
    assert.ok(Date.now() - start < 20000, `not within 20 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
