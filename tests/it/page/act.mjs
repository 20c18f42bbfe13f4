// An operator acts, and the database is another one afterwards.
import assert from "node:assert/strict";
import { api, arrived, browse, eventually, given, go, signIn } from "./browser.mjs";

await browse(async (page) => {
  await signIn(page, given.operator);
  const dialog = page.getByRole("dialog");
  const why = (text) => dialog.getByLabel(/^Why/).fill(text);
  const shop = async () => (await api("status")).endpoints.find((one) => one.endpoint === "shop");

  // Pause and resume. No reason, no pause.
  await go(page, "endpoints");
  await page.getByRole("button", { name: "pause shop" }).click();
  await dialog.getByRole("button", { name: "Pause" }).click();
  assert.equal((await shop()).paused_seconds, null);
  await why("moving house");
  await dialog.getByRole("button", { name: "Pause" }).click();
  await page.getByText(/by ann: moving house/).waitFor();
  const paused = await shop();
  assert.deepEqual([paused.paused_by, paused.pause_reason], ["ann", "moving house"]);
  await go(page, "overview");
  await page.getByRole("link", { name: "shop is paused by ann: moving house" }).click();
  await arrived(page, "#/endpoints");
  await page.getByRole("button", { name: "resume shop" }).click();
  await dialog.getByRole("button", { name: "Resume" }).click();
  assert.equal((await shop()).change, "paused");
  await dialog.getByLabel("Why").fill("moved");
  await dialog.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("button", { name: "pause shop" }).waitFor();
  const resumed = await shop();
  assert.deepEqual([resumed.paused_seconds, resumed.change, resumed.changed_by, resumed.change_reason], [null, "resumed", "ann", "moved"]);

  // One message: what somebody else does to it is seen without a reload.
  await go(page, `message/${given.one}`);
  await page.getByRole("button", { name: "Replay…" }).waitFor();
  await api(`messages/${given.one}/replay`, { body: { why: "elsewhere" } });
  await page.getByText("Replayed", { exact: true }).first().waitFor();
  await page.locator(".why").getByText("delivered", { exact: true }).waitFor();
  await go(page, `message/${given.nasty}`);
  await page.getByRole("button", { name: "Discard…" }).click();
  await why("a test");
  await dialog.getByRole("button", { name: "Discard" }).click();
  await page.locator(".why").getByText("discarded", { exact: true }).waitFor();

  // Many: first what it would meet, then a job. One was replayed, one discarded.
  const left = given.refused - 2;
  await go(page, "messages?state=dead&endpoint=shop&error=utrecht");
  await page.getByRole("button", { name: "Replay all that match…" }).click();
  await dialog.getByText(`${left} messages`).waitFor();
  await dialog.getByRole("rowheader", { name: "shop" }).waitFor();
  await why("warehouse added");
  await dialog.getByRole("button", { name: `Replay ${left}` }).click();
  await arrived(page, "#/jobs/");
  await page.getByText(`${left} replayed`).waitFor();
  await page.locator(".progress").getByText("done", { exact: true }).waitFor();
  const none = async () => (await api("matching?error=utrecht&endpoint=shop")).length === 0;
  await eventually("none of them is dead", none);

  // A slow one is aborted.
  await go(page, "messages?state=dead&endpoint=archive");
  await page.getByRole("button", { name: "Replay all that match…" }).click();
  await dialog.getByText(`${given.archive.toLocaleString("en")} messages`).waitFor();
  await dialog.getByLabel(/^At most/).fill("0.1");
  await why("too much");
  await dialog.getByRole("button", { name: /^Replay [0-9,]+$/ }).click();
  await arrived(page, "#/jobs/");
  await page.getByRole("progressbar").waitFor();
  await page.getByRole("button", { name: "Abort…" }).click();
  await dialog.getByRole("button", { name: "Abort the job" }).click();
  await page.locator(".progress").getByText("aborted", { exact: true }).waitFor();
  assert.equal((await api("jobs"))[0].state, "aborted");
});
