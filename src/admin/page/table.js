// Tables: small ones, and lists of thousands of rows.

import { h, reconcile } from "./dom.js";

/**
 * A small table. A column is `[label, cell, class]`; `keyOf` tells which row is which between two looks.
 * Returns the element and `show(rows)`.
 */
export function table(caption, columns, keyOf, empty) {
  const body = h("tbody");
  const head = columns.map(([label, , kind]) => h("th", { scope: "col", class: kind }, label));
  const element = h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, head)), body);
  const nothing = h("p", { class: "empty", hidden: true }, empty);
  const scroll = h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, element);
  const show = (rows) => {
    nothing.hidden = rows.length > 0;
    scroll.hidden = rows.length === 0;
    reconcile(body, rows, keyOf, (row) =>
      h("tr", {}, columns.map(([, cell, kind], n) => h(n === 0 ? "th" : "td", { scope: n === 0 ? "row" : null, class: kind }, cell(row)))));
  };
  return { element: h("div", {}, scroll, nothing), show };
}

/**
 * A list of any length: its rows are laid out when they are seen, and are there for find-in-page and screen readers all the same. A table
 * by its roles, since the rows of a table proper can't be left out of a layout.
 */
export function list(caption, kind, columns, keyOf, empty) {
  const body = h("div", { role: "rowgroup", class: "rows" });
  const head = h("div", { role: "row", class: "row head" },
    columns.map(([label, , name]) => h("div", { role: "columnheader", class: name }, label)));
  const element = h("div", { role: "table", "aria-label": caption, class: `list ${kind}` }, h("div", { role: "rowgroup", class: "top" }, head), body);
  const nothing = h("p", { class: "empty", hidden: true }, empty);
  const show = (rows) => {
    nothing.hidden = rows.length > 0;
    element.hidden = rows.length === 0;
    reconcile(body, rows, keyOf, (row) =>
      h("div", { role: "row", class: "row" }, columns.map(([, cell, name]) => h("div", { role: "cell", class: name }, cell(row)))));
  };
  return { element: h("div", {}, element, nothing), show };
}
