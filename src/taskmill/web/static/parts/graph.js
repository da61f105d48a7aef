// Tasks that are tied to each other: children as a tree, dependencies as a graph in layers.

import { h } from "../dom.js";
import { subject } from "../format.js";
import { href } from "../router.js";
import { badge, taskLink } from "./basics.js";

/** Draw tasks with `parent_id` as a tree; the chosen one is marked. */
export function tree(tasks, chosen) {
  const known = new Set(tasks.map((task) => task.id));
  const below = new Map();
  for (const task of tasks) {
    const parent = known.has(task.parent_id) ? task.parent_id : null;
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(task);
  }
  const branch = (parent) => {
    const found = below.get(parent) ?? [];
    return found.length > 0 && h("ul", { class: parent === null ? "tree" : null, role: parent === null ? "tree" : "group" },
      found.map((task) =>
      h("li", { key: task.id, role: "treeitem", "aria-current": task.id === chosen ? "true" : null },
        h("div", { class: "tree-row" }, taskLink(task.id), badge(task.state),
          h("span", { class: "cut" }, subject(task) || task.type)),
        branch(task.id))));
  };
  return branch(null);
}

const BOX = { width: 190, height: 46, across: 56, down: 14 };

/** Draw dependencies of {task_id, on_id, open} from left to right: a task stands right of all it depends on. */
export function graph(tasks, dependencies, chosen) {
  const byId = new Map(tasks.map((task) => [task.id, task]));
  const edges = dependencies.filter((edge) => byId.has(edge.task_id) && byId.has(edge.on_id));
  const tied = new Set(edges.flatMap((edge) => [edge.task_id, edge.on_id]));
  const layer = new Map();
  const depth = (id) => {
    if (!layer.has(id)) {
      layer.set(id, 0);
      layer.set(id, Math.max(0, ...edges.filter((edge) => edge.task_id === id).map((edge) => depth(edge.on_id) + 1)));
    }
    return layer.get(id);
  };
  const layers = [];
  for (const id of [...tied].sort((one, other) => one - other)) {
    const place = depth(id);
    (layers[place] ??= []).push(id);
  }
  const spot = new Map();
  layers.forEach((ids, column) => ids.forEach((id, row) => spot.set(id, {
    x: column * (BOX.width + BOX.across), y: row * (BOX.height + BOX.down) })));
  const width = layers.length * (BOX.width + BOX.across) - BOX.across;
  const height = Math.max(...layers.map((ids) => ids.length)) * (BOX.height + BOX.down) - BOX.down;
  return h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Dependencies" },
    h("svg", { viewBox: `-2 -2 ${width + 4} ${height + 4}`, width: width + 4, height: height + 4, role: "presentation" },
      edges.map((edge) => {
        const from = spot.get(edge.on_id);
        const to = spot.get(edge.task_id);
        const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
        return h("path",
          { key: `${edge.on_id}-${edge.task_id}`, class: `edge ${edge.open ? "open" : ""}`,
            d: `M${x1} ${y1}C${x1 + BOX.across / 2} ${y1} ${x2 - BOX.across / 2} ${y2} ${x2} ${y2}` });
      }),
      [...spot].map(([id, { x, y }]) => box(byId.get(id), x, y, id === chosen))));
}

function box(task, x, y, isChosen) {
  const name = subject(task) || task.type;
  return h("a",
    { key: task.id, href: href("task", {}, task.id), class: `box ${isChosen ? "chosen" : ""}`, "data-state": task.state,
      "aria-label": `Task ${task.id}, ${task.state}: ${name}` },
    h("rect", { x, y, width: BOX.width, height: BOX.height, rx: 8 }),
    h("rect", { class: "stripe", x, y: y + 8, width: 3, height: BOX.height - 16, rx: 1.5 }),
    h("text", { x: x + 14, y: y + 19, class: "box-name" }, cut(name, 24)),
    h("text", { x: x + 14, y: y + 36, class: "box-state" }, `#${task.id} · ${task.state.replaceAll("_", " ")}`),
    h("title", null, name));
}

/** Shorten a text to a width; characters of East Asian scripts count twice. */
function cut(text, width) {
  let used = 0;
  let kept = "";
  for (const character of text) {
    used += character.codePointAt(0) > 0x1100 ? 2 : 1;
    if (used > width) return `${kept}…`;
    kept += character;
  }
  return kept;
}
