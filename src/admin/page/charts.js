// Charts of something per endpoint over time, with uPlot. Each says its figures in words and in a table as well.

import { h, put } from "./dom.js";

/* global uPlot */

const COLOURS = 8;

/** One colour and one dash for an endpoint in all charts. */
export function styles(names) {
  return new Map(names.map((name, n) => [name, { colour: n % COLOURS, dash: n < 4 ? [] : n < 8 ? [6, 3] : [2, 2] }]));
}

function theme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return { text: of("--muted"), grid: of("--grid"), series: Array.from({ length: COLOURS }, (_, n) => of(`--series-${n}`)) };
}

/**
 * A chart. `format` writes a value; `fixed` = the least upper end of the axis.
 * `show({ times, series: [{ name, values }], style })` draws it.
 */
export function chart(title, help, format, { fixed = 0, most = Infinity } = {}) {
  const canvas = h("div", { class: "canvas", role: "img", hidden: true });
  const legend = h("ul", { class: "legend" });
  const figures = h("div");
  const details = h("details", { class: "figures", hidden: true }, h("summary", {}, "Figures", h("span", { class: "hidden" }, ` of ${title}`)), figures);
  const nothing = h("p", { class: "empty small" }, "Loading…");
  const heading = h("h3", {}, title);
  const element = h("section", { class: "panel chart" }, h("div", { class: "head" }, heading, h("p", { class: "help" }, help)), canvas, nothing, legend, details);
  let plot = null;
  let shape = "";
  let data = null;
  let values = [];

  function options(width, series, style, colours) {
    const axis = { stroke: colours.text, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid, width: 1, size: 4 }, font: "11px system-ui, sans-serif" };
    return {
      width, height: 168, legend: { show: false }, padding: [10, 18, 0, 0],
      cursor: { sync: { key: "overview" }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.min(most, Math.max(fixed, (high ?? 0) * 1.1) || 1)] } },
      axes: [{ ...axis, space: 64, size: 30, values: (u, all) => all.map((at) => clock(at, u.scales.x.max - u.scales.x.min)) }, { ...axis, size: 62, gap: 4, values: (_, all) => all.map((value) => (value === null ? "" : format(value))) }],
      series: [{}, ...series.map(({ name }) => ({
        label: name, stroke: colours.series[style.get(name).colour], width: 1.75, dash: style.get(name).dash, spanGaps: false,
        points: { show: (u, s) => lonely(u, s), size: 4 },
      }))],
      hooks: { setCursor: [(u) => readout(u.cursor.idx)] },
    };
  }

  // A value with nothing beside it would not be seen as a line.
  function lonely(u, s) {
    const all = u.data[s];
    return all.some((value, n) => value !== null && (all[n - 1] ?? null) === null && (all[n + 1] ?? null) === null);
  }

  function readout(at) {
    if (!data) return;
    data.series.forEach((one, n) => {
      if (!values[n]) return;
      const value = at === null || at === undefined ? last(one.values) : one.values[at];
      values[n].textContent = value === null || value === undefined ? "–" : format(value);
    });
  }

  function draw() {
    if (!data) return;
    const width = Math.floor(canvas.clientWidth);
    if (width < 50) return;
    const rows = [data.times, ...data.series.map((one) => one.values)];
    const colours = theme();
    const next = JSON.stringify([data.series.map((one) => one.name), colours]);
    if (plot && shape === next) {
      if (plot.width !== width) plot.setSize({ width, height: 168 });
      plot.setData(rows);
      return;
    }
    plot?.destroy();
    shape = next;
    plot = new uPlot(options(width, data.series, data.style, colours), rows, canvas);
  }

  const observer = new ResizeObserver(draw);
  observer.observe(canvas);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", draw);

  function show(next) {
    data = next;
    const empty = next.series.length === 0 || next.times.length < 2;
    canvas.hidden = empty;
    details.hidden = empty;
    legend.hidden = empty;
    nothing.hidden = !empty;
    nothing.textContent = next.empty ?? "Nothing in this time.";
    if (empty) return;
    put(legend, next.series.map((one) => one.name), () => {
      values = next.series.map(() => h("span", { class: "value" }));
      return next.series.map(({ name }, n) => h("li", {}, h("span", { class: `swatch s${next.style.get(name).colour}${n > 3 ? " dashed" : ""}`, "aria-hidden": "true" }), h("span", { class: "name" }, name || "no route"), values[n]));
    });
    const summary = next.series.map((one) => ({ name: one.name || "no route", last: last(one.values), least: least(one.values), most: greatest(one.values) }));
    canvas.setAttribute("aria-label", `${title}: ${summary.map((one) => `${one.name} ${text(one.last)}, at most ${text(one.most)}`).join("; ")}`);
    put(figures, summary, () => h("table", {}, h("caption", { class: "hidden" }, `Figures of ${title}`),
      h("thead", {}, h("tr", {}, ["Endpoint", "Last", "Least", "Most"].map((label, n) => h("th", { scope: "col", class: n ? "number" : null }, label)))),
      h("tbody", {}, summary.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name), [one.last, one.least, one.most].map((value) => h("td", { class: "number" }, text(value))))))));
    draw();
    readout(plot?.cursor.idx);
  }

  function text(value) {
    return value === null ? "–" : format(value);
  }

  return { element, show, end: () => { observer.disconnect(); dark.removeEventListener("change", draw); plot?.destroy(); plot = null; } };
}

/** A time on an axis that spans so many seconds. */
function clock(at, span) {
  const time = new Date(at * 1000);
  const pad = (n) => String(n).padStart(2, "0");
  if (span > 100000) return `${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
  return `${pad(time.getHours())}:${pad(time.getMinutes())}${span < 120 ? `:${pad(time.getSeconds())}` : ""}`;
}

function last(values) {
  for (let n = values.length - 1; n >= 0; n -= 1) if (values[n] !== null && values[n] !== undefined) return values[n];
  return null;
}

function least(values) {
  return values.reduce((low, value) => (value === null || value === undefined || (low !== null && low <= value) ? low : value), null);
}

function greatest(values) {
  return values.reduce((high, value) => (value === null || value === undefined || (high !== null && high >= value) ? high : value), null);
}
