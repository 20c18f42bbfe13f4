// Every view, in both schemes and on two sizes: nothing for axe to find, nothing wider than the screen. Screenshots, where they are wanted.
import assert from "node:assert/strict";
import { browse, given, go, signIn, violations } from "./browser.mjs";

const VIEWS = [
  ["overview", "overview?since=15m"], ["endpoints", "endpoints"], ["failures", "failures?since=15m"], ["dead", "messages?state=dead&endpoint=shop"],
  ["pending", "messages?state=pending"], ["delivered", "messages?state=delivered"], ["history", "history?endpoint=shop"], ["message", `message/${given.nasty}`], ["jobs", "jobs"], ["job", "jobs/1"],
  ["sagas", "sagas"], ["saga", `saga/${given.sagas.one}`],
];
const SIZES = [["desktop", { width: 1280, height: 800 }], ["phone", { width: 360, height: 740 }]];

const found = [];

async function look(page, name) {
  for (const [size, viewport] of SIZES) {
    await page.setViewportSize(viewport);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      const where = `${name}, ${size}, ${colorScheme}`;
      for (const one of await violations(page)) found.push(`${where}: ${one}`);
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      if (wider > 0) found.push(`${where}: wider than the screen by ${wider}`);
      if (given.screenshots) await page.screenshot({ path: `${given.screenshots}/${name}-${size}-${colorScheme}.png` });
    }
  }
  await page.setViewportSize(SIZES[0][1]);
}

await browse(async (page) => {
  await page.getByLabel("Token").waitFor();
  await look(page, "signin");
  await signIn(page, given.operator);
  for (const [name, view] of VIEWS) {
    await go(page, view);
    await look(page, name);
  }
  await go(page, "messages?state=dead&endpoint=shop");
  await page.getByRole("button", { name: "Replay all that match…" }).click();
  await page.getByRole("dialog").getByRole("rowheader").first().waitFor();
  await look(page, "replay");
  await page.keyboard.press("Escape");
  await go(page, `saga/${given.sagas.one}`);
  await page.getByRole("button", { name: "Run again…" }).click();
  await look(page, "rerun");
  await page.keyboard.press("Escape");
  await go(page, "sagas?name=stuck&status=parked");
  await page.getByRole("button", { name: "Run all again…" }).click();
  await page.getByRole("dialog").getByRole("rowheader").first().waitFor();
  await look(page, "many");
});
assert.deepEqual(found, []);
