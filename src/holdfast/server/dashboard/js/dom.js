/** Makes elements. Text is only ever set as text. */

const SVG = "http://www.w3.org/2000/svg";
/** Characters that cannot be seen or that reorder a line: controls, bidi marks, zero-width characters. */
const UNSEEN = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u061C\u200B-\u200F\u2028-\u202E\u2060-\u2069\uFEFF]/g;

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

/**
 * Returns a text with unseen characters made visible, such as ⟨U+202E⟩.
 * @param {unknown} value
 */
export function visible(value) {
  return String(value).replace(UNSEEN, (found) => `⟨U+${found.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/**
 * Makes an element. `on` has listeners, `class` and other names are attributes, false and null leave one out.
 * @param {string} name
 * @param {Record<string, any> | null} [options]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function el(name, options, ...children) {
  return /** @type {HTMLElement} */ (fill(document.createElement(name), options, children));
}

/**
 * Makes an SVG element.
 * @param {string} name
 * @param {Record<string, any> | null} [options]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(name, options, ...children) {
  return /** @type {SVGElement} */ (fill(document.createElementNS(SVG, name), options, children));
}

/** @param {Element} node @param {Record<string, any> | null | undefined} options @param {Child[]} children */
function fill(node, options, children) {
  for (const [key, value] of Object.entries(options ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [type, listener] of Object.entries(value)) node.addEventListener(type, listener);
    else if (key === "value" && "value" in node) /** @type {any} */ (node).value = value;
    else if (key === "checked") /** @type {any} */ (node).checked = value;
    else node.setAttribute(key, value === true ? "" : visible(value));
  }
  add(node, children);
  return node;
}

/**
 * Adds children: nodes as they are, everything else as text.
 * @param {Element | DocumentFragment} node
 * @param {Child[]} children
 */
export function add(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(node, child);
    else node.append(child instanceof Node ? child : visible(child));
  }
}

/**
 * Sets a text if it has changed. Returns whether it has.
 * @param {Element} node
 * @param {unknown} value
 */
export function setText(node, value) {
  const text = visible(value);
  if (node.textContent === text) return false;
  node.textContent = text;
  return true;
}

/** Marks a change for a moment. @param {Element} node */
export function flash(node) {
  node.classList.remove("changed");
  requestAnimationFrame(() => node.classList.add("changed"));
}

/**
 * Replaces the content of an element, unless the new content equals it.
 * @param {Element} node
 * @param {...Child} children
 */
export function replace(node, ...children) {
  const made = document.createDocumentFragment();
  add(made, children);
  const old = node.childNodes;
  if (old.length === made.childNodes.length && [...made.childNodes].every((one, n) => one.isEqualNode(old[n]))) return false;
  node.replaceChildren(made);
  return true;
}

/**
 * Brings the children of an element in line with a list. Children are reused by key, so that focus and selection stay.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string | number} key
 * @param {(item: T) => Element} make
 * @param {(node: any, item: T) => void} [update]
 */
export function keyed(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((node) => [/** @type {any} */ (node).holdfastKey, node]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let node = old.get(name);
    if (node) {
      old.delete(name);
      update?.(node, item);
    } else {
      node = make(item);
      /** @type {any} */ (node).holdfastKey = name;
    }
    if (node === place) place = node.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of old.values()) node.remove();
}

/** Does something while a button is disabled. The button gets back the focus that it lost. @param {HTMLButtonElement} button @param {() => Promise<void>} work */
export async function whileDisabled(button, work) {
  button.disabled = true;
  try {
    await work();
  } finally {
    button.disabled = false;
    if (document.activeElement === document.body) button.focus({ preventScroll: true });
  }
}

/** Returns a link to a page of the dashboard. @param {string} href @param {...Child} children */
export function link(href, ...children) {
  return el("a", { href }, ...children);
}

/** Returns a path with each part encoded. @param {...(string | number)} parts */
export function path(...parts) {
  return `/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

/** Returns a path with a query; empty values are left out. @param {string} base @param {Record<string, any>} query */
export function withQuery(base, query) {
  const made = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "" && one !== false) made.append(key, String(one));
    }
  }
  const text = made.toString();
  return text ? `${base}?${text}` : base;
}
