// Groups: weights, caps, minimums, shares, and what each group uses, lends and borrows; changes with a preview.

import { pauseEverything, pauseGroup, resumeGroup } from "../actions.js";
import { h } from "../dom.js";
import { groupName, number, plural, priorityText, rate as rateText, short } from "../format.js";
import { seen } from "../memory.js";
import { button, card, empty, filterLink, term, when } from "../parts/basics.js";
import { legend, stacked, steady, tones } from "../parts/charts.js";
import { change } from "../router.js";
import { editGroup } from "./group_settings.js";

const MOST_LAYERS = 7;

export const groups = {
  title: () => "Groups",
  reads: () => ({ list: ["groups", { limit: 200 }] }),

  draw(page) {
    const { list } = page.data;
    const found = list.groups;
    if (!found.length)
      return [h("h1", null, "Groups"), card(null, null, empty("No group has tasks yet",
        "A group is a label that tasks share, such as a bucket or a tenant. Give it with group=… when you submit or define a task. Groups share the slots."))];
    const own = ownShares(found, list.max_concurrency);
    const others = list.rates.filter((rate) => rate.kind !== "group");
    return [
      h("div", { class: "head" }, h("h1", null, "Groups"),
        h("span", { class: "soft" }, list.is_shared
          ? `${plural(list.max_concurrency, "slot")}, shared by weight`
          : `${plural(list.max_concurrency, "slot")}; no group has a weight or a minimum, so the most urgent task of all groups starts first`),
        page.canAct && !page.overview.paused.scheduler && h("span", { class: "actions" },
          button("Pause everything", { onclick: () => pauseEverything(page) }, "pause"))),
      picture(page, found, list),
      card(null, { class: "flush", "aria-label": "All groups" },
        h("div", { class: "table-frame" }, h("table", { class: "table stacking groups-table" },
        h("thead", null, h("tr", null,
          h("th", { scope: "col" }, "Group"), h("th", { scope: "col" }, "Slots"),
          h("th", { class: "number", scope: "col" }, "Share"), h("th", { class: "number", scope: "col" }, "Running"),
            h("th", { class: "number", scope: "col" }, "Waiting"),
          h("th", { class: "number", scope: "col" }, "Weight"), h("th", { class: "number", scope: "col" }, "Cap"),
            h("th", { class: "number", scope: "col" }, "Minimum"),
          h("th", { scope: "col" }, "Rate"), h("th", { scope: "col" }, "Next"),
            h("th", { scope: "col" }, h("span", { class: "hidden-text" }, "Actions")))),
        h("tbody", null, found.map((group) => row(page, group, own.get(group.name), list))))),
      h("footer", { class: "pages" },
        list.is_shared && legend(["used", "borrowed", "free", "lent"], ["accent", "g-2", "pale", "lent"]),
        list.total > found.length && h("span", { class: "small soft" },
          `${number(found.length)} of ${number(list.total)} groups, the busiest first`))),
      others.length > 0 && card("Rates of task types", null,
        h("ul", { class: "lines-list" }, others.map((one) => h("li", { key: one.name, class: "line-head" },
        h("span", { class: "cut" }, one.name),
          h("span", { class: "soft small push" }, `${rateText(one.rate)}; ${plural(one.permits, "permit")} left`))))),
    ];
  },
};

/** Return the slots that each group would have by its weight alone, if all groups had enough tasks. */
function ownShares(found, slots) {
  const counted = found.filter((group) => group.name !== "" || group.running || group.pending);
  const weights = counted.reduce((sum, group) => sum + group.weight, 0) || 1;
  const minimums = counted.reduce((sum, group) => sum + group.min_slots, 0);
  const rest = Math.max(0, slots - minimums);
  return new Map(counted.map((group) =>
    [group.name, Math.min(group.cap ?? slots, group.min_slots + (rest * group.weight) / weights)]));
}

