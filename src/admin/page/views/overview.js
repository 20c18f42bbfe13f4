// How it goes, at a glance.

import { get } from "../api.js";
import { chart, styles } from "../charts.js";
import { h, put } from "../dom.js";
import { brief, count, rate, seconds, share } from "../format.js";
import { address } from "../icon.js";
import { table } from "../table.js";

/** Spans of time that can be chosen, and how often they are asked for. */
export const SPANS = [["15m", "15 min", 5], ["1h", "1 hour", 5], ["6h", "6 hours", 10], ["24h", "24 hours", 20], ["7d", "7 days", 30]];

/** Endpoints with a line of their own; the others are added up. */
const LINES = 7;
const OTHERS = "all others";

/** Links to the same view with other spans. */
export function spans(view, parameters, chosen) {
  return h("nav", { class: "spans", "aria-label": "Span of time" }, SPANS.map(([name, label]) =>
    h("a", { href: address(view, { ...parameters, since: name }), "aria-current": name === chosen ? "true" : null }, label)));
}

export function overview(parameters) {
  const since = parameters.since ?? "1h";
  const every = SPANS.find(([name]) => name === since)?.[2] ?? 10;
  const only = parameters.endpoint;
  const charts = {
    rate: chart("Delivered", "messages a second", rate),
    failed: chart("Failure rate", "attempts that delivered nothing", share, { fixed: 0.02, most: 1 }),
    lag: chart("Lag", "age of the oldest message that is due", seconds, { fixed: 1 }),
    backlog: chart("Backlog", "messages that are pending", brief, { fixed: 4 }),
    took: chart("Duration", "of 19 in 20 requests, at most", seconds),
    dead: chart("Dead", "messages given up a second", rate),
  };
  const tiles = h("dl", { class: "tiles" });
  const attention = h("section", { class: "attention", "aria-label": "Needs attention" });
  const note = h("p", { class: "help" });
  const rows = table("Endpoints in this time", [
    ["Endpoint", (row) => h("a", { href: address("endpoints", {}), "data-focus": row.endpoint }, row.endpoint || "no route")],
    ["Delivered", (row) => rate(row.rate), "number"],
    ["Failure rate", (row) => h("a", { href: address("failures", { since, endpoint: row.endpoint }), "data-focus": `f${row.endpoint}`, "aria-label": `failures of ${row.endpoint}: ${share(row.failed)}` }, share(row.failed)), "number"],
    ["Median", (row) => seconds(row.p50), "number wide"],
    ["19 in 20", (row) => seconds(row.p95), "number wide"],
    ["Backlog", (row) => count(row.pending, 10000), "number"],
    ["Oldest due", (row) => seconds(row.oldest), "number wide"],
    ["Dead letters", (row) => h("a", { href: address("messages", { state: "dead", endpoint: row.endpoint }), "data-focus": `d${row.endpoint}`, "aria-label": `dead letters of ${row.endpoint}: ${count(row.dead, 9999)}` }, count(row.dead, 9999)), "number"],
  ], (row) => row.endpoint, "No endpoint is known yet. Start a relay with a configuration: outbox-relay run --config relay.toml");
  const only1 = only ? h("p", { class: "filtered" }, "Only endpoint ", h("strong", {}, only), ". ", h("a", { href: address("overview", { since }) }, "Show all")) : null;
  const element = h("div", {},
    h("div", { class: "title" }, h("h1", { tabindex: "-1" }, "Overview"), spans("overview", parameters, since)), only1,
    tiles, attention,
    h("h2", { class: "hidden", tabindex: "-1", "data-results": true }, "Charts"),
    h("div", { class: "charts" }, Object.values(charts).map((one) => one.element)), note,
    h("h2", {}, "Endpoints"), rows.element);

  async function refresh(signal) {
    const [status, seen] = await Promise.all([get("status", {}, signal), get("overview", { since }, signal)]);
    const standing = stand(status);
    const grid = lay(seen);
    let names = [...new Set([...standing.keys(), ...grid.keys()])].filter((name) => name !== "" || standing.get("")?.pending);
    if (only) names = names.filter((name) => name === only);
    names.sort();
    const busy = [...names].sort((a, b) => (grid.get(b)?.total ?? 0) - (grid.get(a)?.total ?? 0) || a.localeCompare(b));
    const drawn = names.length > LINES + 1 ? [...busy.slice(0, LINES).sort(), OTHERS] : names;
    const rest = names.filter((name) => !drawn.includes(name));
    const style = styles(drawn);
    const draw = (one, values, empty) => one.show({ times: seen.times, style, empty, series: drawn.map((name) => ({ name, values: values(name === OTHERS ? rest : [name]) })) });
    const sum = (field) => (of) => seen.times.map((_, n) => of.reduce((all, name) => all + (grid.get(name)?.[field][n] ?? 0), 0) / seen.covered[n]);
    const none = "Nothing was attempted in this time.";
    if (grid.size === 0) for (const one of [charts.rate, charts.failed, charts.took, charts.dead]) one.show({ times: [], series: [], style, empty: none });
    else {
      draw(charts.rate, sum("delivered"));
      draw(charts.dead, sum("dead"));
      draw(charts.failed, (of) => seen.times.map((_, n) => {
        const attempts = of.reduce((all, name) => all + (grid.get(name)?.attempts[n] ?? 0), 0);
        return attempts ? of.reduce((all, name) => all + (grid.get(name)?.failed[n] ?? 0), 0) / attempts : null;
      }));
      draw(charts.took, (of) => seen.times.map((_, n) => most(of.map((name) => grid.get(name)?.p95[n] ?? null))));
    }
    const past = trail(seen, status, standing);
    const wait = "Not sampled yet: a relay looks every http.sample_every.";
    draw(charts.backlog, (of) => seen.times.map((_, n) => most(of.map((name) => past.get(name)?.messages[n] ?? null), true)), wait);
    draw(charts.lag, (of) => seen.times.map((_, n) => most(of.map((name) => past.get(name)?.oldest[n] ?? null))), wait);
    rows.show(names.map((name) => ({ endpoint: name, ...totals(grid.get(name), seen), pending: standing.get(name)?.pending ?? 0, oldest: standing.get(name)?.oldest ?? 0, dead: standing.get(name)?.dead ?? 0 })));
    glance(status, standing, names, grid, seen);
    const what = [];
    if (seen.partly.length) what.push(`Of ${seen.partly.length} of ${seen.times.length} pieces of this time the newest 500 attempts were read: rates there are estimates.`);
    what.push("Backlog and lag are what the relay that answers has sampled since it started.");
    note.textContent = what.join(" ");
  }

  function glance(status, standing, names, grid, seen) {
    const all = [...standing].filter(([name]) => !only || name === only).map(([, one]) => one);
    const pending = only ? all.reduce((sum, one) => sum + one.pending, 0) : status.lanes.reduce((sum, lane) => sum + lane.pending, 0);
    const oldest = all.reduce((high, one) => Math.max(high, one.oldest), 0);
    const dead = all.reduce((sum, one) => sum + one.dead, 0);
    const of = names.map((name) => totals(grid.get(name), seen)).filter(Boolean);
    const attempts = of.reduce((sum, one) => sum + one.attempts, 0);
    const failed = attempts ? of.reduce((sum, one) => sum + one.failed * one.attempts, 0) / attempts : null;
    const lately = names.reduce((sum, name) => sum + recent(grid.get(name), seen), 0);
    const live = status.relays.filter((relay) => relay.beat_seconds <= relay.lease_seconds).length;
    const label = SPANS.find(([name]) => name === since)?.[1] ?? since;
    const shown = [
      ["Delivered", rate(lately), "lately", null], ["Failure rate", share(failed), `in ${label}`, failed > 0.1 ? "bad" : failed > 0.01 ? "warn" : null],
      ["Backlog", count(pending), "pending", null], ["Lag", seconds(Math.round(oldest)), "oldest due", oldest > 300 ? "bad" : oldest > 60 ? "warn" : null],
      ["Dead letters", count(dead, 9999), "to be seen to", dead ? "bad" : null], ["Relays", String(live), live === 1 ? "lives" : "live", live ? null : "bad"],
    ];
    put(tiles, shown, () => shown.map(([name, value, help, tone]) => h("div", { class: tone ?? "" }, h("dt", {}, name), h("dd", {}, h("strong", { "data-tile": name }, value), h("small", {}, help)))));
    const items = problems(status);
    attention.hidden = items.length === 0;
    put(attention, items, () => h("ul", {}, items.map(([text, to]) => h("li", {}, to ? h("a", { href: to }, text) : text))));
  }

  return { title: "Overview", element, refresh, every, end: () => Object.values(charts).forEach((one) => one.end()) };
}

