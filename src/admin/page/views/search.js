// Lists of messages, and the history: every filter is in the address.

import { get } from "../api.js";
import { askMany } from "../dialogs.js";
import { h, say } from "../dom.js";
import { bytes, count, seconds } from "../format.js";
import { address, badge, messageLink, when } from "../icon.js";
import { list } from "../table.js";

const REASONS = ["rejected", "attempts", "max_age", "expired", "lost"];
const OUTCOMES = ["success", "redirect", "unavailable", "misconfigured", "rejected", "gone", "proxy", "dns", "connect", "connect_timeout", "tls", "reset",
  "protocol", "timeout", "unsendable", "aborted", "exhausted", "panicked", "lost", "expired", "replayed", "discarded", "cancelled", "key_released"];
const SETTLEMENTS = ["delivered", "retry", "put_off", "dead", "undo", "replayed", "discarded", "cancelled", "key_released"];

const TOPIC = { name: "topic", label: "Topic", help: "order.* too" };
const ENDPOINT = { name: "endpoint", label: "Endpoint", options: "endpoints" };
const KEY = { name: "key", label: "Key" };
const STATUS = { name: "status", label: "HTTP status", type: "number" };
const ERROR = { name: "error", label: "Error contains" };
const SINCE = { name: "since", label: "Since", help: "2h or time" };
const UNTIL = { name: "until", label: "Until", help: "1h or time" };

/** Rows of a page, and of a large one. */
const PAGE = 100;
const LARGE = 1000;

export function messages(parameters, frame) {
  const state = ["pending", "dead", "delivered"].includes(parameters.state) ? parameters.state : "dead";
  const dead = state === "dead";
  const fields = [TOPIC, ENDPOINT, KEY, ...(dead ? [{ name: "reason", label: "Reason", choices: REASONS }, STATUS] : []), ...(state === "delivered" ? [] : [ERROR]), SINCE, UNTIL];
  const given = pick(parameters, fields);
  const many = (verb) => h("button", { type: "button", class: verb === "discard" ? "danger" : null, on: { click: () => askMany(verb, given, state === "delivered", frame.go) } },
    verb === "discard" ? "Discard all that match…" : state === "delivered" ? "Send all that match again…" : "Replay all that match…");
  const rows = list(`Messages that are ${state}`, `messages ${state}`, [
    ["Message", (row) => messageLink(row.id), "id"],
    ["Topic", (row) => [row.topic, row.type ? h("small", {}, ` ${row.type}`) : null], "topic"],
    ["Key", (row) => row.key ?? h("span", { class: "none" }, "none"), "key"],
    ["Endpoint", (row) => row.endpoint || h("span", { class: "none" }, "no route known"), "endpoint"],
    [{ dead: "Died", pending: "Inserted", delivered: "Delivered" }[state], (row) => when(row.at), "at"],
    dead ? ["Reason", (row) => badge(row.reason), "reason"] : ["Due", (row) => (row.due_at ? when(row.due_at) : state === "pending" ? "now" : ""), "reason"],
    ["Attempts", (row) => count(row.attempts), "number attempts"],
    ["Size", (row) => bytes(row.size), "number size"],
    ["Last error", (row) => [row.status && !row.error?.includes(String(row.status)) ? `${row.status} ` : "", row.error ?? ""], "error"],
  ], (row) => `${row.id} ${row.endpoint} ${JSON.stringify(row.place)}`, {
    dead: "No dead letter matches. That is good, unless a filter is too narrow: take one away.",
    pending: "Nothing pending matches. Insert a row into outbox.messages, or take a filter away.",
    delivered: "Nothing that was delivered and is kept matches. Payloads are kept for history.delivered (24 h by default).",
  }[state]);
  const states = h("nav", { class: "spans", "aria-label": "State" }, ["dead", "pending", "delivered"].map((name) =>
    h("a", { href: address("messages", { ...given, state: name, ...(name === "dead" ? {} : { reason: "", status: "" }), ...(name === "delivered" ? { error: "" } : {}) }), "aria-current": name === state ? "true" : null }, name)));
  return search({
    name: "messages", title: "Messages", aside: states, parameters: { ...given, state }, fields, rows, frame, field: "messages",
    actions: dead ? [many("replay"), many("discard")] : state === "delivered" ? [many("replay")] : [],
  });
}

export function history(parameters, frame) {
  const fields = [{ name: "id", label: "Message id" }, TOPIC, ENDPOINT, KEY, { name: "outcome", label: "Outcome", choices: OUTCOMES }, { name: "settlement", label: "Settlement", choices: SETTLEMENTS }, STATUS, ERROR,
    { name: "relay", label: "Relay, or operator" }, { name: "slower", label: "Slower than, in s", type: "number" }, { name: "attempt", label: "Attempt number", type: "number" }, SINCE, UNTIL, { name: "failures", label: "Failures only", check: true }];
  const rows = list("History", "history", [
    ["Started", (row) => when(row.started_at), "at"],
    ["Message", (row) => messageLink(row.id), "id"],
    ["Topic", (row) => row.topic, "topic"],
    ["Endpoint", (row) => row.endpoint, "endpoint"],
    ["Attempt", (row) => (row.attempt ? `#${row.attempt}` : "–"), "number attempts"],
    ["Took", (row) => (row.attempt ? seconds(row.seconds) : "–"), "number size"],
    ["Outcome", (row) => badge(row.outcome), "reason"],
    ["Then", (row) => (row.settlement === row.outcome ? "" : badge(row.settlement)), "key"],
    ["What was said", (row) => row.error ?? row.reason ?? "", "error"],
  ], (row) => JSON.stringify(row.place), "No attempt matches. Take a filter away, or choose a longer span of time.");
  return search({ name: "history", title: "History", parameters: pick(parameters, fields), fields, rows, frame, field: "history", actions: [], unit: ["line", "lines"] });
}

