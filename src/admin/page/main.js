// The frame around the views: signing in, the address, and staying up to date.
//
// A view is a function of its parameters and of what it may ask of the frame. It returns `title`, `element`, `refresh(signal)`, which
// asks anew and changes what is shown, and `every`, the seconds between two of them. All that a view depends on is in the address.

import { Problem, get, onSignedOut, setToken, token } from "./api.js";
import { alertBox, h, say } from "./dom.js";
import { seconds } from "./format.js";
import { address, age } from "./icon.js";
import { endpoints } from "./views/endpoints.js";
import { failures } from "./views/failures.js";
import { jobs } from "./views/jobs.js";
import { message } from "./views/message.js";
import { overview } from "./views/overview.js";
import { saga } from "./views/saga.js";
import { sagas } from "./views/sagas.js";
import { history, messages } from "./views/search.js";

const VIEWS = [
  ["overview", "Overview", overview], ["endpoints", "Endpoints", endpoints], ["failures", "Failures", failures],
  ["messages", "Messages", messages], ["history", "History", history], ["sagas", "Sagas", sagas], ["jobs", "Jobs", jobs],
  ["message", null, message], ["saga", null, saga],
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const session = document.getElementById("session");

let shown = null;
let paused = false;
let timer = 0;
let updated = 0;
let failing = null;

const freshness = h("span", { class: "fresh" });
const pauseButton = h("button", { type: "button", class: "quiet", "aria-pressed": "false", on: { click: togglePause } }, "Pause updates");
const who = h("span", { class: "who" });
session.append(freshness, pauseButton, who,
  h("button", { type: "button", class: "quiet", on: { click: () => { setToken(null); location.hash = "#/overview"; start(); } } }, "Sign out"));

for (const [name, label] of VIEWS) {
  if (label) nav.append(h("a", { href: address(name), "data-view": name }, label));
}

function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { name: name || "overview", rest: rest.map(decodeURIComponent), parameters: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

/** Shows what the address says. */
async function route(moved) {
  const place = here();
  const found = VIEWS.find(([name]) => name === place.name);
  const same = shown?.name === place.name && !["message", "saga"].includes(place.name);
  stop();
  for (const link of nav.children) {
    if (link.dataset.view === place.name) {
      link.setAttribute("aria-current", "page");
      nav.scrollLeft = link.offsetLeft - nav.offsetLeft - 40;
    }
    else link.removeAttribute("aria-current");
  }
  if (!found) {
    main.replaceChildren(h("h1", { tabindex: "-1" }, "There is nothing here"), h("p", {}, "Choose a view above."));
    main.querySelector("h1").focus();
    return;
  }
  const abort = new AbortController();
  const frame = {
    go: (view, parameters) => { location.hash = address(view, parameters); },
    refresh: () => tick(),
    signal: abort.signal,
  };
  const view = found[2](place.parameters, frame, ...place.rest);
  shown = { ...view, name: place.name, abort, busy: false };
  document.title = `${view.title} · outbox-relay`;
  const problems = h("div", { class: "problems" });
  shown.problems = problems;
  main.replaceChildren(problems, view.element);
  main.setAttribute("aria-busy", "true");
  const mine = shown;
  await tick();
  if (shown !== mine) return;
  main.removeAttribute("aria-busy");
  main.dataset.address = location.hash;
  if (moved && !document.querySelector("dialog[open]")) {
    const target = (same && main.querySelector("[data-results]")) || main.querySelector("h1");
    target?.focus({ preventScroll: same });
    if (!same) window.scrollTo(0, 0);
  }
}

function stop() {
  clearTimeout(timer);
  shown?.abort.abort();
  shown?.end?.();
}

/** Asks anew, and arranges for the next time. */
async function tick() {
  clearTimeout(timer);
  const view = shown;
  if (!view || view.abort.signal.aborted || !token()) return;
  if (view.busy) {
    view.again = true;
    return;
  }
  view.busy = true;
  let changed = null;
  try {
    await view.refresh(view.abort.signal);
    updated = Date.now();
    failing = null;
  } catch (error) {
    if (view.abort.signal.aborted) return;
    changed = error instanceof Problem ? error.message : `this page failed: ${error.message}`;
    if (!(error instanceof Problem)) console.error(error);
    failing = changed;
  } finally {
    view.busy = false;
  }
  if (view.abort.signal.aborted) return;
  if (changed !== view.said) view.problems.replaceChildren(...(changed ? [alertBox(changed)] : []));
  view.said = changed;
  tell();
  if (view.again) {
    view.again = false;
    await tick();
    return;
  }
  if (view.every) timer = setTimeout(next, view.every * 1000);
}

/** The next look: not while nobody looks, or somebody is about to decide. */
function next() {
  if (paused || document.hidden) return;
  if (document.querySelector("dialog[open]")) timer = setTimeout(next, 1000);
  else tick();
}

function togglePause() {
  paused = !paused;
  pauseButton.setAttribute("aria-pressed", String(paused));
  pauseButton.textContent = paused ? "Resume updates" : "Pause updates";
  say(paused ? "Updates are paused" : "Updates go on");
  tell();
  if (!paused) tick();
}

function tell() {
  const state = failing ? "bad" : paused ? "warn" : "good";
  freshness.className = `fresh ${state}`;
  const old = updated ? (Date.now() - updated) / 1000 : 0;
  const text = failing ? "not up to date" : paused ? `paused, ${seconds(Math.round(old))} old` : old > 20 ? `${seconds(Math.round(old))} old` : "live";
  if (freshness.textContent !== text) freshness.textContent = text;
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !paused) tick();
});
setInterval(() => {
  if (document.hidden) return;
  age(main);
  tell();
}, 1000);
window.addEventListener("hashchange", () => {
  if (token() && location.hash !== "#main") route(true);
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
  main.scrollIntoView();
});

onSignedOut((detail) => {
  setToken(null);
  signIn(detail);
});

/** Asks for a token. */
function signIn(problem) {
  stop();
  shown = null;
  nav.hidden = true;
  session.hidden = true;
  document.title = "Sign in · outbox-relay";
  const field = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false", "aria-describedby": "token-help" });
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  const problems = h("div", {}, problem ? alertBox(problem) : null);
  const form = h("form", { class: "signin", on: { submit: enter } },
    h("h1", { tabindex: "-1" }, "Sign in"),
    h("p", { id: "token-help" }, "With a token of this relay's file of operators or of readers. It is kept in this tab only, until you close it or sign out."),
    h("label", { for: "token" }, "Token"), field, button, problems);
  main.replaceChildren(form);
  field.focus();
  async function enter(event) {
    event.preventDefault();
    setToken(field.value.trim());
    button.disabled = true;
    await start();
  }
}

async function start() {
  if (!token()) return signIn();
  let me;
  try {
    me = await get("me");
  } catch (error) {
    if (error.status !== 401) signIn(error.message);
    return;
  }
  who.textContent = "";
  who.append(me.name, h("span", { class: "role" }, me.role));
  nav.hidden = false;
  session.hidden = false;
  failing = null;
  await route(true);
}

start();
