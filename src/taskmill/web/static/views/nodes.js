// Nodes: the schedulers that dispatch, whether they live, and what runs on each.

import { h } from "../dom.js";
import { number, plural, subject } from "../format.js";
import { bar, card, empty, facts, taskLink, when } from "../parts/basics.js";

const SHOWN = 8;

export const nodes = {
  title: () => "Nodes",
  reads: () => ({ found: ["nodes"] }),

  draw(page) {
    const { nodes: list, running } = page.data.found;
    const byId = new Map(running.map((task) => [task.id, task]));
    return [
      h("div", { class: "head" }, h("h1", null, "Nodes"),
        h("span", { class: "soft" }, list.length > 0 && plural(list.length, "node"))),
      list.length
        ? h("div", { class: "cards wide" }, list.map((node) => one(page, node, byId)))
        : card(null, null,
          empty("No scheduler dispatches",
            "Start your program, or “taskmill run MODULE:SCHEDULER”. A file has one dispatcher; a PostgreSQL database may have many.")),
    ];
  },
};

function one(page, node, byId) {
  const { running } = node;
  return card(node.name, { key: node.id ?? node.name, class: node.is_alive ? "" : "dead",
    aside: node.is_alive ? h("span", { class: "chip good" }, node.is_here ? "this process" : "alive")
      : h("span", { class: "chip bad" }, "no heartbeat") },
  h("div", { class: "stack tight" },
    !node.is_alive && h("p", { class: "small" }, "It sent no heartbeat for a whole lease. Its tasks return to the queue."),
    facts([["Number", node.id], ["Dispatches since", when(node.since, page.now)], ["Last heartbeat", when(node.seen_at, page.now)],
      ["Slots used", node.slots ? `${number(running.length)} of ${number(node.slots)}` : number(running.length)]]),
    node.slots > 0 && bar(running.length / node.slots, { label: "slots used" }),
    h("ul", { class: "lines-list" },
      running.slice(0,
        SHOWN).map((id) =>
          h("li", { key: id, class: "line-head" }, taskLink(id),
            h("span", { class: "cut soft" }, byId.has(id) ? subject(byId.get(id)) || byId.get(id).type : "")))),
    running.length > SHOWN && h("p", { class: "small faint" }, `and ${number(running.length - SHOWN)} more`)));
}