/** What of the parameters is a filter here. */
export function pick(parameters, fields) {
  return Object.fromEntries(fields.map(({ name }) => [name, parameters[name]]).filter(([, value]) => value));
}

/** A view of such a list. `unit` = what one and many of its rows are called; `above` = what stands before the rows, `also(signal)` keeps that up to date. */
export function search({ name, title, aside, parameters, fields, rows, frame, field, actions, unit = ["message", "messages"], above, also }) {
  const narrow = matchMedia("(max-width: 720px)").matches;
  const used = fields.filter((one) => parameters[one.name]).length;
  const endpoints = h("datalist", { id: "endpoints" });
  const form = h("form", { class: "filters", role: "search", "aria-label": `Filter of ${name}`, on: { submit } },
    fields.map((one) => input(one, parameters[one.name])), endpoints,
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Search"),
      h("a", { class: "button", href: address(name, parameters.state ? { state: parameters.state } : {}) }, "Clear")));
  const details = h("details", { class: "filterbox", open: !narrow }, h("summary", {}, used ? `Filters (${used})` : "Filters"), form);
  const tally = h("h2", { tabindex: "-1", "data-results": true, class: "tally" }, "…");
  const more = h("button", { type: "button", on: { click: () => load(PAGE) } }, `Load ${PAGE} more`);
  const lots = h("button", { type: "button", on: { click: () => load(LARGE) } }, `Load ${count(LARGE)} more`);
  const still = h("p", { class: "help", hidden: true }, "The list stands still while more than its first page is shown. ",
    h("button", { type: "button", class: "quiet", on: { click: () => { shown = []; pages = 0; frame.refresh(); } } }, "Back to the newest"));
  const foot = h("div", { class: "buttons more", hidden: true }, more, lots);
  const element = h("div", {}, h("div", { class: "title" }, h("h1", { tabindex: "-1" }, title), aside), details, above,
    h("div", { class: "results" }, tally, h("div", { class: "buttons" }, actions)), still, rows.element, foot);
  let shown = [];
  let next = null;
  let pages = 0;
  get("status").then((status) => endpoints.append(...status.endpoints.map((one) => h("option", { value: one.endpoint }))), () => {});

  function submit(event) {
    event.preventDefault();
    const values = Object.fromEntries([...new FormData(form)].map(([key, value]) => [key, value.trim()]));
    const to = address(name, { ...(parameters.state ? { state: parameters.state } : {}), ...values });
    if (to === location.hash) frame.refresh();
    else location.hash = to;
  }

  async function refresh(signal) {
    // What somebody has paged through must not move under their eyes.
    if (pages > 1) return;
    await also?.(signal);
    const page = await get(name, { ...parameters, limit: PAGE }, signal);
    if (pages > 1) return;
    pages = 1;
    shown = page[field];
    next = page.next;
    show();
  }

  async function load(limit) {
    more.disabled = true;
    lots.disabled = true;
    try {
      const page = await get(name, { ...parameters, limit, after: next }, frame.signal);
      pages += 1;
      shown = shown.concat(page[field]);
      next = page.next;
      show();
      say(`${count(page[field].length)} more, ${count(shown.length)} in all`);
    } catch (error) {
      if (!frame.signal.aborted) tally.textContent = error.message;
    } finally {
      more.disabled = false;
      lots.disabled = false;
    }
  }

  function show() {
    rows.show(shown);
    const text = `${count(shown.length)}${next ? " or more" : ""} ${unit[shown.length === 1 ? 0 : 1]}`;
    if (tally.textContent !== text) tally.textContent = text;
    foot.hidden = !next;
    still.hidden = pages < 2;
  }

  return { title: parameters.state ? `${title}: ${parameters.state}` : title, element, refresh, every: 5 };
}

function input({ name, label, help, type, choices, options, check }, value) {
  const id = `f-${name}`;
  if (check) {
    return h("div", { class: "check" }, h("input", { type: "checkbox", id, name, value: "true", checked: value === "true" }), h("label", { for: id }, label));
  }
  const control = choices
    ? h("select", { id, name }, h("option", { value: "" }, "any"), choices.map((one) => h("option", { value: one, selected: one === value }, one.replaceAll("_", " "))))
    : h("input", { id, name, type: type ?? "text", step: type ? "any" : null, min: type ? "0" : null, list: options, value: value ?? "", autocomplete: "off", spellcheck: "false" });
  return h("div", { class: "field" }, h("label", { for: id }, label, help ? h("small", {}, ` (${help})`) : null), control);
}