/** What there is to be seen to. */
function problems(status) {
  const items = [];
  for (const one of status.endpoints) {
    if (one.paused_seconds !== null) items.push([`${one.endpoint} is paused${one.paused_by ? ` by ${one.paused_by}` : ""}${one.pause_reason ? `: ${one.pause_reason}` : ""}`, "#/endpoints"]);
    else if (one.breaker === "open") items.push([`The breaker of ${one.endpoint} is open`, address("failures", { endpoint: one.endpoint })]);
  }
  for (const lane of status.lanes) if (lane.unrouted) items.push([`No relay that lives can deliver topic ${lane.topic}: ${count(lane.pending, 10000)} pending`, address("messages", { state: "pending", topic: lane.topic })]);
  // Of what is paused or has no route all stands above.
  for (const one of status.alerts) {
    if (one.kind === "failures") items.push([one.summary, address("failures", { endpoint: one.subject })]);
    else if (one.kind === "dead_letters") items.push([one.summary, address("messages", { state: "dead", endpoint: one.subject })]);
    else if (one.kind === "oldest_due") items.push([one.summary, "#/endpoints"]);
  }
  if (status.configs_differ) items.push(["Relays run different configurations", "#/endpoints"]);
  return items.slice(0, 12);
}

/** How endpoints stand, by name; the empty one is what nobody can deliver. */
export function stand(status) {
  const all = new Map();
  const of = (name) => all.get(name) ?? all.set(name, { pending: 0, oldest: 0, dead: 0 }).get(name);
  for (const one of status.endpoints) of(one.endpoint);
  for (const lane of status.lanes) {
    const oldest = Math.max(lane.oldest_seconds ?? 0, lane.due_in === null ? 0 : -lane.due_in, 0);
    for (const name of lane.unrouted || !lane.leads_to.length ? [""] : lane.leads_to) {
      of(name).pending += lane.pending;
      of(name).oldest = Math.max(of(name).oldest, oldest);
    }
  }
  for (const dead of status.dead_letters) of(dead.endpoint).dead += dead.count;
  return all;
}

