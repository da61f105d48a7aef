// Overview: what is in the queue, what runs, how fast it ends, what is wrong.

import { resumeDomain, resumeEverything, resumeGroup } from "../actions.js";
import { h } from "../dom.js";
import { firstLine, groupName, number, percent, plural, short, subject, time, words } from "../format.js";
import { badge, bar, button, card, empty, figure, filterLink, moment, seconds, taskLink, term, when } from "../parts/basics.js";
import { columns, legend, lines } from "../parts/charts.js";
import { stateIcon } from "../parts/icons.js";
import { runningRow } from "../parts/task_rows.js";
import { change, href } from "../router.js";
import { pressureRows } from "./machine.js";

const ACTIVE = ["running", "pending", "scheduled", "blocked", "waiting", "paused"];
const BAD = ["failed", "dead_letter", "expired", "dependency_failed"];
const SHOWN_RUNNING = 12;
const SHOWN_GROUPS = 10;

export const overview = {
  title: () => "Overview",
  reads: () => ({}),
  draw(page) {
    const { overview: now_ } = page;
    const total = Object.values(now_.counts).reduce((sum, count) => sum + count, 0);
    return [
      h("h1", { class: "hidden-text" }, "Overview"),
      counts(now_),
      total === 0 && card(null, null, empty("The queue is empty",
        "No task was submitted to this store yet. Submit one from your program: await transfer.submit(…). It appears here at once.")),
      h("div", { class: "cards wide stretch" }, ended(page), times(page)),
      h("div", { class: "overview-main" },
        h("div", { class: "stack" }, running(page), recentErrors(page)),
        h("div", { class: "stack" }, groups(page), pressure(page), nodes(page), paused(page))),
    ];
  },
};

function counts(now_) {
  return h("section", { class: "card states", "aria-label": "Active tasks by state" }, ACTIVE.map((state) =>
    h("a", { key: state, class: "state-tile", "data-state": state, href: href("tasks", { filter: term("state", state) }) },
      h("span", { class: "state-name" }, stateIcon(state), words(state)),
      h("b", { title: number(now_.counts[state] ?? 0) }, short(now_.counts[state] ?? 0)))));
}

const period = (page) => (page.route.get("period") === "day" ? "day" : "hour");

function periodSwitch(page) {
  const choice = (name, text) => h("button", { type: "button", "aria-pressed": String(period(page) === name),
    onclick: () => change({ period: name === "hour" ? "" : name }, { replace: true }) }, text);
  return h("div", { class: "segments", role: "group", "aria-label": "Period" }, choice("hour", "Hour"), choice("day", "Day"));
}

const sum = (ended, names) => names.reduce((all, name) => all + (ended[name] ?? 0), 0);

function parts(ended) {
  const [good, bad] = [ended.completed ?? 0, sum(ended, BAD)];
  return [["good", good], ["danger", bad], ["quiet", Object.values(ended).reduce((all, count) => all + count, 0) - good - bad]];
}

const FEWEST_POINTS = 12;

/** Return the chosen period; while history is young, in finer steps. */
const activityOf = (page) => (period(page) === "hour" && page.overview.recent) || page.overview[period(page)];

/** Return the steps from the first in which a task ended: a young store fills its picture, too. */
function pointsOf(activity) {
  const first = activity.points.findIndex((point) => Object.keys(point.ended).length > 0);
  return activity.points.slice(Math.max(0, Math.min(first < 0 ? 0 : first - 1, activity.points.length - FEWEST_POINTS)));
}

const axis = (page, activity) =>
  h("div", { class: "chart-times tiny faint" }, moment(pointsOf(activity)[0]?.at, page.now), moment(activity.until, page.now));

function ended(page) {
  const activity = activityOf(page);
  const [[, good], [, bad], [, rest]] = parts(activity.ended);
  const all = good + bad + rest;
  const first = page.overview.recent && activity.points.find((point) => Object.keys(point.ended).length > 0);
  const minutes = (Date.parse(activity.until) - Date.parse(first ? first.at : activity.since)) / 60000;
  return card("Ended tasks", { aside: periodSwitch(page) },
    h("div", { class: "figures" },
      figure(short(all), `in the last ${period(page)}`),
      figure(short(Math.round((all / minutes) * 10) / 10), "per minute"),
      figure(all ? percent(bad / all, bad && bad / all < 0.1 ? 1 : 0) : "–", "went wrong", { class: bad ? "bad" : "" })),
    columns(pointsOf(activity).map((point) => ({
      parts: parts(point.ended),
      title: `${time(point.at, page.now)}: ${Object.entries(point.ended).map(([name, count]) => `${number(count)} ${words(name)}`).join(", ") || "none"}`,
    })), { label: `Ended tasks over the last ${period(page)}` }),
    axis(page, activity),
    legend(["completed", "failed, expired", "cancelled, superseded"], ["good", "danger", "quiet"],
      [short(good), short(bad), short(rest)]));
}

