// One task: its life as a band, why it waits and when it starts, its attempts, its ties to other tasks.

import { actOnOne } from "../actions.js";
import { h } from "../dom.js";
import { ago, compact, duration, groupName, holdName, io, localized, number, plural, priorityText, sentence, subject,
  words } from "../format.js";
import { badge, bar, button, card, code, copyButton, facts, figure, filterLink, moment, priority, progressText, taskLink, term,
  when } from "../parts/basics.js";
import { steps } from "../parts/charts.js";
import { graph, tree } from "../parts/graph.js";
import { icon } from "../parts/icons.js";
import { timeline } from "../parts/timeline.js";
import { change, href } from "../router.js";
import { momentsOf, spansOf } from "./task_spans.js";
import { certainty, remedies, withoutRemedies } from "./task_start.js";

const HOLD_ICONS = {
  not_due: "clock", dependency: "chain", replaced_task: "swap", children: "family", siblings: "family", stopping: "cross",
  scheduler_paused: "pause", domain_paused: "pause", group_paused: "pause", series_paused: "pause", preempted: "up",
  no_dispatcher: "nodes", no_handler: "nodes", group_cap: "groups", domain_cap: "groups", group_rate: "machine",
  type_rate: "machine", pressure: "machine", io: "machine", slots: "groups", share: "groups", ahead: "tasks",
};
/** A deadline that is closer than this is marked. */
const SHORT_MS = 60_000;
const ACTIONS = { cancel: ["Cancel", "cross"], retry: ["Retry", "again"], priority: ["Priority", "up"] };

export const task = {
  title: (page) => `Task ${page.route.id}`,
  reads: (route) => ({ found: [`tasks/${encodeURIComponent(route.id)}`] }),

  draw(page) {
    const { found } = page.data;
    const isActive = !found.task.ended_at;
    return [
      head(page, found),
      isActive ? why(page, found) : outcome(page, found),
      lifeOf(page, found),
      h("div", { class: "task-columns" },
        h("div", { class: "stack" }, attempts(page, found), values(found), ties(found)),
        h("div", { class: "stack" }, about(page, found), isActive && priorities(page, found), sameKey(page, found),
          equivalents(page, found))),
    ];
  },

  keys: {
    r: (page) => can(page, "retry") && actOnOne(page, page.data.found.task, "retry"),
    c: (page) => can(page, "cancel") && actOnOne(page, page.data.found.task, "cancel"),
  },
};

const can = (page, action) => {
  const one = page.data.found?.task;
  if (!one || !page.canAct) return false;
  return action === "retry" ? one.state === "dead_letter" : !one.ended_at;
};

function head(page, found) {
  const one = found.task;
  const name = subject(one);
  return h("header", { class: "task-head" },
    h("div", { class: "row small" }, h("a", { href: href("tasks"), class: "row" }, icon("back"), "Tasks"),
      one.parent_id && h("span", { class: "soft" }, "child of ", taskLink(one.parent_id))),
    h("div", { class: "head" },
      h("h1", { class: "task-name" }, name || one.type),
      badge(one.state),
      h("span", { class: "actions" },
        Object.entries(ACTIONS).filter(([action]) => can(page, action)).map(([action, [text, sign]]) =>
        button(text, { key: action, onclick: () => actOnOne(page, one, action) }, sign)))),
    h("p", { class: "soft" }, `#${one.id} · `, filterLink(term("type", one.type), one.type), " · ",
      filterLink(term("group", one.group), groupName(one.group))));
}

/** Return the summary without what the heading says already: "Task 7 (sync::upload) is pending: …". */
const told = (summary, now) =>
  localized(sentence(summary.replace(/^Task \d+ \([^)]*\) is \w+: /, "").replace(/^Task \d+ \([^)]*\) /, "It ")), now);

/** The answer that no list gives: why it waits, with numbers, and when it starts. */
function why(page, found) {
  const { task: one, explanation } = found;
  const { holds } = explanation;
  const isRunning = one.state === "running";
  return h("section", { class: "card why", "data-state": one.state, "aria-label": isRunning ? "Progress" : "Why it waits" },
    h("div", { class: "why-text" },
      h("h2", null, isRunning ? "It runs" : "Why it waits"),
      h("p", { class: "why-summary" }, told(withoutRemedies(explanation), page.now)),
      holds.length > 0 && h("ul", { class: "holds" }, holds.map((hold) =>
        h("li", { key: hold.reason }, icon(HOLD_ICONS[hold.reason] ?? "dot"),
          h("div", null, h("b", null, holdName(hold.reason)),
            h("p", { class: "soft" }, sentence(localized(hold.detail, page.now))))))),
      !isRunning && remedies(page, found),
      isRunning && h("div", { class: "progress-cell wide" }, bar(one.progress?.fraction ?? null, { label: "progress" }),
        h("span", { class: "soft" }, progressText(one.progress) || "It reports no progress."))),
    h("div", { class: "why-figures" }, isRunning ? runningFigures(one, page.now) : waitingFigures(one, explanation, page.now)));
}

