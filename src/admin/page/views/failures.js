// What fails for the same reason.

import { get } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { address, badge, messageLink, tone, when } from "../icon.js";
import { list } from "../table.js";
import { spans } from "./overview.js";

export function failures(parameters, frame) {
  const since = parameters.since ?? "1h";
  const { endpoint } = parameters;
  const summary = h("p", { class: "help" });
  const groups = list("Failures by error", "failures", [
    ["Error", (row) => h("a", { href: address("history", look(row, since)), title: row.whole ? `last: ${row.whole}` : null, "data-focus": `${row.endpoint} ${row.error}` },
      row.error ?? row.outcome.replaceAll("_", " ")), "what"],
    ["Outcome", (row) => badge(row.outcome, tone(row.outcome)), "outcome"],
    ["Endpoint", (row) => h("a", { href: address("failures", { since, endpoint: row.endpoint }), "data-focus": `e${row.endpoint} ${row.error}` }, row.endpoint), "endpoint"],
    ["Failures", (row) => h("strong", {}, count(row.count)), "number count"],
    ["Died of it", (row) => (row.dead ? h("a", { class: "bad", href: address("messages", { state: "dead", endpoint: row.endpoint, error: part(row), since }), "data-focus": `d${row.endpoint} ${row.error}`, "aria-label": `${count(row.dead)} dead letters of ${row.endpoint} with this error` }, count(row.dead)) : "0"), "number dead"],
    ["First", (row) => when(row.first), "first"],
    ["Last", (row) => when(row.last), "last"],
    ["Example", (row) => messageLink(row.id), "example"],
  ], (row) => JSON.stringify([row.endpoint, row.outcome, row.status, row.error]), "Nothing failed in this time. If you expected a failure, choose a longer span of time.");
  const element = h("div", {},
    h("div", { class: "title" }, h("h1", { tabindex: "-1" }, "Failures"), spans("failures", parameters, since)),
    endpoint ? h("p", { class: "filtered" }, "Only endpoint ", h("strong", {}, endpoint), ". ", h("a", { href: address("failures", { since }) }, "Show all")) : null,
    h("h2", { class: "hidden", tabindex: "-1", "data-results": true }, "Groups"), summary, groups.element);

  async function refresh(signal) {
    const found = await get("failures", { since, endpoint }, signal);
    groups.show(found.failures);
    const shown = found.failures.length;
    summary.textContent = shown === 0 ? "" : `${count(found.groups)} group${found.groups === 1 ? "" : "s"} by endpoint and error; numbers and UUIDs in it don't count.`
      + (found.groups > shown ? ` The largest ${shown} are shown.` : "") + (found.read >= 10000 ? ` The newest ${count(found.read)} rows were read.` : "");
  }

  return { title: "Failures", element, refresh, every: 10, frame };
}

/** The longest piece of the error that all of the group have. */
function part(row) {
  const pieces = (row.error ?? "").split(/[#…]/).map((piece) => piece.trim());
  return pieces.reduce((longest, piece) => (piece.length > longest.length ? piece : longest), "");
}

function look(row, since) {
  return { failures: "true", endpoint: row.endpoint, outcome: row.outcome, status: row.status ?? "", error: part(row), since };
}
