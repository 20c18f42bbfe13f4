// One saga: where it is and why, what became of each of its steps, and what they were told and answered.

import { exactly, getText } from "../api.js";
import { h, put } from "../dom.js";
import { exact, interval, seconds } from "../format.js";
import { address, badge, messageLink, tone, when } from "../icon.js";
import { askSaga } from "../saga-dialogs.js";

/** What can be done, by where it stands. */
const VERBS = { new: ["cancel"], running: ["cancel"], parked: ["resume", "skip", "cancel", "rerun"], succeeded: ["rerun"], compensated: ["rerun"], compensating: [] };
const LABELS = { resume: "Resume…", skip: "Skip the step…", cancel: "Cancel…", rerun: "Run again…" };

/** What operators did stands in the trail itself. */
const OPERATORS = ["replayed", "discarded", "cancelled", "key_released"];

export function saga(_, frame, id = "") {
  const title = h("h1", { tabindex: "-1" }, "Saga ", h("span", { class: "mono id" }, id));
  const head = h("div");
  const buttons = h("div");
  const timeline = h("div");
  const facts = h("div");
  const values = h("div");
  const element = h("div", { class: "message" }, h("div", { class: "title" }, title), buttons, head,
    h("div", { class: "columns" }, h("div", {}, h("h2", {}, "Timeline"), timeline), h("div", {}, h("h2", {}, "Saga"), facts, values)));

  async function refresh(signal) {
    const life = exactly(await getText(`sagas/${encodeURIComponent(id)}`, {}, signal));
    put(title, [life.name, life.key], () => [`${life.name} ${life.key} `, h("span", { class: "mono id" }, id)]);
    put(head, [life.status, life.phase, life.step, life.failed_step, life.error, life.why], () => where(life));
    put(buttons, [life.status, life.phase, life.steps === null, life.input], () => actions(life));
    put(timeline, [life.trail, life.attempts, life.status, life.message], () => events(life));
    put(facts, [life.status, life.generation, life.deadline_at, life.finished_at, life.headers, life.steps], () => describe(life));
    put(values, [life.input, life.outputs, life.steps], () => [
      content("Input", life.input), content("Outputs", life.outputs), life.steps ? content("Plan", life.steps) : null]);
  }

  function actions(life) {
    const possible = VERBS[life.status].filter((verb) => (verb === "cancel" ? life.phase === "do" : verb !== "rerun" || life.steps));
    return h("div", { class: "buttons" }, possible.map((verb) => h("button", {
      type: "button", class: verb === "cancel" ? "danger" : verb === "resume" ? "primary" : null, "data-focus": verb, on: { click: () => askSaga(verb, life, frame.refresh) },
    }, LABELS[verb])), h("a", { class: "button", href: address("sagas", { name: life.name }) }, `All of ${life.name}`));
  }

  return { title: `Saga ${id.slice(0, 8)}`, element, refresh, every: 3 };
}

function where(life) {
  const over = life.finished_at !== null;
  const at = over ? null : life.step === null ? "no relay has a plan for it yet" : h("strong", {}, `at ${life.phase === "undo" ? "undo of " : ""}${life.step}`);
  const failed = life.error ? [at ? ": " : "", life.failed_step && life.failed_step !== life.step ? `${life.failed_step}: ` : "", life.error] : null;
  return [h("p", { class: `why ${tone(life.status)}` }, badge(life.status), at, failed),
    over ? null : life.why.map((one) => h("p", { class: `why ${tone(one.state)}` }, badge(one.state), one.endpoint ? h("strong", {}, `${one.endpoint}: `) : null, one.why))];
}

/** The trail, each line with the attempts that led to it; and what is going on now. */
function events(life) {
  const lines = life.trail.map((line) => ({ ...line, attempts: [] }));
  const now = { step: life.step, phase: life.phase, message: life.message, event: "now", generation: life.generation, attempts: [] };
  for (const one of life.attempts) {
    if (OPERATORS.includes(one.settlement)) continue;
    const line = lines.find((other) => other.message === one.id && Date.parse(other.at) >= Date.parse(one.started_at));
    (line ?? now).attempts.push(one);
  }
  const going = life.finished_at === null && life.status !== "parked" && life.message !== null;
  if (going || now.attempts.length) lines.push(now);
  if (!lines.length) return h("p", { class: "empty small" }, "Nothing happened to it yet.");
  return h("ol", { class: "timeline" }, lines.map((line, n) => h("li", { class: line.event === "now" ? "info" : tone(line.event) },
    h("p", { class: "event" }, h("strong", {}, `${line.phase === "undo" ? "Undo of " : ""}${line.step}`), badge(line.event === "now" && !going ? "later" : line.event, line.event === "now" ? "info" : undefined),
      line.message ? h("span", {}, "message ", messageLink(line.message)) : null, line.generation ? h("span", {}, `generation ${line.generation}`) : null),
    h("p", { class: "help" }, line.at ? h("time", { datetime: line.at }, exact(line.at)) : "it has not ended", line.by ? ` · by ${line.by}` : ""),
    line.error ? h("p", { class: "mono said" }, line.error) : null, line.why ? h("p", {}, line.why) : null,
    line.input_before ? more("The input before", n, line.input_before) : null,
    line.attempts.length ? h("details", {}, h("summary", {}, line.attempts.length === 1 ? "1 attempt" : `${line.attempts.length} attempts`),
      h("ul", { class: "plain" }, line.attempts.map(attempt))) : null)));
}

function more(label, n, text) {
  return h("details", {}, h("summary", {}, label), h("pre", { tabindex: "0", role: "region", "aria-label": `${label} ${n + 1}` }, text));
}

function attempt(one) {
  const took = interval(one.duration);
  return h("li", {}, h("p", { class: "event" }, h("span", {}, `Attempt ${one.attempt}`), badge(one.outcome), one.settlement !== one.outcome ? badge(one.settlement) : null,
    one.status ? h("span", { class: "mono" }, `HTTP ${one.status}`) : null, took === null ? null : h("span", {}, `took ${seconds(took)}`)),
  h("p", { class: "help" }, h("time", { datetime: one.started_at }, exact(one.started_at)), ` · by ${one.relay}`),
  one.error ? h("p", { class: "mono said" }, one.error) : null);
}

function describe(life) {
  const time = (text) => (text ? [exact(text), " ", h("small", {}, "(", when(text), ")")] : null);
  const facts = [
    ["Name", h("a", { href: address("sagas", { name: life.name }) }, life.name)], ["Key", life.key], ["Inserted", time(life.created_at)],
    ["Deadline", time(life.deadline_at)], ["Ended", time(life.finished_at)], ["Run again", life.generation ? `${life.generation} times` : null],
    ["Steps", life.steps ? h("ol", { class: "plain" }, life.steps.map((step) => h("li", {}, `${step.name} → ${step.to}`, step.pivot ? h("small", {}, " the pivot") : step.undo ? null : h("small", {}, " no undo")))) : "a relay's plan, when it begins"],
    ["Headers", life.headers ? h("ul", { class: "plain mono" }, Object.entries(life.headers).map(([name, value]) => h("li", {}, `${name}: ${value}`))) : null],
  ];
  return h("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function content(label, value) {
  return [h("h2", {}, label), h("pre", { tabindex: "0", role: "region", "aria-label": label }, JSON.stringify(value, null, 2) ?? "null")];
}