function runningFigures(one, now) {
  const seconds = one.started_at ? Math.max(0, now - Date.parse(one.started_at)) / 1000 : null;
  return [
    figure(seconds === null ? "–" : duration(seconds), "since its start"),
    one.progress?.eta ? figure(duration(one.progress.eta), "left, at this rate") : null,
  ];
}

function waitingFigures(one, explanation, now) {
  const { ahead, ahead_is_exact: isExact, estimated_start: start, expires_at: expires, effective_priority: effective } = explanation;
  const unknown = explanation.misses_deadline
    ? figure("too late", "expected start: it expires before", { class: "bad" })
    : figure("not known", "expected start", { class: "unknown" });
  const until = (at) => (Date.parse(at) <= now ? "now" : ago(at, now));
  const isUrgent = expires && Date.parse(expires) - now < SHORT_MS;
  return [
    start
      ? figure(until(start), ["expected start, ", moment(start, now), h("br"), certainty(explanation, now)])
      : unknown,
    one.state === "pending" && figure(`${number(ahead)}${isExact ? "" : "+"}`, ahead === 1 ? "task ahead" : "tasks ahead"),
    expires && figure(until(expires), ["deadline to start, ", moment(expires, now)], { class: isUrgent ? "bad" : "" }),
    figure(effective, `effective priority${one.priority === effective ? "" : `, from ${one.priority}`}`),
  ];
}

function outcome(page, { task: one, explanation }) {
  return h("section", { class: "card why", "data-state": one.state, "aria-label": "How it ended" },
    h("div", { class: "why-text" },
      h("h2", null, "How it ended"), h("p", { class: "why-summary" }, told(explanation.summary, page.now))),
    h("div", { class: "why-figures" },
      one.duration !== null && figure(duration(one.duration), "last attempt"),
      figure(number(one.attempt), one.attempt === 1 ? "attempt" : "attempts"),
      figure(ago(one.ended_at, page.now), ["ended, ", moment(one.ended_at, page.now)])));
}

function lifeOf(page, found) {
  const { spans, marks } = spansOf(found, page.now);
  const moments = momentsOf(found);
  return card("Life of the task", null,
    timeline(spans, marks, page.now),
    h("ol", { class: "moments" },
      moments.map((one, place) =>
        h("li", { key: `${one.kind}${place}`, "data-kind": one.kind, class: Date.parse(one.at) > page.now ? "ahead" : "" },
      moment(one.at, page.now), h("span", null, sentence(one.text)),
        h("span", { class: "faint small push" }, ago(one.at, page.now))))));
}

function attempts(page, found) {
  const failed = found.attempts;
  return failed.length > 0 && card("Failed attempts", { note: plural(failed.length, "attempt") },
    h("div", { class: "stack tight" }, failed.map((one, place) =>
    h("details", { key: one.attempt, class: "attempt", open: place === 0 },
      h("summary", null, h("b", null, `Attempt ${one.attempt}`), h("span", { class: "chip bad" }, words(one.kind)),
        h("span", { class: "cut error-text" }, one.error.split("\n", 1)[0]),
        h("span", { class: "small faint nowrap push" }, one.duration !== null && `${duration(one.duration)} · `,
          one.at && when(one.at, page.now))),
      one.node && h("p", { class: "small soft" }, `on ${one.node}`),
      h("div", { class: "block-frame" }, h("pre", { class: "block", tabindex: "0" }, one.traceback ?? one.error),
        copyButton(one.traceback ?? one.error, "Copy the traceback"))))));
}

const json = (value) => JSON.stringify(value, null, 2);

function values(found) {
  const { task: one } = found;
  const block = (title, value) =>
    h("div", { key: title, class: "value" }, h("h3", null, title),
      h("div", { class: "block-frame" }, h("pre", { class: "block", tabindex: "0" }, json(value)),
        copyButton(json(value), `Copy: ${title}`)));
  return card("Data", null, h("div", { class: "stack tight" },
    block("Payload", one.payload),
    one.result !== undefined && one.result !== null && block("Result", one.result),
    found.saved && Object.keys(found.saved).length > 0 && block("Saved state", found.saved),
    one.error && !found.attempts.length && h("div", { class: "value" }, h("h3", null, "Error"),
      h("pre", { class: "block", tabindex: "0" }, one.error))));
}