/** The pieces as columns: one place for each piece of time. */
export function lay(seen) {
  const length = Math.max(1, Math.ceil((seen.now - seen.first) / seen.step));
  const place = (at) => Math.round((at - seen.first) / seen.step);
  seen.times = Array.from({ length }, (_, n) => seen.first + n * seen.step);
  seen.covered = seen.times.map((at) => Math.max(1, Math.min(seen.step, seen.now - at)));
  for (const one of seen.partly) seen.covered[place(one.at)] = one.covered;
  const grid = new Map();
  for (const piece of seen.pieces) {
    const n = place(piece.at);
    if (n < 0 || n >= length) continue;
    let one = grid.get(piece.endpoint);
    if (!one) {
      const fresh = (value) => Array(length).fill(value);
      one = { total: 0, attempts: fresh(0), delivered: fresh(0), failed: fresh(0), dead: fresh(0), p50: fresh(null), p95: fresh(null) };
      grid.set(piece.endpoint, one);
    }
    for (const name of ["attempts", "delivered", "failed", "dead", "p50", "p95"]) one[name][n] = piece[name];
    one.total += piece.attempts;
  }
  return grid;
}

/** Of the whole time. */
export function totals(one, seen) {
  if (!one) return { rate: 0, failed: null, attempts: 0, p50: null, p95: null };
  let delivered = 0;
  let attempts = 0;
  let failed = 0;
  one.attempts.forEach((n, at) => {
    const factor = Math.min(seen.step, seen.now - seen.times[at]) / seen.covered[at];
    delivered += one.delivered[at] * factor;
    attempts += n * factor;
    failed += one.failed[at] * factor;
  });
  return { rate: delivered / (seen.now - seen.first), attempts: Math.round(attempts), failed: attempts ? failed / attempts : null, p50: middle(one.p50, one.attempts), p95: most(one.p95) };
}

function recent(one, seen) {
  if (!one) return 0;
  const end = seen.times.length - 1;
  // The piece that has only begun says little.
  const from = Math.max(0, end - 1);
  let delivered = 0;
  let time = 0;
  for (let n = from; n <= end; n += 1) {
    delivered += one.delivered[n] * (Math.min(seen.step, seen.now - seen.times[n]) / seen.covered[n]);
    time += Math.min(seen.step, Math.max(seen.now - seen.times[n], 0));
  }
  return time ? delivered / time : 0;
}

function middle(values, weights) {
  let sum = 0;
  let weight = 0;
  values.forEach((value, n) => {
    if (value === null) return;
    sum += value * weights[n];
    weight += weights[n];
  });
  return weight ? sum / weight : null;
}

function most(values, add = false) {
  return values.reduce((all, value) => (value === null ? all : all === null ? value : add ? all + value : Math.max(all, value)), null);
}

/** What was sampled, and how it stands now as its end. */
function trail(seen, status, standing) {
  const past = new Map();
  const of = (name) => past.get(name) ?? past.set(name, { messages: seen.times.map(() => null), oldest: seen.times.map(() => null) }).get(name);
  for (const one of seen.backlog) {
    const n = Math.round((one.at - seen.first) / seen.step);
    if (n < 0 || n >= seen.times.length) continue;
    of(one.endpoint).messages[n] = one.messages;
    of(one.endpoint).oldest[n] = one.oldest;
  }
  const end = seen.times.length - 1;
  for (const [name, one] of standing) {
    of(name).messages[end] = one.pending;
    of(name).oldest[end] = one.oldest;
  }
  // Samples may be further apart than pieces are: what was seen last holds until the next one.
  const hold = Math.ceil(30 / seen.step);
  for (const one of past.values()) {
    for (const values of [one.messages, one.oldest]) {
      let age = Infinity;
      let value = null;
      values.forEach((now, n) => {
        age = now === null ? age + 1 : 0;
        if (now !== null) value = now;
        else if (age <= hold) values[n] = value;
      });
    }
  }
  return past;
}
