// Rows about tasks, as they appear in lists and on the overview.

import { h } from "../dom.js";
import { duration, firstLine, groupName, percent, subject } from "../format.js";
import { href } from "../router.js";
import { badge, bar, filterLink, priority, progressText, taskLink, term, when } from "./basics.js";

/** What the task is about, above its type. */
export function what(task) {
  const name = subject(task);
  return h("div", { class: "what" },
    h("a", { class: "cut", href: href("task", {}, task.id), title: name || task.type }, name || task.type),
    h("span", { class: "cut small faint", title: task.type }, task.type));
}

/** The last column: progress of a running task, the error of a failed one, the deadline or due time of a waiting one. */
export function state(task, now) {
  if (task.state === "running") {
    const fraction = task.progress?.fraction ?? null;
    return h("div", { class: "progress-cell" }, bar(fraction, { label: "progress" }),
      h("span", { class: "small soft cut" }, progressText(task.progress) || "running", timeLeft(task)));
  }
  if (task.state !== "completed" && (task.error || task.last_error)) return h("span",
    { class: "small error-text cut", title: task.error ?? task.last_error }, firstLine(task.error ?? task.last_error));
  if (task.state === "scheduled" && task.run_at) return h("span", { class: "small soft" }, "due ", when(task.run_at, now));
  if (!task.ended_at && task.expires_at) return h("span", { class: "small soft" }, "expires ", when(task.expires_at, now));
  if (task.duration !== null && task.duration !== undefined) return h("span", { class: "small soft" },
    `took ${duration(task.duration)}`);
  return null;
}

const timeLeft = (task) => (task.progress?.eta ? ` · ${duration(task.progress.eta)} left` : "");

export function runningRow(task, now) {
  const fraction = task.progress?.fraction ?? null;
  return h("li", { key: task.id, class: "running-row" },
    what(task),
    h("span", { class: "small soft cut hide-small" },
      filterLink(term("group", task.group), groupName(task.group), { class: "quiet-link" })),
    h("div", { class: "progress-cell" }, bar(fraction, { label: `progress of task ${task.id}` }),
      h("span", { class: "small soft cut", title: progressText(task.progress) },
        progressText(task.progress, { withFraction: false }))),
    h("span", { class: "number" }, fraction === null ? "–" : percent(fraction)),
    h("span", { class: "number small soft" },
      task.progress?.eta ? `${duration(task.progress.eta)} left` : h("span", null, runsFor(task, now))));
}

const runsFor = (task, now) => (task.started_at ? duration(Math.max(0, now - Date.parse(task.started_at)) / 1000) : "");

export function taskRow(task, now, { selected, isAt, toggle, canAct }) {
  return h("tr", { key: task.id, class: `link ${isAt ? "at" : ""}`, id: `task-${task.id}` },
    canAct && h("td", { class: "tick" },
      h("input", { type: "checkbox", checked: selected, "aria-label": `Select task ${task.id}`, onchange: toggle })),
    h("td", { class: "number id-cell" }, taskLink(task.id)),
    h("td", null, badge(task.state)),
    h("td", { class: "what-cell" }, what(task)),
    h("td", { class: "group-cell" }, filterLink(term("group", task.group), groupName(task.group), { class: "quiet-link cut" })),
    h("td", { class: "priority-cell" }, priority(task)),
    h("td", { class: "state-cell" }, state(task, now)),
    h("td", { class: "number small soft" }, when(task.ended_at ?? task.started_at ?? task.created_at, now)));
}
