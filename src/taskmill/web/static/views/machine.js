// Machine: pressure against its limits, disk and network, the room that budgets leave, and what is held back.

import { h } from "../dom.js";
import { AXES, bytes, duration, groupName, holdName, localized, percent, plural, priorityText } from "../format.js";
import { seen } from "../memory.js";
import { bar, card, empty, filterLink, taskLink, term } from "../parts/basics.js";
import { sparkline } from "../parts/charts.js";

const WINDOW_SECONDS = 2;
const USABLE = 0.8;

export const machine = {
  title: () => "Machine",
  reads: () => ({ found: ["machine"] }),

  draw(page) {
    const { machines, budgets, running, held } = page.data.found;
    return [
      h("h1", null, "Machine"),
      machines.length === 0 && card(null, null, empty("Nothing is measured",
        "No dispatching node reports the load of its machine. Give Scheduler(pressure=[…]) to hold low-priority work back under load, and resources=True to start tasks only while their bytes fit.")),
      machines.map((one, place) =>
        h("section", { key: one.node ?? place, class: "stack", "aria-label": `Machine of ${nodeName(page, one)}` },
        machines.length > 1 && h("h2", null, nodeName(page, one)),
        h("div", { class: "cards wide stretch" }, pressure(one), io(one, budgets, running)))),
      holds(page, held),
    ];
  },
};

const nodeName = (page, one) => page.overview.nodes.find((node) => node.id === one.node)?.name ?? "this node";

const toneOf = (value, limits) =>
  (limits.some(([, limit]) => value > limit) ? "danger" : limits.some(([, limit]) => value > limit * 0.85) ? "warn" : "accent");

/** Rows of sources with their pressure; the marks are the limits above which tasks wait. */
export function pressureRows(sources, limits) {
  const lowest = limits.length ? Math.min(...limits.map(([, limit]) => limit)) : null;
  return h("ul", { class: "lines-list" },
    Object.entries(sources).sort(([, one], [, other]) => other - one).map(([name, value]) => h("li", { key: name },
    h("div", { class: "line-head" }, h("span", { class: "cut" }, name), h("b", { class: "push" }, percent(value))),
    bar(value,
      { label: `pressure of ${name}`, tone: toneOf(value, limits), limit: lowest,
        limitText: lowest === null ? null : `limit ${percent(lowest)}` }),
    history(name))));
}

function history(name) {
  const values = seen.map((point) => point.pressure[name] ?? 0);
  return values.length > 2 && values.some(Boolean) && sparkline(values,
    { high: 1, label: `pressure of ${name} since this page was opened` });
}

function pressure(one) {
  const known = Object.keys(one.pressures).length > 0;
  const all = known ? Math.max(...Object.values(one.pressures)) : 0;
  return card("Pressure", { note: known ? "the highest source counts" : null },
    known ? pressureRows(one.pressures, one.limits)
      : h("p", { class: "soft small" }, "No source of pressure is configured, or no task waits for it to fall."),
    one.limits.length > 0 && h("ul", { class: "rules" },
      one.limits.map(([priority, limit]) => h("li", { key: priority, class: all > limit ? "on" : "" },
      all > limit
        ? h("b", null,
          `Held now: tasks of priority ${priorityText(priority)} or less urgent, because ${percent(all)} is above ${percent(limit)}.`)
        : `Above ${percent(limit)}, tasks of priority ${priorityText(priority)} or less urgent wait.`))));
}

function io(one, budgets, running) {
  const axes = Object.keys(AXES).filter((axis) => one.capacity?.[axis] || one.used?.[axis] || budgets[axis]);
  return card("Disk and network", { note: running ? `budgets of ${plural(running, "running task")}` : null },
    axes.length === 0
      ? h("p", { class: "soft small" },
        "No capacity is known yet and no running task has a budget. Tasks with io=IoBudget(…) start only while their bytes fit.")
      : h("ul", { class: "lines-list" },
        axes.map((axis) => axisRow(AXES[axis], one.capacity?.[axis] || null, one.used?.[axis] ?? null, budgets[axis] ?? 0))),
    axes.length > 0 && !one.used && h("p", { class: "small faint" }, "What is moved now is known to the dispatching process only."),
    one.cpu !== null && one.cpu !== undefined && h("p", { class: "small soft" }, `CPU: ${percent(one.cpu)}`),
    axes.length > 0 && h("p", { class: "small faint" },
      `Room: tasks run together while their budgets fit into ${percent(USABLE)} of what the machine moves in ${WINDOW_SECONDS} s.`));
}

function axisRow(name, capacity, used, budget) {
  const room = capacity === null ? null : capacity * WINDOW_SECONDS * USABLE;
  return h("li", { key: name, class: "axis" },
    h("div", { class: "line-head" }, h("span", null, name),
      h("span", { class: "small soft push" }, capacity === null ? "capacity not known" : `${bytes(capacity)}/s capacity`)),
    h("div", { class: "axis-line" }, h("span", { class: "small soft" }, "now"),
      bar(capacity && used !== null ? used / capacity : 0, { label: `${name}: used`, tone: "g-1" }),
      h("span", { class: "small number" }, used === null ? "–" : `${bytes(used)}/s`)),
    h("div", { class: "axis-line" }, h("span", { class: "small soft" }, "room"),
      bar(room ? budget / room : 0, { label: `${name}: room taken by budgets`, tone: room && budget > room ? "warn" : "accent" }),
      h("span", { class: "small number" }, room === null ? bytes(budget) : `${bytes(budget)} of ${bytes(room)}`)));
}

function holds(page, held) {
  return card("Held back", { note: "the next task of each group, and what it waits for" },
    held.length === 0
      ? h("p", { class: "soft small" }, "No task waits.")
      : h("ul", { class: "lines-list" }, held.map((one) => h("li", { key: one.group, class: "held" },
        h("div", { class: "line-head" }, taskLink(one.task_id), h("span", { class: "cut" }, one.type),
          filterLink(term("group", one.group), groupName(one.group), { class: "chip" }),
          h("span", { class: "small soft nowrap push" },
            `for ${duration(Math.max(one.waited, (page.now - Date.parse(one.since)) / 1000))}`)),
        h("ul", { class: "held-reasons small" }, one.explanation.holds.length
          ? one.explanation.holds.map((hold) =>
            h("li", { key: hold.reason }, h("b", null, `${holdName(hold.reason)}:`), " ", localized(hold.detail, page.now)))
          : h("li", null, localized(one.explanation.summary, page.now)))))));
}