function row(page, group, own = 0, list) {
  const bucket = list.rates.find((one) => one.kind === "group" && one.name === group.name);
  return h("tr", { key: group.name },
    h("td", { class: "group-name" },
      h("div", { class: "what" }, filterLink(term("group", group.name), groupName(group.name), { class: "cut", title: group.name }),
      group.paused && h("span", { class: "small warn-text" }, "paused",
        group.paused_until && ["; ends ", when(group.paused_until, page.now)]))),
    h("td", { class: "slots-cell" }, slotsBar(group, own, list)),
    h("td", { class: "number", "data-label": "share" }, list.is_shared ? number(group.slots) : "–"),
    h("td", { class: "number", "data-label": "running" }, number(group.running)),
    h("td", { class: "number", "data-label": "waiting", title: number(group.pending) }, short(group.pending)),
    h("td", { class: "number", "data-label": "weight" }, group.weight),
    h("td", { class: "number", "data-label": "cap" }, group.cap ?? "–"),
    h("td", { class: "number", "data-label": "minimum" }, group.min_slots || "–"),
    h("td", { class: "small nowrap", "data-label": "rate" },
      group.rate ? [rateText(group.rate), bucket && h("span", { class: "faint" }, `, ${number(bucket.permits)} left`)]
        : h("span", { class: "faint" }, "–")),
    h("td", { class: "small nowrap", "data-label": "next" },
      group.next_priority === null ? h("span", { class: "faint" }, "–") : priorityText(group.next_priority)),
    h("td", { class: "actions-cell" }, h("div", { class: "row-actions" },
      page.canAct && (group.paused
        ? button("Resume", { title: "Resume", class: "sign-only", onclick: () => resumeGroup(page, group.name),
          "aria-label": `Resume ${groupName(group.name)}` }, "play")
        : button("Pause",
          { title: "Pause", class: "sign-only", onclick: () => pauseGroup(page, group.name),
            "aria-label": `Pause ${groupName(group.name)}` },
          "pause")),
      button(page.canAct ? "Change" : "Try",
        { onclick: () => editGroup(page, group, list),
          "aria-label": `${page.canAct ? "Change" : "Try settings of"} ${groupName(group.name)}` }))));
}

/** Used, borrowed, free and lent slots of a group, on the scale of all slots. */
function slotsBar(group, own, { max_concurrency: slots, is_shared: isShared }) {
  const used = Math.min(group.running, isShared ? Math.max(own, group.min_slots) : slots);
  const borrowed = isShared ? Math.max(0, group.running - used) : 0;
  const free = isShared ? Math.max(0, group.slots - group.running) : 0;
  const lent = isShared ? Math.max(0, own - Math.max(group.slots, group.running)) : 0;
  const part = (kind, amount, text) =>
    amount > 0.05 && h("i",
      { key: kind, "data-tone": kind, style: { "--part": `${(100 * amount) / Math.max(slots, 1)}%` },
        title: `${Math.round(amount * 10) / 10} ${text}` });
  const words = [
    `${group.running} used`, borrowed >= 1 && `${Math.round(borrowed)} of them borrowed`,
    free >= 1 && `${free} free`, lent >= 1 && `${Math.round(lent)} lent`,
  ].filter(Boolean).join(", ");
  return h("div", { class: "slots-bar", role: "img", "aria-label": words, title: words },
    part("accent", used, "used"), part("g-2", borrowed, "borrowed from other groups"), part("pale", free, "free"),
      part("lent", lent, "lent to other groups"));
}

function picture(page, found, list) {
  const kind = page.route.get("picture") === "share" ? "slots" : "running";
  const names = steady(found.slice(0, MOST_LAYERS).map((group) => group.name));
  const rest = found.slice(MOST_LAYERS).map((group) => group.name);
  const amount = (point, name) => point.groups[name]?.[kind] ?? 0;
  const points = seen.map((point) =>
    ({ at: point.at,
      values: [...names.map((name) => amount(point, name)),
        ...(rest.length ? [rest.reduce((sum, name) => sum + amount(point, name), 0)] : [])] }));
  const colours = [...tones(names), "quiet"];
  const labels = [...names.map(groupName), ...(rest.length ? [`${number(rest.length)} others`] : [])];
  const choice = (name, text) =>
    h("button", { type: "button", "aria-pressed": String((page.route.get("picture") || "used") === name),
      onclick: () => change({ picture: name === "used" ? "" : name }, { replace: true }) }, text);
  return card("Slots over time",
    { aside: list.is_shared && h("div", { class: "segments", role: "group", "aria-label": "What the picture shows" },
      choice("used", "Used"), choice("share", "Shares")) },
    stacked(points,
      { names: labels, tones: colours, label: "Slots of each group since this page was opened", line: list.max_concurrency,
        now: page.now }),
    legend(labels, colours, points.length ? points.at(-1).values : null));
}
