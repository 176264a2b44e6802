/** Elements from data, and the least change that makes the document show them.
 *
 * Everything is put in as text or attribute, never as markup: no API answer can become an element.
 * `patch` changes what differs and leaves the rest alone, so that focus, selection and what a person
 * opened survive every refresh, and a screen reader is not told the same again.
 */

const SVG = "http://www.w3.org/2000/svg";

function make(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/** An HTML element; attributes that are null or false are left out. */
export function h(tag, attributes = {}, ...children) {
  return make(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return make(document.createElementNS(SVG, tag), attributes, children);
}

/** A button whose click `main.js` hands to the deed of that name, with its `data-` as arguments. */
export function button(text, deed, data = {}, attributes = {}) {
  const named = Object.fromEntries(
    Object.entries(data).map(([name, value]) => [`data-${name}`, value]),
  );
  return h("button", { type: "button", "data-do": deed, ...named, ...attributes }, text);
}

/** Make the children of `parent` be these: elements with the same `data-item`, or at the same place
 * without one, stay and are changed. `data-keep` marks an element whose inside is its own. */
export function patch(parent, ...children) {
  patchNodes(parent, nodes(children));
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-item") : null;
}

function alike(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName;
}

function patchNodes(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (keyOf(child) !== null) keyed.set(keyOf(child), child);
  }
  let at = parent.firstChild;
  for (const fresh of wanted) {
    const key = keyOf(fresh);
    const old = key !== null ? keyed.get(key) : at !== null && keyOf(at) === null ? at : null;
    if (old && alike(old, fresh)) {
      if (old === at) at = at.nextSibling;
      else parent.insertBefore(old, at);
      update(old, fresh);
    } else {
      parent.insertBefore(fresh, at);
    }
  }
  while (at !== null) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function update(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    const theirs = name === "open" && old.nodeName === "DETAILS"; // a person opened it
    if (!fresh.hasAttribute(name) && !theirs) old.removeAttribute(name);
  }
  if (!fresh.hasAttribute("data-keep")) patchNodes(old, [...fresh.childNodes]);
}
