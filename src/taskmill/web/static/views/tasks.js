// Tasks: filters with completion, pages, selection, and actions on the selected tasks or on all that match.

import { actOnMany } from "../actions.js";
import { get } from "../api.js";
import { h } from "../dom.js";
import { number, plural } from "../format.js";
import { button, card, empty, filterLink, notice } from "../parts/basics.js";
import { FilterBox, STATES, asFilters, parse } from "../parts/filter_box.js";
import { taskRow } from "../parts/task_rows.js";
import { change, go, href } from "../router.js";

const COLUMNS = [["Task", "number c-id"], ["State", "c-state"], ["What", "c-what"], ["Group", "c-group"], ["Priority", "c-priority"],
  ["Detail", ""], ["Changed", "number c-time"]];
const SIZES = [50, 100, 200];

let box = null;
let cursor = null;
let pagePage = null;
const selected = new Set();

function filterBox(page) {
  box ??= new FilterBox({
    apply: (text) => {
      if (text === pagePage.route.get("filter")) return;
      selected.clear();
      change({ filter: text, trail: "", focus: "" });
    },
    suggest: async (field, prefix) =>
      (await get("suggest", { field, prefix, limit: 12 })).values.map((value) =>
        ({ value, open: field === "tag" && !value.includes("=") })),
    redraw: page.redraw,
  });
  box.follow(page.route.get("filter"));
  return box;
}

const trail = (route) => route.get("trail").split(".").filter(Boolean);
const size = (route) => (SIZES.includes(Number(route.get("size"))) ? Number(route.get("size")) : SIZES[0]);
const isOldest = (route) => route.get("sort") === "oldest";

/** Return the filters of the address for the API, or the sentence that says what is wrong with them. */
function filters(route) {
  try {
    return { filters: asFilters(parse(route.get("filter"))) };
  } catch (error) {
    return { wrong: error.message };
  }
}

export const tasks = {
  title: () => "Tasks",

  reads(route) {
    const { filters: found, wrong } = filters(route);
    if (wrong) return {};
    const place = trail(route).at(-1);
    return { list: ["tasks",
      { ...found, sort: isOldest(route) ? "oldest" : null, limit: size(route), [isOldest(route) ? "after" : "before"]: place }] };
  },

  draw(page) {
    pagePage = page;
    const { wrong } = filters(page.route);
    const list = page.data.list?.tasks ?? [];
    if (cursor !== null && !list.some((task) => task.id === cursor)) cursor = null;
    if (page.route.get("focus")) {
      change({ focus: "" }, { replace: true });
      queueMicrotask(() => box.focus());
    }
    return [
      h("div", { class: "head tools" }, h("h1", { class: "hide-small" }, "Tasks"), filterBox(page).view(), sorting(page)),
      quick(page),
      wrong ? notice("bad", "Filter.", wrong) : table(page, list),
    ];
  },

  leave() {
    selected.clear();
    cursor = null;
  },

  keys: {
    "/": () => box.focus(),
    j: (page) => move(page, 1),
    k: (page) => move(page, -1),
    x: (page) => cursor !== null && page.canAct && toggle(page, cursor),
    Enter: () => cursor !== null && go(href("task", {}, cursor)),
    r: (page) => page.canAct && many(page, "retry"),
    c: (page) => page.canAct && many(page, "cancel"),
  },
};

function many(page, action) {
  const ids = selected.size ? [...selected] : cursor === null ? [] : [cursor];
  if (ids.length) actOnMany(page, action, { ids, done: () => selected.clear() });
}

function move(page, step) {
  const ids = (page.data.list?.tasks ?? []).map((task) => task.id);
  if (!ids.length) return;
  const place = cursor === null ? (step > 0 ? 0 : ids.length - 1)
    : Math.max(0, Math.min(ids.length - 1, ids.indexOf(cursor) + step));
  cursor = ids[place];
  page.redraw();
  document.getElementById(`task-${cursor}`)?.scrollIntoView({ block: "nearest" });
}

function toggle(page, id) {
  if (!selected.delete(id)) selected.add(id);
  page.redraw();
}

function sorting(page) {
  const oldest = isOldest(page.route);
  const choose = (name) => () => change({ sort: name === "newest" ? "" : name, trail: "" });
  return h("div", { class: "segments", role: "group", "aria-label": "Order" },
    h("button", { type: "button", "aria-pressed": String(!oldest), onclick: choose("newest") }, "Newest"),
    h("button", { type: "button", "aria-pressed": String(oldest), onclick: choose("oldest") }, "Oldest"));
}

