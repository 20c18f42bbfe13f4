// One message: where it is, why, what is in it, and all that happened to it.

import { exactly, getText } from "../api.js";
import { askCancel, askDiscard, askRelease, askReplay } from "../dialogs.js";
import { h, put } from "../dom.js";
import { bytes, exact, interval, seconds } from "../format.js";
import { address, badge, tone, when } from "../icon.js";

/** Characters of a payload that are shown. */
const SHOWN = 100000;

export function message(_, frame, id = "") {
  const head = h("div");
  const why = h("div");
  const facts = h("div");
  const payload = h("div");
  const heading = h("h2", {}, "Timeline");
  const timeline = h("div");
  const element = h("div", { class: "message" },
    h("div", { class: "title" }, h("h1", { tabindex: "-1" }, "Message ", h("span", { class: "mono id" }, id))),
    head, why, h("div", { class: "columns" }, h("div", {}, heading, timeline), h("div", {}, h("h2", {}, "Message"), facts, h("h2", {}, "Payload"), payload)));

  async function refresh(signal) {
    const life = exactly(await getText(`messages/${encodeURIComponent(id)}`, {}, signal));
    const rows = [...life.pending.map((row) => ["pending", row]), ...life.dead.map((row) => ["dead", row]), ...life.delivered.map((row) => ["delivered", row])];
    put(why, life.why, () => life.why.map((one) => h("p", { class: `why ${tone(one.state)}` }, badge(one.state), one.endpoint ? h("strong", {}, `${one.endpoint}: `) : null, one.why)));
    put(head, [rows.map(([place, row]) => [place, row.key, row.topic]), life.why.map((one) => one.why.includes("waits for it"))], () => actions(life));
    const [place, row] = rows[0] ?? [];
    put(facts, [place, row ? { ...row, payload: 0, body: 0 } : life.attempts[0]?.topic], () => describe(place, row, life, rows));
    put(payload, [row?.id, row?.size, place], () => content(row));
    heading.textContent = life.attempts.length === 1 ? "Timeline: 1 event" : `Timeline: ${life.attempts.length} events`;
    put(timeline, life.attempts, () => events(life.attempts));
  }

  function actions(life) {
    const buttons = [];
    const button = (label, kind, run) => buttons.push(h("button", { type: "button", class: kind, "data-focus": label, on: { click: run } }, label));
    if (life.pending.length) button("Cancel…", "danger", () => askCancel(id, frame.refresh));
    if (life.dead.length) {
      button("Replay…", "primary", () => askReplay(id, false, frame.refresh));
      button("Discard…", "danger", () => askDiscard(id, frame.refresh));
      const held = life.dead.find((row) => row.key !== null);
      if (held && life.why.some((one) => one.why.includes("waits for it"))) button("Release its key…", null, () => askRelease(held, frame.refresh));
    }
    if (life.delivered.length && !life.pending.length) button("Send again…", null, () => askReplay(id, true, frame.refresh));
    buttons.push(h("a", { class: "button", href: address("history", { id }) }, "In the history"));
    return h("div", { class: "buttons" }, buttons);
  }

  return { title: `Message ${id.slice(0, 8)}`, element, refresh, every: 3 };
}

