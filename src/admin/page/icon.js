// What many views show: badges, times, links.

import { h } from "./dom.js";
import { ago, exact } from "./format.js";

/** Which colour a word has: by what it means, not by where it stands. */
const TONES = {
  success: "good", delivered: "good", done: "good", closed: "good", running: "info",
  retry: "warn", put_off: "warn", unavailable: "warn", timeout: "warn", connect_timeout: "warn", connect: "warn", reset: "warn",
  dns: "warn", tls: "warn", protocol: "warn", proxy: "warn", redirect: "warn", misconfigured: "warn", half_open: "warn",
  paused: "warn", throttled: "warn", not_before: "warn", lost: "warn", aborted: "warn", exhausted: "warn", no_relay: "bad",
  no_route: "bad", held: "warn", behind: "info", scheduled: "info", leased: "info", due: "info", pending: "info",
  dead: "bad", rejected: "bad", gone: "bad", unsendable: "bad", panicked: "bad", expired: "bad", open: "bad", attempts: "bad", max_age: "bad",
  replayed: "info", discarded: "quiet", cancelled: "quiet", key_released: "info", locked: "warn",
  succeeded: "good", compensating: "warn", compensated: "warn", parked: "bad",
  refused: "bad", unknown: "warn", resume: "info", resume_with_new_key: "info", rerun: "info", back_unsent: "warn", back_unknown: "warn",
};

export function tone(word) {
  return TONES[word] ?? "quiet";
}

/** A word in its colour. */
export function badge(word, as = tone(word)) {
  return h("span", { class: `badge ${as}` }, word.replaceAll("_", " "));
}

/** A time, as how long ago it was; exactly for those who point at it, or at its row. */
export function when(text) {
  if (!text) return "–";
  const time = h("time", { datetime: text, title: exact(text), "data-exact": exact(text), class: "when" }, ago(text));
  return time;
}

/** All times that are shown grow older. */
export function age(within) {
  const now = Date.now();
  for (const time of within.querySelectorAll("time.when")) {
    const text = ago(time.dateTime, now);
    if (time.textContent !== text) time.textContent = text;
  }
}

/** The address of a view: what is empty is left out. */
export function address(view, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

/** A link to a message: its id, or the beginning of it. */
export function messageLink(id, whole = false) {
  return h("a", { href: address(`message/${id}`), class: "mono", "data-focus": `m${id}`, title: id, "aria-label": whole ? undefined : `message ${id}` },
    whole ? id : id.slice(0, 8));
}
