// Nothing is changed without a question: what it is about, and why it is done.

import { get, post } from "./api.js";
import { alertBox, h, say } from "./dom.js";
import { bytes, count } from "./format.js";
import { when } from "./icon.js";

/**
 * Asks, and does it. `run(form)` changes something and returns what is said then, or throws a Problem, which is shown where it was asked.
 * `fields` = more of the form; `prepare()` = what must be known first, and whether it can be done then.
 */
export function ask({ title, about, action, danger, fields = [], reason = true, kept = "in the history", prepare, run, done }) {
  const why = h("input", { id: "why", name: "why", required: true, maxlength: "500", autocomplete: "off" });
  const problems = h("div", { class: "problems" });
  const button = h("button", { type: "submit", class: danger ? "danger" : "primary", disabled: Boolean(prepare) }, action);
  const cancel = h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const form = h("form", { method: "dialog", on: { submit } },
    h("h2", { id: "dialog-title" }, title), h("p", {}, about),
    fields,
    reason ? h("div", { class: "field" }, h("label", { for: "why" }, `Why (kept ${kept})`), why) : null,
    problems, h("div", { class: "buttons" }, cancel, button));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", on: { close: () => dialog.remove() } }, form);
  const asker = document.activeElement;
  document.body.append(dialog);
  dialog.showModal();
  (reason ? why : cancel).focus();
  dialog.addEventListener("close", () => {
    // The row that it was asked from may be another one by now.
    if (!asker?.isConnected) document.querySelector("main h1")?.focus();
  });
  if (prepare) {
    prepare(dialog).then(
      (possible) => { button.disabled = !possible; },
      (error) => problems.replaceChildren(alertBox(error.message)));
  }

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    problems.replaceChildren();
    try {
      const said = await run(new FormData(form));
      dialog.close();
      say(said);
      done?.();
    } catch (error) {
      problems.replaceChildren(alertBox(error.message));
      button.disabled = false;
    }
  }
}

/** Pauses or resumes an endpoint. */
export function askEndpoint(endpoint, verb, done) {
  const pause = verb === "pause";
  ask({
    title: `${pause ? "Pause" : "Resume"} ${endpoint}?`,
    about: pause
      ? "No relay sends anything to it until it is resumed. What is on its way is finished; what waits uses no attempts."
      : "All relays go on sending to it, beginning with what waits.",
    action: pause ? "Pause" : "Resume",
    kept: "with the endpoint, until the next pause or resume",
    run: async (form) => {
      const { changed } = await post(`endpoints/${encodeURIComponent(endpoint)}/${verb}`, { why: form.get("why") });
      return changed ? `${endpoint} is ${pause ? "paused" : "resumed"}` : `${endpoint} was that already`;
    },
    done,
  });
}

function checkbox(name, label, help) {
  return h("div", { class: "check" }, h("input", { type: "checkbox", id: `f-${name}`, name, "aria-describedby": help ? `f-${name}-help` : null }),
    h("label", { for: `f-${name}` }, label), help ? h("p", { id: `f-${name}-help`, class: "help" }, help) : null);
}

const NEW_KEY = () => checkbox("new_key", "As another message", "Under a new id, so under a new Idempotency-Key: the receiver can't know it again.");

/** Replays one message. */
export function askReplay(id, delivered, done) {
  ask({
    title: delivered ? "Send it again?" : "Replay this message?",
    about: delivered
      ? "It was delivered. Its receiver gets it once more, under the same key unless you say otherwise."
      : "It goes back among the pending, its attempts are given back, and it is sent where its topic leads now.",
    action: delivered ? "Send again" : "Replay",
    fields: [NEW_KEY()],
    run: async (form) => {
      const body = { delivered, new_key: form.has("new_key"), why: form.get("why") };
      const { replayed, pending } = await post(`messages/${id}/replay`, body);
      return replayed.length ? "It is pending again" : `It was pending already (${pending})`;
    },
    done,
  });
}

export function askCancel(id, done) {
  ask({
    title: "Cancel this message?", about: "It is taken back: it leaves the table and is never sent. Its history stays.",
    action: "Cancel the message", danger: true,
    run: async (form) => {
      const { cancelled, in_flight: flying } = await post(`messages/${id}/cancel`, { why: form.get("why") });
      return `${cancelled} cancelled${flying ? `, ${flying} on the way` : ""}`;
    },
    done,
  });
}