function describe(place, row, life, rows) {
  if (!row) return h("p", { class: "empty small" }, `Its row is not kept any more${life.attempts.length ? `; its topic was ${life.attempts[0].topic}` : ""}.`);
  const facts = [
    ["Topic", h("a", { href: address("messages", { state: place, topic: row.topic }) }, row.topic)],
    ["Key", row.key === null ? null : h("a", { href: address("history", { key: row.key }) }, row.key)], ["Type", row.type],
    ["Endpoint", rows.map(([, one]) => one.endpoint).filter(Boolean).join(", ")],
    ["Inserted", time(row.created_at)], ["Due", time(row.due_at)], ["Expires", time(row.expires_at)], ["Died", time(row.died_at)], ["Delivered", time(row.delivered_at)],
    ["Reason", row.reason ? badge(row.reason) : null], ["Last error", row.last_error],
    ["Place (seq)", String(row.seq)], ["Attempts", String(row.attempts)], ["Lost", row.lost ? String(row.lost) : null], ["Put off", row.throttled ? String(row.throttled) : null],
    ["Replayed", row.generation ? `${row.generation} times` : null], ["Size", bytes(Number(row.size))], ["Content type", row.content_type],
    ["Headers", row.headers ? h("ul", { class: "plain mono" }, Object.entries(row.headers).map(([name, value]) => h("li", {}, `${name}: ${value}`))) : null],
  ];
  return h("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function time(text) {
  return text ? [exact(text), " ", h("small", {}, "(", when(text), ")")] : null;
}

function content(row) {
  if (!row) return h("p", { class: "empty small" }, "It is not kept any more.");
  let text;
  let note = null;
  if (row.body) {
    const packed = Uint8Array.from(row.body.slice(2).match(/../g) ?? [], (pair) => parseInt(pair, 16));
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(packed);
    } catch {
      text = row.body.slice(2).replace(/(.{2})/g, "$1 ").slice(0, 12000);
      note = "Bytes that are no text, in hex.";
    }
  } else if (row.payload === null || row.payload === undefined) {
    return h("p", { class: "empty small" }, "It has none.");
  } else {
    text = JSON.stringify(row.payload, null, 2);
    note = "Set in lines; it is sent as it was stored.";
  }
  if (text.length > SHOWN) note = `The first ${SHOWN} of ${text.length} characters.`;
  return [h("pre", { tabindex: "0", role: "region", "aria-label": "Payload" }, text.slice(0, SHOWN)), note ? h("p", { class: "help" }, note) : null];
}

function events(attempts) {
  if (!attempts.length) return h("p", { class: "empty small" }, "Nothing happened to it yet: no attempt was made.");
  const several = new Set(attempts.map((one) => one.endpoint)).size > 1;
  return h("ol", { class: "timeline" }, attempts.map((one, n) => {
    const before = n ? (new Date(one.started_at) - new Date(attempts[n - 1].started_at)) / 1000 : null;
    const made = one.attempt > 0 && !["replayed", "discarded", "cancelled", "key_released"].includes(one.settlement);
    const took = made ? interval(one.duration) : null;
    return h("li", { class: tone(one.settlement === "delivered" || one.settlement === "dead" ? one.settlement : one.outcome) },
      h("p", { class: "event" }, h("strong", {}, made ? `Attempt ${one.attempt}` : word(one)), badge(one.outcome),
        one.settlement !== one.outcome ? badge(one.settlement) : null, one.status ? h("span", { class: "mono" }, `HTTP ${one.status}`) : null,
        took === null ? null : h("span", {}, `took ${seconds(took)}`), several ? h("span", {}, `to ${one.endpoint}`) : null),
      h("p", { class: "help" }, h("time", { datetime: one.started_at }, exact(one.started_at)), before !== null ? ` · ${before < 0.001 ? "at once" : `${seconds(before)} later`}` : "", ` · by ${one.relay}`,
        one.generation ? ` · replay ${one.generation}` : ""),
      one.error ? h("p", { class: "mono said" }, one.error) : null,
      one.reason && one.reason !== one.outcome ? h("p", {}, one.reason) : null,
      one.response ? h("details", {}, h("summary", {}, "What was answered"), h("pre", { tabindex: "0", role: "region", "aria-label": `Answer ${n + 1}` }, one.response)) : null,
      one.request ? h("details", {}, h("summary", {}, "What was sent"), h("pre", { tabindex: "0", role: "region", "aria-label": `Request ${n + 1}` }, sent(one))) : null);
  }));
}

/** A request and the headers of its answer, where the endpoint keeps details. */
function sent({ request, response_headers: answered, status }) {
  const lines = (headers) => Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  const answer = answered ? ["", `answered ${status ?? ""}`, ...lines(answered)] : [];
  return [`${request.method} ${request.url}`, ...lines(request.headers), "", `${request.size} bytes, SHA-256 ${request.sha256}`, ...answer].join("\n");
}

function word(one) {
  const name = one.settlement.replaceAll("_", " ");
  return name[0].toUpperCase() + name.slice(1);
}
