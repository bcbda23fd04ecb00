// Elements and their updates. Text of users only ever becomes text nodes and attributes.

/** An element: `h("a.row", { href }, "text", [more])`. Of `false`, `null` and `undefined` nothing is made. */
export function h(selector, ...parts) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const part of parts.flat(Infinity)) {
    if (part === null || part === undefined || part === false) continue;
    if (part instanceof Node || typeof part !== "object") element.append(part);
    else attributes(element, part);
  }
  return element;
}

function attributes(element, values) {
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
}

/** What may be wider than the page, and is then scrolled, also by the keyboard. */
export const wide = (label, ...content) => h("div.scroll", { tabindex: 0, role: "region", "aria-label": label }, content);

/** The head of a table; `#` before a name is a column of numbers. */
export function heading(names) {
  const cell = (name) => h(name.startsWith("#") ? "th.num" : "th", { scope: "col" }, name.replace("#", ""));
  return h("thead", h("tr", names.map(cell)));
}

/** A table of which each row is a card on a phone, where cells say which column they are of. */
export function cards(names, ...bodies) {
  const table = h("table.cards", heading(names), bodies);
  for (const body of table.tBodies) {
    for (const row of body.rows) [...row.cells].forEach((cell, i) => cell.nodeName === "TD" && (cell.dataset.label = names[i].replace("#", "")));
  }
  return table;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element, which has no text. */
export function s(tag, values, ...children) {
  const element = document.createElementNS(SVG, tag);
  attributes(element, values);
  element.append(...children);
  return element;
}

/** The SVG that the server drew, or `null`. What could run or refer to elsewhere is left out. */
export function parseSvg(text, label) {
  const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (root.localName !== "svg" || root.querySelector("parsererror")) return null;
  for (const element of root.querySelectorAll("script,style,foreignObject,image,use,a")) element.remove();
  const svg = document.importNode(root, true);
  svg.setAttribute("aria-label", label);
  return svg;
}

/** Makes the children of `to` those of `from`, and keeps what is equal: focus, selection and open details stay. */
export function morph(to, from) {
  let old = to.firstChild;
  for (const fresh of [...from.childNodes]) {
    const kept = counterpart(old, fresh);
    if (!kept) {
      to.insertBefore(fresh, old);
      continue;
    }
    if (kept === old) old = old.nextSibling;
    else to.insertBefore(kept, old);
    if (!kept.isEqualNode(fresh)) patch(kept, fresh);
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

/** The node that becomes `fresh`: of the same key, wherever it is, or else the next one if it is of the same kind. */
function counterpart(old, fresh) {
  const key = fresh.dataset?.key;
  if (!key) return old && old.nodeName === fresh.nodeName && !old.dataset?.key ? old : null;
  for (let node = old; node; node = node.nextSibling) {
    if (node.dataset?.key === key && node.nodeName === fresh.nodeName) return node;
  }
  return null;
}

/** Attributes that the reader changes are left to the reader. */
const READERS = { DETAILS: "open", INPUT: "value", OPTION: "selected" };

function patch(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name !== READERS[old.nodeName] && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (name !== READERS[old.nodeName] && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  if (!old.hasAttribute("data-own")) morph(old, fresh);
}
