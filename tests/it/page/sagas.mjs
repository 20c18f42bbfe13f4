// Sagas: those that a filter means, one of them, and what an operator tells one or many.
import assert from "node:assert/strict";
import { api, arrived, browse, eventually, given, go, signIn } from "./browser.mjs";

const { fine, stuck, one, waits } = given.sagas;

await browse(async (page) => {
  await signIn(page, given.operator);
  const dialog = page.getByRole("dialog");
  const why = (text) => dialog.getByLabel(/^Why/).fill(text);
  const rows = page.locator(".sagas .rows .row");
  const ids = () => page.locator(".sagas .rows .id a").evaluateAll((links) => links.map((link) => link.hash.replace("#/saga/", "")));
  const status = async (id) => (await api(`sagas/${id}`)).status;

  // The list, a page at a time; and how many there are of which kind.
  await page.getByRole("link", { name: "Sagas", exact: true }).click();
  await arrived(page, "#/sagas");
  assert.equal(await rows.count(), 100);
  await page.getByRole("button", { name: "Load 100 more" }).click();
  await page.waitForFunction((want) => document.querySelectorAll(".sagas .rows .row").length === want, fine + stuck + 1);
  assert.equal(new Set(await ids()).size, fine + stuck + 1);
  await page.locator(".kinds summary").getByText(`${fine + stuck + 1} in all`).waitFor();
  await page.getByRole("rowheader", { name: "stuck" }).getByRole("link").click();
  await arrived(page, "#/sagas?name=stuck&status=parked&step=reserve");
  assert.equal(await rows.count(), stuck);

  // Each filter is in the address, and means what it means to the API.
  await go(page, "sagas");
  for (const [label, value] of [["Name", "stuck"], ["Key", ""], ["Step (at, or failed)", "reserve"], ["Error contains", "UTRECHT"], ["Since (2h or time)", "2h"], ["Until (1h or time)", "0s"]]) {
    await page.getByLabel(label, { exact: true }).fill(value);
  }
  await page.getByLabel("Status", { exact: true }).selectOption("parked");
  await page.getByRole("button", { name: "Search" }).click();
  await arrived(page, "#/sagas?name=stuck&status=parked&step=reserve&error=UTRECHT&since=2h&until=0s");
  const found = await api("sagas?name=stuck&status=parked&step=reserve&error=UTRECHT&since=2h&until=0s");
  assert.equal(found.sagas.length, stuck);
  assert.deepEqual(await ids(), found.sagas.map((saga) => saga.id));
  await go(page, "sagas?key=f-7");
  assert.equal(await rows.count(), 1);

  // One: what somebody else wrote is text, digits stay, and its messages are a link away.
  await go(page, `saga/${one}`);
  const life = await api(`sagas/${one}`);
  assert.equal(await page.locator(".timeline > li").count(), life.trail.length);
  assert.ok((await page.getByRole("region", { name: "Input" }).textContent()).includes("12345678901234567890.50"), "digits stay");
  const text = await page.locator("main").textContent();
  assert.ok(text.split("<img src=x onerror=").length > 2 && text.includes("<b>a</b>"), text);
  assert.equal(await page.locator("main img, main b").count(), 0);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await page.locator(".timeline summary").getByText("1 attempt").click();
  await page.getByText("HTTP 422", { exact: true }).waitFor();
  await page.locator(".timeline").getByRole("link").first().click();
  await arrived(page, `#/message/${life.trail[0].message}`);

  // It is resumed, and refused again. No reason, no resume.
  await go(page, `saga/${one}`);
  await page.getByRole("button", { name: "Resume…" }).click();
  await dialog.getByLabel("As another request").check();
  await dialog.getByRole("button", { name: "Resume" }).click();
  assert.equal((await api(`sagas/${one}`)).trail.length, life.trail.length);
  await why("mended");
  await dialog.getByRole("button", { name: "Resume" }).click();
  await page.getByText("resume with new key").waitFor();
  await eventually("it is parked again", async () => (await status(one)) === "parked");
  await page.locator(".why").getByText("parked", { exact: true }).waitFor();

  // It is run again with another input: one that is no JSON stays where it was typed.
  await page.getByRole("button", { name: "Run again…" }).click();
  const input = dialog.getByLabel("Input (JSON)");
  await input.fill("{");
  await why("another input");
  await dialog.getByRole("button", { name: "Run again" }).click();
  await dialog.getByRole("alert").getByText(/no JSON/).waitFor();
  await input.fill('{"price": 12345678901234567890.50}');
  await dialog.getByRole("button", { name: "Run again" }).click();
  await page.locator(".why").getByText("succeeded", { exact: true }).waitFor();
  assert.deepEqual((await api(`sagas/${one}`)).trail.slice(-3).map((line) => line.event), ["rerun", "done", "done"]);

  // One that waits for an endpoint that nobody has is cancelled.
  await go(page, `saga/${waits}`);
  await page.getByText("at call").first().waitFor();
  await page.getByRole("button", { name: "Cancel…" }).click();
  await why("nobody answers");
  await dialog.getByRole("button", { name: "Cancel the saga" }).click();
  await page.locator(".why").getByText("compensated", { exact: true }).waitFor();

  // Many: first what it would meet. Their next step is refused as well.
  await go(page, "sagas?name=stuck");
  await page.getByRole("button", { name: "Skip their step…" }).click();
  await dialog.getByText(`${stuck - 1} sagas`).waitFor();
  await dialog.getByRole("rowheader", { name: "stuck" }).waitFor();
  await why("by hand");
  await dialog.getByRole("button", { name: `Skip the step: ${stuck - 1}` }).click();
  await dialog.waitFor({ state: "detached" });
  const skipped = async () => (await api("sagas?name=stuck&status=parked&step=ship")).sagas.length === stuck - 1;
  await eventually("they are parked at the next step", skipped);

  // What can't be done is said where it was asked.
  await go(page, "sagas?name=stuck&status=parked");
  await page.getByRole("button", { name: "Run all again…" }).click();
  await dialog.getByText(`${stuck - 1} sagas`).waitFor();
  await dialog.getByLabel(/^From step/).fill("pack");
  await why("a mistake");
  await dialog.getByRole("button", { name: /^Run again: / }).click();
  await dialog.getByRole("alert").getByText(/0 run again, 3 refused. The first: .*has no step pack/).waitFor();
});
