// Endpoints and what waits for them; the relays.

import { get } from "../api.js";
import { askEndpoint } from "../dialogs.js";
import { h } from "../dom.js";
import { count, rate, seconds, share } from "../format.js";
import { address, badge } from "../icon.js";
import { table } from "../table.js";
import { lay, stand, totals } from "./overview.js";

export function endpoints(_, frame) {
  const all = table("Endpoints", [
    ["Endpoint", (row) => h("a", { href: address("overview", { endpoint: row.endpoint }), "data-focus": `e${row.endpoint}` }, row.endpoint)],
    ["State", state],
    ["Breaker", (row) => h("span", {}, badge(row.breaker), row.open ? h("small", {}, ` probes in ${row.open}`) : null)],
    ["In flight", (row) => count(row.leased), "number wide"],
    ["Backlog", (row) => h("a", { href: address("messages", { state: "pending", endpoint: row.endpoint }), "data-focus": `p${row.endpoint}`, "aria-label": `pending for ${row.endpoint}: ${count(row.pending, 10000)}` }, count(row.pending, 10000)), "number"],
    ["Oldest due", (row) => row.oldest, "number wide"],
    ["Delivered, 15 min", (row) => row.rate, "number wide"],
    ["Failure rate, 15 min", (row) => h("a", { href: address("failures", { endpoint: row.endpoint, since: "15m" }), "data-focus": `f${row.endpoint}`, "aria-label": `failures of ${row.endpoint}: ${row.failed}` }, row.failed), "number wide"],
    ["Dead letters", (row) => h("a", { href: address("messages", { state: "dead", endpoint: row.endpoint }), "data-focus": `d${row.endpoint}`, "aria-label": `dead letters of ${row.endpoint}: ${count(row.dead, 9999)}` }, count(row.dead, 9999)), "number"],
    ["Action", (row) => {
      const verb = row.paused ? "resume" : "pause";
      return h("button", { type: "button", "data-focus": `a${row.endpoint}`, "aria-label": `${verb} ${row.endpoint}`, on: { click: () => askEndpoint(row.endpoint, verb, frame.refresh) } }, row.paused ? "Resume" : "Pause");
    }, "action"],
  ], (row) => row.endpoint, "No endpoint is known yet. Start a relay with a configuration: outbox-relay run --config relay.toml");
  const lanes = table("Topics with pending messages", [
    ["Topic", (row) => h("a", { href: address("messages", { state: "pending", topic: row.topic }), "data-focus": `t${row.topic}` }, row.topic)],
    ["Leads to", (row) => (row.unrouted ? badge("no_route") : row.leads_to.join(", ") || "not known yet")],
    ["Pending", (row) => count(row.pending, 10000), "number"],
    ["Oldest", (row) => seconds(row.oldest), "number"],
    ["Next due", (row) => (row.due_in === null ? "–" : row.due_in > 0 ? `in ${seconds(row.due_in)}` : "now"), "number wide"],
  ], (row) => `${row.topic} ${row.endpoint}`, "Nothing is pending: all that was inserted is delivered or dead.");
  const relays = table("Relays", [
    ["Relay", (row) => row.name],
    ["State", (row) => (row.late ? badge("no beat", "bad") : badge("lives", "good"))],
    ["Version", (row) => row.version, "wide"],
    ["Up", (row) => row.up, "number"],
    ["Holds", (row) => count(row.leased), "number"],
    ["Configuration", (row) => h("span", { class: "mono" }, row.config_digest.slice(0, 8), row.config_differs ? [" ", badge("differs", "warn")] : null), "wide"],
    ["Bell", (row) => (row.keeps_bell ? "keeps it" : ""), "wide"],
  ], (row) => row.relay, "No relay is registered: nothing is delivered until one runs.");
  const element = h("div", {}, h("div", { class: "title" }, h("h1", { tabindex: "-1" }, "Endpoints")), all.element,
    h("h2", {}, "Topics with pending messages"), lanes.element, h("h2", {}, "Relays"), relays.element);

  async function refresh(signal) {
    const [status, seen] = await Promise.all([get("status", {}, signal), get("overview", { since: "15m" }, signal)]);
    const standing = stand(status);
    const grid = lay(seen);
    all.show(status.endpoints.map((one) => {
      const lately = totals(grid.get(one.endpoint), seen);
      const { pending, oldest, dead } = standing.get(one.endpoint);
      return {
        endpoint: one.endpoint, paused: one.paused_seconds === null ? null : coarse(one.paused_seconds), by: one.paused_by, why: one.pause_reason,
        resumed: one.change === "resumed" ? { ago: coarse(one.changed_seconds), by: one.changed_by, why: one.change_reason } : null,
        closed: one.closed_for === null ? null : seconds(Math.ceil(one.closed_for)), breaker: one.breaker, leased: one.leased, pending, dead,
        open: one.open_for === null ? null : seconds(Math.max(0, Math.ceil(one.open_for))), oldest: seconds(Math.round(oldest)), rate: rate(lately.rate), failed: share(lately.failed),
      };
    }));
    lanes.show(status.lanes.map((lane) => ({ ...lane, oldest: Math.round(Math.max(lane.oldest_seconds ?? 0, -(lane.due_in ?? 0), 0)), oldest_seconds: null, due_in: lane.due_in === null ? null : Math.ceil(lane.due_in) })));
    relays.show(status.relays.map((one) => ({
      relay: one.relay, name: one.name, version: one.version, config_digest: one.config_digest, config_differs: one.config_differs, leased: one.leased,
      keeps_bell: one.keeps_bell, late: one.beat_seconds > one.lease_seconds, up: coarse(one.up_seconds),
    })));
  }

  return { title: "Endpoints", element, refresh, every: 3 };
}

/** Rows are drawn anew when something in them changes: not every second because of their age. */
function coarse(s) {
  return seconds(s < 60 ? Math.floor(s / 5) * 5 : s);
}

function state(row) {
  if (row.paused) return h("span", {}, badge("paused"), h("small", {}, ` for ${row.paused}${row.by ? ` by ${row.by}` : ""}${row.why ? `: ${row.why}` : ""}`));
  if (row.closed) return h("span", {}, badge("not before", "warn"), h("small", {}, ` asked to wait ${row.closed}`));
  if (row.breaker === "open") return badge("left alone", "bad");
  if (!row.resumed) return badge("delivering", "good");
  const { ago, by, why } = row.resumed;
  return h("span", {}, badge("delivering", "good"), h("small", {}, ` resumed ${ago} ago${by ? ` by ${by}` : ""}${why ? `: ${why}` : ""}`));
}
