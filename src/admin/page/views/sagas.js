// Sagas, work of several steps: a list with every filter in the address, and how many there are of which kind.

import { get } from "../api.js";
import { h, put } from "../dom.js";
import { count } from "../format.js";
import { address, badge, when } from "../icon.js";
import { askSagas } from "../saga-dialogs.js";
import { list, table } from "../table.js";
import { pick, search } from "./search.js";

const STATUSES = ["new", "running", "compensating", "parked", "succeeded", "compensated"];

const FIELDS = [{ name: "name", label: "Name" }, { name: "key", label: "Key" }, { name: "status", label: "Status", choices: STATUSES },
  { name: "step", label: "Step", help: "at, or failed" }, { name: "error", label: "Error contains" },
  { name: "since", label: "Since", help: "2h or time" }, { name: "until", label: "Until", help: "1h or time" }];

/** What can be done to all that a filter means, by the status that it names. Without one, what is parked is meant. */
const VERBS = { "": ["resume", "skip"], new: ["cancel"], running: ["cancel"], parked: ["resume", "skip", "cancel", "rerun"], succeeded: ["rerun"], compensated: ["rerun"] };
const LABELS = { resume: "Resume all that match…", skip: "Skip their step…", cancel: "Cancel all that match…", rerun: "Run all again…" };

/** Seconds between two counts: each reads all rows that match. */
const COUNTED = 30;

export function sagas(parameters, frame) {
  const given = pick(parameters, FIELDS);
  const rows = list("Sagas", "sagas", [
    ["Saga", (row) => h("a", { href: address(`saga/${row.id}`), class: "mono", "data-focus": `s${row.id}`, title: row.id, "aria-label": `saga ${row.id}` }, row.id.slice(0, 8)), "id"],
    ["Name", (row) => row.name, "topic"],
    ["Key", (row) => row.key, "key"],
    ["Status", (row) => badge(row.status), "reason"],
    ["At step", (row) => [row.phase === "undo" && !row.finished_at ? "undo " : "", row.step ?? h("span", { class: "none" }, "no plan yet")], "endpoint"],
    ["Inserted", (row) => when(row.created_at), "at"],
    ["Ended", (row) => (row.finished_at ? when(row.finished_at) : ""), "size"],
    ["Error", (row) => [row.failed_step && row.error ? `${row.failed_step}: ` : "", row.error ?? ""], "error"],
  ], (row) => row.id, "No saga matches. Insert a row into outbox.sagas, or take a filter away.");
  const actions = (VERBS[given.status ?? ""] ?? []).map((verb) =>
    h("button", { type: "button", class: verb === "cancel" ? "danger" : null, on: { click: () => askSagas(verb, given, frame.refresh) } }, LABELS[verb]));
  const kinds = table("Sagas by name, status and step", [
    ["Name", (row) => h("a", { href: of(row), "data-focus": `k${of(row)}` }, row.name)],
    ["Status", (row) => badge(row.status)],
    ["At step", (row) => `${row.phase === "undo" ? "undo " : ""}${row.step ?? "no plan yet"}`],
    ["Sagas", (row) => count(row.sagas), "number"],
  ], (row) => JSON.stringify([row.name, row.status, row.step, row.phase]), "None matches.");
  const heading = h("summary", {}, "By name, status and step");
  const counts = h("details", { class: "kinds", open: !matchMedia("(max-width: 720px)").matches }, heading, kinds.element);
  let counted = 0;

  function of(row) {
    return address("sagas", { ...given, name: row.name, status: row.status, step: row.step ?? "" });
  }

  async function also(signal) {
    if (Date.now() - counted < COUNTED * 1000) return;
    const found = await get("sagas/matching", given, signal);
    counted = Date.now();
    const all = found.reduce((sum, row) => sum + row.sagas, 0);
    put(heading, all, () => `${count(all)} in all, by name, status and step`);
    kinds.show(found);
  }

  return search({
    name: "sagas", title: "Sagas", parameters: given, fields: FIELDS, rows, frame, field: "sagas", actions, unit: ["saga", "sagas"], above: counts, also,
  });
}
