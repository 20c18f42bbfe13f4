// Elements, made without markup: all text goes through text nodes, so nothing that stands in the database can be more than text.

/** An element: `properties` are attributes, but for `class`, `on` (listeners) and `value`; children are nodes, texts, or nothing. */
export function h(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (key === "class") {
      element.className = value;
    } else if (key === "value") {
      element.value = value;
    } else {
      element.setAttribute(key, value === true ? "" : String(value));
    }
  }
  fill(element, children);
  return element;
}

/** Adds children. */
export function fill(element, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces what is in an element, if it is another thing now: what somebody reads or has the focus in stays otherwise. */
export function put(element, signature, make) {
  const key = JSON.stringify(signature);
  if (element.signature === key) return;
  element.signature = key;
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  element.replaceChildren();
  fill(element, [make()]);
  if (focused) refocus(element, focused);
}

/** Makes the children of `parent` those of `items`; a child whose item is unchanged is the same node as before. */
export function reconcile(parent, items, keyOf, make) {
  const before = new Map();
  for (const child of parent.children) before.set(child.key, child);
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const name = focused?.dataset.focus;
  const next = items.map((item) => {
    const key = keyOf(item);
    const signature = JSON.stringify(item);
    const old = before.get(key);
    if (old && old.signature === signature) return old;
    const child = make(item);
    child.key = key;
    child.signature = signature;
    return child;
  });
  const same = next.length === parent.children.length && next.every((child, n) => parent.children[n] === child);
  if (same) return;
  const keep = new Set(next);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  next.forEach((child, n) => {
    if (parent.children[n] !== child) parent.insertBefore(child, parent.children[n] ?? null);
  });
  if (focused && !focused.isConnected && name) refocus(parent, name);
  else if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

function refocus(within, name) {
  for (const element of within.querySelectorAll("[data-focus]")) {
    if (element.dataset.focus === name) {
      element.focus({ preventScroll: true });
      return;
    }
  }
}

/** Says something to those who listen instead of looking. */
export function say(text) {
  const said = document.getElementById("said");
  said.textContent = said.textContent === text ? `${text}\u00a0` : text;
}

/** A message about something that went wrong. */
export function alertBox(text) {
  return h("p", { class: "alert", role: "alert" }, text);
}
