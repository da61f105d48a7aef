// A description of elements, and the smallest change that makes the document match it.
//
// h() describes an element; show() makes a container hold it. Elements that stay keep their focus, their scroll
// position and the text the reader has selected, so a page can be drawn again each second. Text is always a text node:
// no value of a task is ever read as markup. Styles are set through CSSOM, as the content security policy demands.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "indeterminate", "disabled", "selected"]);

/** Describe an element. Children may be texts, numbers, descriptions, nested lists, or nothing (null, false). */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, key: props?.key, children: children.flat(Infinity).map(described), node: null };
}

/** Make `container` hold exactly what is described. */
export function show(container, ...described_) {
  const after = described_.flat(Infinity).map(described);
  patchChildren(container, container.shown ?? [], after, null);
  container.shown = after;
}

function described(child) {
  // Nothing is an empty text: the children after it keep their place, so they are not made anew.
  if (child === null || child === undefined || child === false || child === true) return { text: "", node: null };
  return typeof child === "object" ? child : { text: String(child), node: null };
}

function create(item, space) {
  if (item.tag === undefined) return (item.node = document.createTextNode(item.text));
  const own = item.tag === "svg" ? SVG : space;
  const node = own ? document.createElementNS(own, item.tag) : document.createElement(item.tag);
  item.node = node;
  for (const child of item.children) node.append(create(child, own));
  setProps(node, {}, item.props);
  item.props.created?.(node);
  return node;
}

function patch(before, after, space) {
  const node = (after.node = before.node);
  if (after.tag === undefined) {
    if (node.data !== after.text) node.data = after.text;
    return;
  }
  patchChildren(node, before.children, after.children, after.tag === "svg" ? SVG : space);
  setProps(node, before.props, after.props);
}

function patchChildren(parent, before, after, space) {
  const keyed = new Map();
  const rest = [];
  for (const item of before) {
    if (item.key === undefined) rest.push(item);
    else keyed.set(item.key, item);
  }
  const left = new Set(before);
  let next = 0;
  for (const item of after) {
    const old = item.key === undefined ? rest[next++] : keyed.get(item.key);
    if (old !== undefined && old.tag === item.tag && left.has(old)) {
      left.delete(old);
      patch(old, item, space);
    } else {
      create(item, space);
    }
  }
  for (const item of left) item.node.remove();
  let cursor = parent.firstChild;
  for (const item of after) {
    if (item.node === cursor) cursor = cursor.nextSibling;
    else parent.insertBefore(item.node, cursor);
  }
}

function setProps(node, before, after) {
  for (const name in before) if (!(name in after)) setProp(node, name, before[name], null);
  for (const name in after) setProp(node, name, before[name], after[name]);
}

function setProp(node, name, before, after) {
  if (name === "key" || name === "created") return;
  if (name === "style") {
    for (const part in before ?? {}) if (!(part in (after ?? {}))) node.style.removeProperty(part);
    for (const part in after ?? {}) if (before?.[part] !== after[part]) node.style.setProperty(part, after[part]);
  } else if (name.startsWith("on")) {
    node[name] = after ?? null;
  } else if (PROPERTIES.has(name)) {
    // The reader may have changed it meanwhile: compare with the document, not with the last description.
    const value = after ?? (typeof node[name] === "boolean" ? false : "");
    if (node[name] !== value) node[name] = value;
  } else if (before !== after) {
    if (after === null || after === undefined || after === false) node.removeAttribute(name);
    else node.setAttribute(name, after === true ? "" : after);
  }
}
