// A reader looks around: signing in, figures and charts, search, a message, thousands of rows, the keyboard.
import assert from "node:assert/strict";
import { api, arrived, browse, eventually, given, go, listed, signIn } from "./browser.mjs";

const MARKUP = "<img src=x onerror=";

await browse(async (page) => {
  // A token that nobody has.
  await page.getByLabel("Token").fill("nobody-has-this-token");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText("this token is not known").waitFor();
  await signIn(page, given.reader);
  await page.getByText("bob").waitFor();
  assert.equal(await page.title(), "Overview · outbox-relay");

  // The figures are those of the database.
  await go(page, "overview?since=15m");
  const status = await api("status");
  const dead = status.dead_letters.reduce((sum, one) => sum + one.count, 0);
  const tile = (name) => page.locator(`[data-tile="${name}"]`).textContent();
  assert.equal(await tile("Dead letters"), dead.toLocaleString("en"));
  assert.equal(await tile("Backlog"), "0");
  assert.equal(await tile("Relays"), "1");
  const seen = await api("overview?since=15m");
  const of = (field) => seen.pieces.filter((one) => one.endpoint === "billing").reduce((sum, one) => sum + one[field], 0);
  assert.equal(of("attempts"), given.billing);
  const row = page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: "billing" }) });
  const share = `${Math.round((10000 * of("failed")) / of("attempts")) / 100} %`;
  await row.last().getByText(share, { exact: true }).waitFor();
  // ... and drawn: the line of each endpoint has its colour.
  for (const chart of ["Delivered", "Failure rate", "Duration", "Backlog", "Lag", "Dead"]) {
    const canvas = page.locator("section.chart").filter({ has: page.getByRole("heading", { name: chart, exact: true }) }).locator("canvas");
    const drawn = await canvas.evaluate((element) => {
      const { data } = element.getContext("2d").getImageData(0, 0, element.width, element.height);
      let coloured = 0;
      for (let n = 0; n < data.length; n += 4) if (data[n + 3] > 0 && Math.max(data[n], data[n + 1], data[n + 2]) - Math.min(data[n], data[n + 1], data[n + 2]) > 60) coloured += 1;
      return coloured;
    });
    // Backlog and lag have been sampled for a moment only.
    assert.ok(drawn > (chart === "Backlog" || chart === "Lag" ? 0 : 50), `${chart}: ${drawn}`);
  }
  assert.match(await page.getByRole("img", { name: /^Failure rate: / }).getAttribute("aria-label"), /billing .* at most/);

  // Failures by error: numbers make no groups of their own, and markup is text.
  await go(page, "failures?since=15m");
  const failures = await api("failures?since=15m");
  assert.equal(await page.locator(".failures .rows .row").count(), failures.groups);
  const billing = failures.failures.find((one) => one.endpoint === "billing");
  assert.equal(billing.error, "HTTP 503 Service Unavailable: shard # of …");
  const group = page.locator(".failures .rows .row").filter({ hasText: billing.error });
  assert.equal(await group.locator(".count").textContent(), billing.count.toLocaleString("en"));
  await group.locator(".what a").click();
  await arrived(page, "#/history?failures=true&endpoint=billing");
  const lines = await api(`history?failures=true&endpoint=billing&limit=100&error=${encodeURIComponent("HTTP 503 Service Unavailable: shard")}&since=15m`);
  assert.deepEqual(await listed(page), lines.history.map((line) => line.id));

  // Search: what the form says is in the address, and the rows are those of the API.
  await go(page, "messages?state=dead&since=24h");
  await page.getByLabel("Error contains").fill("utrecht");
  await page.getByLabel("Endpoint", { exact: true }).fill("shop");
  await page.keyboard.press("Enter");
  await arrived(page, "#/messages?state=dead&endpoint=shop&error=utrecht");
  const found = await api("messages?state=dead&endpoint=shop&error=utrecht&limit=100");
  assert.equal(found.messages.length, given.refused);
  assert.deepEqual(await listed(page), found.messages.map((one) => one.id));
  const address = page.url();
  await page.goBack();
  await arrived(page, "#/messages?state=dead&since=24h");
  assert.equal(await page.getByLabel("Error contains").inputValue(), "");
  assert.equal(await page.locator(".rows .row").count(), 100);
  // The address alone is enough.
  await page.goto("about:blank").catch(() => {});
  await page.goto(address);
  await arrived(page, "#/messages?state=dead&endpoint=shop");
  assert.equal((await listed(page)).length, given.refused);
  assert.equal(await page.getByLabel("Error contains").inputValue(), "utrecht");
  await go(page, "messages?state=dead&status=4x2");
  await page.getByRole("alert").waitFor();

  // One message, with markup wherever somebody else may write.
  await go(page, `message/${given.nasty}`);
  const life = await api(`messages/${given.nasty}`);
  assert.equal(await page.locator(".timeline > li").count(), life.attempts.length);
  const text = await page.locator("main").textContent();
  assert.ok(text.includes("it died") && text.includes("Attempt 1") && text.includes("HTTP 422"), text);
  const sent = page.getByRole("region", { name: "Request 1" });
  await page.getByText("What was sent").first().click();
  await sent.waitFor();
  assert.match(await sent.textContent(), /^POST http:.*idempotency-key: .*bytes, SHA-256 [0-9a-f]{64}.*answered 422/s);
  assert.ok(text.split(MARKUP).length > 4, "topic, key, payload and answer");
  assert.ok((await page.getByRole("region", { name: "Payload" }).textContent()).includes("12345678901234567890.50"), "digits stay");
  await go(page, "failures?since=15m");
  await go(page, "messages?state=dead&error=img");
  assert.equal(await page.locator("main img, main script, main iframe").count(), 0);
  assert.equal(await page.evaluate(() => window.hacked), undefined);

  // Thousands of rows.
  await go(page, "messages?state=dead&endpoint=archive");
  for (let rows = 100; rows < given.archive;) {
    await page.getByRole("button", { name: "Load 1,000 more" }).click();
    rows = Math.min(rows + 1000, given.archive);
    await page.waitForFunction((want) => document.querySelectorAll(".rows .row").length === want, rows);
  }
  const ids = await listed(page);
  assert.equal(new Set(ids).size, given.archive);
  const last = page.locator(".rows .row").last();
  await last.scrollIntoViewIfNeeded();
  await last.getByRole("link").waitFor();
  const laidOut = await page.evaluate(() => [...document.querySelectorAll(".rows .row > .id")].filter((cell) => cell.checkVisibility({ contentVisibilityAuto: true })).length);
  assert.ok(laidOut < 500, `${laidOut} rows are laid out`);

  // A reader is told no, where it was asked.
  await go(page, "endpoints");
  await page.getByRole("button", { name: "pause shop" }).click();
  await page.getByLabel(/^Why/).fill("curious");
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await page.getByRole("dialog").getByRole("alert").getByText("bob may read, and change nothing").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const focus = () => page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent);
  assert.equal(await focus(), "pause shop");

  // By the keyboard alone: a search, a message, a replay that is thought better of.
  const tab = async (to) => {
    for (let n = 0; n < 80; n += 1) {
      await page.keyboard.press("Tab");
      if (to.test(await focus())) return;
    }
    assert.fail(`${to} is not reached by Tab, but ${await focus()}`);
  };
  await page.evaluate(() => document.activeElement.blur());
  await tab(/^Messages$/);
  await page.keyboard.press("Enter");
  await arrived(page, "#/messages");
  await tab(/^Filters/);
  await tab(/^$/);
  await page.keyboard.type("t");
  await page.keyboard.press("Enter");
  await arrived(page, "#/messages?state=dead&topic=t");
  await tab(/^message /);
  await page.keyboard.press("Enter");
  await arrived(page, "#/message/");
  assert.match(await focus(), /^Message /);
  await tab(/^Replay/);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Replay this message?" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.name), "why");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.match(await focus(), /^Replay/);

  // Nobody is asked while nobody looks, or wants to know.
  let asked = 0;
  page.on("request", () => { asked += 1; });
  await page.clock.install();
  await go(page, "endpoints");
  asked = 0;
  await page.clock.runFor(10000);
  await eventually("it is asked again", async () => asked > 0);
  await page.getByRole("button", { name: "Pause updates" }).click();
  await page.waitForLoadState("networkidle");
  asked = 0;
  await page.clock.runFor(60000);
  assert.equal(asked, 0, "paused");
  await page.getByRole("button", { name: "Resume updates" }).click();
  await eventually("it is asked again", async () => asked > 0);
  await page.evaluate(() => Object.defineProperty(document, "hidden", { value: true, configurable: true }));
  await page.clock.runFor(5000);
  await page.waitForLoadState("networkidle");
  asked = 0;
  await page.clock.runFor(60000);
  assert.equal(asked, 0, "hidden");
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: false, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await eventually("it is asked again", async () => asked > 0);

  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
});