function times(page) {
  const activity = activityOf(page);
  const row = (title, name) => h("div", { class: "times-row" },
    h("div", { class: "figures" }, figure(seconds(activity[`${name}_p50`]), `median ${title}`),
      figure(seconds(activity[`${name}_p95`]), "95 % stay below")),
    lines([pointsOf(activity).map((point) => point[`${name}_p95`]), pointsOf(activity).map((point) => point[`${name}_p50`])],
      { label: `${title} over the last ${period(page)}`, tones: ["quiet", "accent"] }),
    axis(page, activity));
  return card("Times",
    { note: activity.sampled ? `of ${plural(activity.sampled, "task")} in the last ${period(page)}`
      : `no task ended in the last ${period(page)}` },
    h("div", { class: "times" }, row("wait", "wait"), row("run", "run")),
    legend(["median", "95 % stay below"], ["accent", "quiet"]));
}

function running(page) {
  const { running: tasks, counts: counted, max_concurrency: slots } = page.overview;
  const count = counted.running ?? 0;
  return card("Running", { class: "running-card", note: `${number(count)} of ${plural(slots, "slot")}`,
    aside: count > SHOWN_RUNNING && filterLink("state:running", `all ${number(count)}`) },
  tasks.length
    ? h("ul", { class: "running-list" }, tasks.slice(0, SHOWN_RUNNING).map((task) => runningRow(task, page.now)))
    : empty("No task runs",
      (counted.pending ?? 0) > 0 ? ["Tasks wait: ", filterLink("state:pending", "open one"), " to see why."]
        : "There is nothing to do at present."));
}

function groups(page) {
  const { groups: found, max_concurrency: slots, is_shared: isShared } = page.overview;
  const busy = found.filter((group) => group.running || group.pending || group.paused);
  return card("Groups", { aside: h("a", { href: href("groups") }, "all groups") },
    busy.length === 0
      ? h("p", { class: "soft small" }, "No group has tasks.")
      : h("ul", { class: "lines-list" }, busy.slice(0, SHOWN_GROUPS).map((group) => h("li", { key: group.name },
        h("div", { class: "line-head" }, filterLink(term("group", group.name), groupName(group.name), { class: "cut" }),
          group.paused && h("span", { class: "chip warn" }, "paused"),
          h("span", { class: "small soft nowrap push" }, `${number(group.running)} running, ${short(group.pending)} waiting`)),
        bar(slots ? group.running / slots : 0,
          { label: `slots used by ${groupName(group.name)}`, limit: isShared && slots ? group.slots / slots : null,
            limitText: `share: ${plural(group.slots, "slot")}` })))));
}

function pressure(page) {
  const sources = page.overview.pressure;
  return card("Pressure", { aside: h("a", { href: href("machine") }, "machine") },
    Object.keys(sources).length ? pressureRows(sources, [])
      : h("p", { class: "soft small" }, "No task waits for the machine, or no source of pressure is configured."));
}

function nodes(page) {
  const found = page.overview.nodes;
  return card("Nodes", { aside: h("a", { href: href("nodes") }, "all nodes") },
    found.length === 0
      ? h("p", { class: "soft small" }, "No scheduler dispatches.")
      : h("ul", { class: "lines-list" }, found.slice(0, 6).map((node) => h("li", { key: node.name, class: "line-head" },
        h("i", { class: `lamp ${node.is_alive ? "good" : "bad"}` }), h("span", { class: "cut", title: node.name }, node.name),
        h("span", { class: "small soft nowrap push" },
          node.is_alive ? `${number(node.running.length)} running` : ["died, seen ", when(node.seen_at, page.now)])))));
}

function paused(page) {
  const { scheduler, groups: names, domains } = page.overview.paused;
  const things = [
    scheduler && ["the scheduler", () => resumeEverything(page)],
    ...domains.map((name) => [`domain ${name}`, () => resumeDomain(page, name)]),
    ...names.map((name) => [`group ${groupName(name)}`, () => resumeGroup(page, name)]),
  ].filter(Boolean);
  return things.length > 0 && card("Paused", null,
    h("ul", { class: "lines-list" }, things.map(([thing, resume]) => h("li", { key: thing, class: "line-head" },
    h("span", { class: "cut", title: thing }, thing),
    page.canAct && button("Resume", { class: "push", onclick: resume, "aria-label": `Resume ${thing}` }, "play")))));
}

function recentErrors(page) {
  const { count, latest } = page.overview.errors;
  return card("Failed in the last hour",
    { note: count ? plural(count, "task") : null, aside: h("a", { href: href("errors") }, "all errors") },
    latest.length === 0
      ? h("p", { class: "soft small" }, "None.")
      : h("ul", { class: "lines-list" }, latest.slice(0, 6).map((task) => h("li", { key: task.id, class: "error-line" },
        h("div", { class: "line-head" }, badge(task.state), taskLink(task.id, subject(task) || task.type),
          h("span", { class: "small faint nowrap push" }, when(task.ended_at, page.now))),
        h("p", { class: "small soft cut", title: task.error }, firstLine(task.error ?? task.last_error))))));
}