function ties(found) {
  const { task: one, children, children_counts: counts, depends_on: on, dependents } = found;
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const linked = [...on,
    ...dependents].map((link) => link.task ?? { id: link.id, type: "no longer in history", state: "completed", parent_id: null });
  return [
    total > 0 && card("Children",
      { note: Object.entries(counts).filter(([, count]) => count).map(([state, count]) => `${number(count)} ${words(state)}`).join(", "),
      aside: total > children.length && filterLink(`parent:${one.id}`, `all ${number(total)}`) },
        tree([{ ...one, parent_id: null }, ...children], one.id)),
    linked.length > 0 && card("Dependencies", { note: "from left to right; dashed: still waited for" },
      graph([one, ...linked],
        [...on.map((link) => ({ task_id: one.id, on_id: link.id, open: link.open })),
          ...dependents.map((link) => ({ task_id: link.id, on_id: one.id, open: link.open }))],
        one.id)),
  ];
}

function about(page, { task: one, is_recurring: isRecurring }) {
  const tags = Object.entries(one.tags);
  return card("About", null, facts([
    ["Key", one.key], ["Priority", priority(one)],
    ["Attempts", `${number(one.attempt)}${one.retries ? `, ${plural(one.retries, "retry", "retries")}` : ""}`],
    ["Submitted", when(one.created_at, page.now)], ["Due", one.run_at && when(one.run_at, page.now)],
    ["Started", one.started_at && when(one.started_at, page.now)], ["Deadline", one.expires_at && when(one.expires_at, page.now)],
    ["Budget", io(one.io)], ["Moved", io(one.actual_io)], ["Series", isRecurring && "recurring"],
  ]),
  tags.length > 0 && h("div", { class: "row tags" },
    tags.map(([name, value]) => filterLink(term("tag", `${name}=${value}`), `${name}=${value}`, { key: name, class: "chip" }))));
}

function priorities(page, { priorities: points, task: one }) {
  if (points.length < 1) return null;
  const curve = points.map((point) => ({ at: Date.parse(point.at), value: point.priority }));
  const end = Math.max(page.now, curve.at(-1).at) + Math.max(60000, (curve.at(-1).at - curve[0].at) * 0.1);
  curve.push({ at: end, value: curve.at(-1).value });
  const all = curve.map((point) => point.value);
  const next = points.find((point) => Date.parse(point.at) > page.now);
  return card("Effective priority", { note: "up is more urgent" },
    points.length === 1
      ? h("p", { class: "soft small" }, `It stays ${priorityText(all[0])}: the priority does not change with waiting.`)
      : [steps(curve,
        { low: Math.min(...all), high: Math.max(...all, one.priority), mark: page.now,
          label: `Effective priority from ${all[0]} to ${all.at(-1)}` }),
        h("div", { class: "chart-times tiny faint" }, h("span", null, priorityText(all[0])),
          h("span", null, priorityText(all.at(-1)))),
        h("p", { class: "small soft" },
          next ? `Next step: ${priorityText(next.priority)} ${ago(next.at, page.now)}.` : "It has reached the ceiling of aging.")]);
}

function sameKey(page, found) {
  const { task: one, same_key: same, superseded_by: by, supersedes } = found;
  const others = same.filter((other) => other.id !== one.id);
  if (!others.length && !by && !supersedes) return null;
  return card("Tasks with this key", null,
    (by || supersedes) && h("p", { class: "small chain-line" }, supersedes && ["replaced ", taskLink(supersedes), " "],
      by && ["was replaced by ", taskLink(by)]),
    h("ul", { class: "lines-list" },
      others.slice(0,
        8).map((other) =>
          h("li", { key: other.id, class: "line-head" }, taskLink(other.id), badge(other.state),
            h("span", { class: "small faint push" }, when(other.ended_at ?? other.created_at, page.now))))));
}

function equivalents(page, found) {
  const possible = found.equivalents.filter((one) => one.is_possible && (page.canAct || one.method === "GET"));
  const chosen = possible.find((one) => one.action === page.route.get("same")) ?? possible[0];
  if (!chosen) return null;
  const address = new URL(chosen.path, document.baseURI);
  const curl = [`curl -H "Authorization: Bearer $TOKEN"`, chosen.method !== "GET" && `-X ${chosen.method}`,
    chosen.body && `-H "Content-Type: application/json" -d '${compact(chosen.body)}'`, `'${address}'`].filter(Boolean).join(" ");
  return card("The same by hand",
    { aside: h("div", { class: "segments", role: "group", "aria-label": "Action" }, possible.map((one) =>
    h("button",
      { key: one.action, type: "button", "aria-pressed": String(one === chosen),
        onclick: () => change({ same: one.action }, { replace: true }) },
      one.action))) },
  h("div", { class: "stack tight" }, code(chosen.command, "Copy the command"), code(curl, "Copy the API call")));
}

