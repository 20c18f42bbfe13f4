// What is asked before a saga, or many of them, are told something.

import { exactly, get, post } from "./api.js";
import { ask } from "./dialogs.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { badge } from "./icon.js";

/** Sagas in one request. */
const PIECE = 100;

const VERBS = {
  resume: { title: "Resume", about: "The step that it is at is sent again, with all its attempts.", action: "Resume" },
  skip: { title: "Skip the step of", about: "It goes on without the step that it is at. If nobody knows whether that was done, it is undone should the saga go back.", action: "Skip the step" },
  cancel: { title: "Cancel", about: "It goes back: what was done is undone, the last first. What is in flight ends before that.", action: "Cancel the saga", danger: true },
  rerun: { title: "Run again:", about: "The step and those behind it are sent under new keys, as a new generation; what an earlier one did there is not taken back by that.", action: "Run again" },
};

/** Where the reason is. */
const KEPT = "in the trail";

const DONE = { resume: "resumed", skip: "gone on without the step", cancel: "to go back", rerun: "run again" };

function newKey() {
  return h("div", { class: "check" }, h("input", { type: "checkbox", id: "d-new_key", name: "new_key", "aria-describedby": "d-new_key-help" }),
    h("label", { for: "d-new_key" }, "As another request"),
    h("p", { id: "d-new_key-help", class: "help" }, "Under a new Idempotency-Key: its participant can't know it again, and may do it a second time."));
}

/** One saga, as `show` has it. */
export function askSaga(verb, life, done) {
  const { title, about, action, danger } = VERBS[verb];
  const input = JSON.stringify(life.input, null, 2) ?? "null";
  const backwards = life.status === "compensated" || life.phase === "undo";
  const steps = life.steps?.map((step) => step.name) ?? [];
  // It has been there, or else it can't be run again from there.
  const reached = backwards ? steps.slice(0, 1) : steps.slice(0, steps.indexOf(life.step) + 1);
  const fields = verb === "resume" ? [newKey()] : verb === "rerun" ? [
    h("div", { class: "field" }, h("label", { for: "d-step" }, "From step"),
      h("select", { id: "d-step", name: "step" }, reached.map((name) => h("option", { value: name, selected: name === life.step }, name)))),
    h("div", { class: "field" }, h("label", { for: "d-input" }, "Input (JSON)"),
      h("textarea", { id: "d-input", name: "input", rows: "7", class: "mono", spellcheck: "false", value: input })),
  ] : [];
  ask({
    title: `${title} ${life.name} ${life.key}?`, about, action, danger, fields, kept: KEPT,
    run: async (form) => {
      const body = { why: form.get("why") };
      if (form.has("new_key")) body.new_key = true;
      if (verb === "rerun") {
        body.step = form.get("step");
        if (form.get("input") !== input) body.input = json(form.get("input"));
      }
      const { status } = await post(`sagas/${life.id}/${verb}`, body);
      return `It is ${status}`;
    },
    done,
  });
}

function json(text) {
  try {
    return exactly(text);
  } catch (error) {
    throw new Error(`The input is no JSON: ${error.message}`);
  }
}

/** All that a filter means, after a look at what that is; what can't be done to one is said, and the others go on. */
export function askSagas(verb, given, done) {
  // Others can't be resumed, and have no step to be skipped.
  const filter = verb === "resume" || verb === "skip" ? { ...given, status: "parked" } : given;
  const { about, action, danger } = VERBS[verb];
  const preview = h("div", { class: "preview", role: "status", "aria-live": "polite" }, h("p", {}, "Counting…"));
  const fields = [
    h("h3", {}, "What it would meet now"),
    h("p", { class: "help" }, "Filter: ", Object.entries(filter).map(([name, value], n) => [n ? ", " : "", h("code", {}, `${name}=${value}`)])),
    preview,
    verb === "resume" ? newKey() : null,
    verb === "rerun" ? h("div", { class: "field" }, h("label", { for: "d-step" }, "From step (empty: from the first)"), h("input", { id: "d-step", name: "step", autocomplete: "off", spellcheck: "false" })) : null,
  ];
  ask({
    title: `${action}: all sagas that match?`, about: `Each of them: ${about[0].toLowerCase()}${about.slice(1)}`, action, danger, fields, kept: KEPT,
    prepare: async (dialog) => {
      let found;
      try {
        found = await get("sagas/matching", filter);
      } catch (error) {
        preview.replaceChildren(h("p", {}, "They can't be counted."));
        throw error;
      }
      const all = found.reduce((sum, row) => sum + row.sagas, 0);
      preview.replaceChildren(h("p", {}, h("strong", {}, `${count(all)} saga${all === 1 ? "" : "s"}`), all ? "" : ": nothing to do"));
      if (all) {
        preview.append(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "By name, status and step" }, h("table", {},
          h("thead", {}, h("tr", {}, ["Name", "Status", "At step", "Sagas"].map((label, n) => h("th", { scope: "col", class: n === 3 ? "number" : null }, label)))),
          h("tbody", {}, found.slice(0, 50).map((row) => h("tr", {}, h("th", { scope: "row" }, row.name), h("td", {}, badge(row.status)),
            h("td", {}, `${row.phase === "undo" ? "undo " : ""}${row.step ?? "no plan yet"}`), h("td", { class: "number" }, count(row.sagas))))))));
        dialog.querySelector("[type=submit]").textContent = `${action}: ${count(all)}`;
      }
      return all > 0;
    },
    run: async (form) => {
      const body = { verb, filter, limit: PIECE, why: form.get("why") };
      if (form.has("new_key")) body.new_key = true;
      if (form.get("step")) body.step = form.get("step");
      const refused = [];
      let acted = 0;
      do {
        const piece = await post("sagas/act", body);
        acted += piece.done.length;
        refused.push(...piece.refused);
        body.after = piece.next;
        preview.replaceChildren(h("p", {}, `${count(acted)} ${DONE[verb]}, ${count(refused.length)} refused so far`));
      } while (body.after);
      done();
      if (refused.length) throw new Error(`${count(acted)} ${DONE[verb]}, ${count(refused.length)} refused. The first: ${refused[0].error}`);
      return `${count(acted)} ${DONE[verb]}`;
    },
  });
}