/** One click for each state, with its number. The state in the filter is exchanged, the rest stays. */
function quick(page) {
  const filter = page.route.get("filter");
  const rest = filter.replace(/(^|\s)state:\S*/g, "").trim();
  const present = filter.match(/(?:^|\s)state:(\S*)/)?.[1] ?? "";
  const choice = (state, text, count) => filterLink(`${state ? `state:${state} ` : ""}${rest}`.trim(),
    [text, count !== undefined && h("span", { class: "faint" }, number(count))],
    { key: state, class: "quick", "aria-current": present === state ? "true" : null, "data-state": state || null });
  const { counts } = page.overview;
  const sum = (states) => states.reduce((all, state) => all + (counts[state] ?? 0), 0);
  return h("nav", { class: "quicks", "aria-label": "States" },
    choice("", "all"), choice("active", "active", sum(STATES.slice(0, 6))), choice("ended", "ended", sum(STATES.slice(6))),
    STATES.filter((state) => counts[state] || state === present).map((state) =>
      choice(state, state.replaceAll("_", " "), counts[state] ?? 0)));
}

function table(page, list) {
  const shown = list.map((task) => task.id);
  const all = shown.length > 0 && shown.every((id) => selected.has(id));
  const { canAct } = page;
  if (!list.length && page.data.list.is_complete) return card(null, null, nothing(page));
  return card(null, { class: "flush", "aria-label": "Tasks" },
    canAct && bulk(page),
    h("div", { class: "table-frame" }, h("table", { class: "table tasks-table" },
      h("thead", null, h("tr", null,
        canAct && h("th", { class: "tick", scope: "col" },
          h("input",
            { type: "checkbox", checked: all, indeterminate: !all && shown.some((id) => selected.has(id)),
              "aria-label": "Select all tasks on this page",
          onchange: () => { for (const id of shown) if (all) selected.delete(id); else selected.add(id); page.redraw(); } })),
        COLUMNS.map(([name, kind]) => h("th", { key: name, class: kind, scope: "col" }, name)))),
      h("tbody", null,
        list.map((task) =>
          taskRow(task, page.now,
            { selected: selected.has(task.id), isAt: task.id === cursor, canAct, toggle: () => toggle(page, task.id) }))))),
    pages(page, list));
}

function nothing(page) {
  const filter = page.route.get("filter");
  if (trail(page.route).length) return empty("No more tasks", "This was the last page.",
    button("First page", { onclick: () => change({ trail: "" }) }));
  if (filter) return empty("No task matches", "Remove a word of the filter, or look at all tasks.",
    h("a", { class: "button", href: href("tasks") }, "All tasks"));
  return empty("There are no tasks", "Submit one from your program: await transfer.submit(…). It appears here at once.");
}

function bulk(page) {
  const filter = page.route.get("filter");
  const count = selected.size;
  const act = (action, text, kind) => button(text, { kind, disabled: !count, onclick: () => many(page, action) });
  const whole = (action, text) =>
    button(text,
      { onclick: () =>
        actOnMany(page, action, { filters: bulkFilters(page.route), about: filter, done: () => selected.clear() }) });
  return h("div", { class: "bulk", role: "group", "aria-label": "Actions" },
    h("span", { class: "small soft bulk-selected" }, count ? `${number(count)} selected` : "None selected"),
    act("retry", "Retry"), act("cancel", "Cancel"), act("priority", "Priority"),
    filter && h("span", { class: "bulk-all" }, h("span", { class: "small soft" }, "All that match:"), whole("retry", "Retry all"),
      whole("cancel", "Cancel all"), whole("priority", "Priority of all")));
}

/** Return the filters in the form of a request body: tags are a mapping there. */
function bulkFilters(route) {
  const { tag, parent, ...rest } = filters(route).filters;
  const tags = Object.fromEntries((tag ?? []).map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
  return { ...rest, ...(tag ? { tags } : {}), ...(parent ? { parent: Number(parent) } : {}) };
}

function pages(page, list) {
  const { next, is_complete: isComplete, searched } = page.data.list;
  const past = trail(page.route);
  return h("footer", { class: "pages" },
    h("span", { class: "small soft" }, isComplete
      ? `${plural(list.length, "task")} on page ${past.length + 1}`
      : `${plural(list.length, "task")} found among ${number(searched)}; continue for more`),
    h("label", { class: "small soft row" }, "Rows",
      h("select",
        { class: "input small-select",
          onchange: (event) => change({ size: event.target.value === "50" ? "" : event.target.value, trail: "" }) },
      SIZES.map((count) => h("option", { key: count, value: String(count), selected: count === size(page.route) }, count)))),
    button("Back", { disabled: !past.length || page.isStale, onclick: () => change({ trail: past.slice(0, -1).join(".") }) }),
    button(isComplete ? "Next" : "Continue",
      { disabled: next === null || page.isStale, onclick: () => change({ trail: [...past, next].join(".") }) }));
}
