// Replays and discards of many.

import { get, post } from "../api.js";
import { ask } from "../dialogs.js";
import { h, put } from "../dom.js";
import { count, exact } from "../format.js";
import { badge, when } from "../icon.js";
import { table } from "../table.js";

const FILTER = ["topic", "endpoint", "key", "reason", "status", "error"];

export function jobs(_, frame, number) {
  return number ? one(number, frame) : all();
}

function all() {
  const rows = table("Jobs", [
    ["Job", (row) => h("a", { href: `#/jobs/${row.job}`, "data-focus": `j${row.job}` }, `#${row.job}`)],
    ["What", (row) => `${row.verb} ${row.source}`],
    ["Filter", (row) => filter(row)],
    ["State", (row) => badge(row.state, row.state === "running" ? "info" : row.state === "done" ? "good" : "warn")],
    ["Done", (row) => count(row.done), "number"],
    ["Begun", (row) => when(row.created_at), "wide"],
    ["By", (row) => row.started_by, "wide"],
    ["Why", (row) => row.why ?? "", "wide"],
  ], (row) => row.job, "No job was ever begun. A search for dead letters offers to replay all that match.");
  const element = h("div", {}, h("div", { class: "title" }, h("h1", { tabindex: "-1" }, "Jobs")), rows.element);
  const refresh = async (signal) => rows.show((await get("jobs", {}, signal)).map(({ moved_at: _, ...row }) => row));
  return { title: "Jobs", element, refresh, every: 4 };
}

function one(number, frame) {
  const facts = h("div");
  const progress = h("div", { class: "progress", role: "status", "aria-live": "polite" });
  const buttons = h("div", { class: "buttons" });
  const element = h("div", {}, h("div", { class: "title" }, h("h1", { tabindex: "-1" }, `Job #${number}`)), progress, buttons, facts);
  let expected = null;

  async function refresh(signal) {
    const job = await get(`jobs/${encodeURIComponent(number)}`, {}, signal);
    if (expected === null && job.state === "running") expected = await left(job, signal);
    const all = job.state === "running" ? Math.max(expected ?? 0, job.done + job.pending) : job.done + job.pending;
    const state = badge(job.state, job.state === "running" ? "info" : job.state === "done" ? "good" : "warn");
    put(progress, [job.state, job.done, job.pending, all], () => [
      h("p", {}, state, ` ${count(job.done)} ${job.verb === "replay" ? "replayed" : "discarded"}${job.state === "running" && all ? ` of ${count(all)}` : ""}${job.pending ? `, ${count(job.pending)} left alone: pending already, or not any more what they were` : ""}`),
      job.state === "running" ? h("progress", { max: Math.max(all, 1), value: job.done + job.pending, "aria-label": "Progress" }) : null]);
    put(buttons, job.state, () => (job.state === "running"
      ? h("button", { type: "button", class: "danger", "data-focus": "abort", on: { click: abort } }, "Abort…")
      : h("a", { class: "button", href: "#/jobs" }, "All jobs")));
    const rows = [["What", `${job.verb} what is ${job.source}`], ["Filter", filter(job)], ["Begun", [exact(job.created_at), " by ", job.started_by]], ["Ended", job.finished_at ? exact(job.finished_at) : null],
      ["Why", job.why], ["At most", job.rate ? `${job.rate} a second` : null], ["As other messages", job.new_key ? "yes" : null]];
    put(facts, rows.map(([name]) => [name, job]).map(([name, { moved_at: _, done: __, pending: ___, ...rest }]) => [name, rest]), () =>
      h("dl", { class: "facts" }, rows.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
  }

  function abort() {
    ask({
      title: `Abort job #${number}?`, about: "What it has done stays done; the rest is left as it is.", action: "Abort the job", danger: true, reason: false,
      run: async () => ((await post(`jobs/${number}/abort`, {})).was_running ? "The job is aborted" : "It was over already"), done: frame.refresh,
    });
  }

  return { title: `Job ${number}`, element, refresh, every: 1 };
}

/** How many it meets in all, as far as that can be told: what it has done, and what still matches. */
async function left(job, signal) {
  const query = { source: job.source, until: job.until };
  for (const name of FILTER) query[name] = job[name] ?? "";
  if (!job.since.startsWith("-")) query.since = job.since;
  const found = await get("matching", query, signal);
  return job.done + job.pending + found.reduce((sum, row) => sum + row.messages, 0);
}

function filter(row) {
  const given = FILTER.filter((name) => row[name] !== null);
  return given.length ? given.map((name, n) => [n ? " " : "", h("code", {}, `${name}=${row[name]}`)]) : "all";
}