export function askDiscard(id, done) {
  ask({
    title: "Discard this dead letter?", about: "Its payload is removed for good, and the key that it holds is opened. Its history stays.",
    action: "Discard", danger: true,
    run: async (form) => `${(await post(`messages/${id}/discard`, { why: form.get("why") })).discarded} discarded`,
    done,
  });
}

export function askRelease(row, done) {
  ask({
    title: "Release this key?", about: `What waits behind the dead message under key ${row.key} of topic ${row.topic} is sent, without it.`,
    action: "Release the key",
    run: async (form) => {
      const { released } = await post("keys/release", { topic: row.topic, key: row.key, endpoint: row.endpoint, why: form.get("why") });
      return `${released} released`;
    },
    done,
  });
}

/** Replays or discards all that a filter means, after a look at what that is. */
export function askMany(verb, filter, delivered, go) {
  const replay = verb === "replay";
  const preview = h("div", { class: "preview", role: "status", "aria-live": "polite" }, h("p", {}, "Counting…"));
  const given = Object.entries(filter).filter(([, value]) => value);
  const fields = [
    h("h3", {}, "What it would meet now"),
    given.length ? h("p", { class: "help" }, "Filter: ", given.map(([name, value], n) => [n ? ", " : "", h("code", {}, `${name}=${value}`)])) : h("p", { class: "help" }, "No filter: all there are."),
    preview,
    replay ? h("div", { class: "field" }, h("label", { for: "f-rate" }, "At most so many a second (empty: no limit)"),
      h("input", { id: "f-rate", name: "rate", type: "number", min: "0.001", max: "1000000", step: "any", inputmode: "decimal" })) : null,
    replay ? NEW_KEY() : null,
  ];
  ask({
    title: replay ? (delivered ? "Send these messages again?" : "Replay these messages?") : "Discard these dead letters?",
    about: replay ? "They become pending again, a piece at a time; you can look on, and abort." : "Their payloads are removed for good; their history stays.",
    action: replay ? "Replay" : "Discard", danger: !replay, fields,
    prepare: async (dialog) => {
      let found;
      try {
        found = await get("matching", { ...filter, source: delivered ? "delivered" : "dead" });
      } catch (error) {
        preview.replaceChildren(h("p", {}, "It can't be counted."));
        throw error;
      }
      const all = found.reduce((sum, row) => sum + row.messages, 0);
      const cells = (row) => [h("th", { scope: "row" }, row.endpoint), h("td", {}, row.topic), h("td", {}, row.reason ?? "delivered"),
        h("td", { class: "number" }, count(row.messages)), h("td", { class: "number" }, bytes(row.bytes)), h("td", {}, when(row.oldest))];
      preview.replaceChildren(h("p", {}, h("strong", {}, `${count(all)} message${all === 1 ? "" : "s"}`), all ? "" : ": nothing to do"));
      if (all) {
        preview.append(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "By endpoint, topic and reason" }, h("table", {},
          h("thead", {}, h("tr", {}, ["Endpoint", "Topic", "Reason", "Messages", "Size", "Oldest"].map((label, n) => h("th", { scope: "col", class: n === 3 || n === 4 ? "number" : null }, label)))),
          h("tbody", {}, found.slice(0, 50).map((row) => h("tr", {}, cells(row)))))));
        dialog.querySelector("[type=submit]").textContent = `${replay ? "Replay" : "Discard"} ${count(all)}`;
      }
      return all > 0;
    },
    run: async (form) => {
      const empty = given.length === 0;
      const body = { verb, filter: Object.fromEntries(given.map(([name, value]) => [name, name === "status" ? Number(value) : value])), all: empty, why: form.get("why") };
      if (replay) {
        body.delivered = delivered;
        body.new_key = form.has("new_key");
        if (form.get("rate")) body.rate = Number(form.get("rate"));
      }
      const job = await post("jobs", body);
      go(`jobs/${job.job}`);
      return `Job ${job.job} has begun`;
    },
  });
}
