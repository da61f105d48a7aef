// Schedules: cron tasks and recurring series, when they run next, and how they ended.

import { send } from "../actions.js";
import { h } from "../dom.js";
import { duration, number, plural, words } from "../format.js";
import { button, card, empty, taskLink, when } from "../parts/basics.js";
import { href } from "../router.js";

export const schedules = {
  title: () => "Schedules",
  reads: () => ({ list: ["schedules", { limit: 200 }] }),

  draw(page) {
    const { schedules: found, total } = page.data.list;
    return [
      h("div", { class: "head" }, h("h1", null, "Schedules"),
        found.length > 0 && h("span", { class: "soft" }, plural(total, "schedule"))),
      found.length
        ? card(null, { class: "flush", "aria-label": "All schedules" },
          h("div", { class: "table-frame" }, h("table", { class: "table stacking schedules-table" },
          h("thead", null,
            h("tr", null,
              ["Name", "When", "Next run", "Last run", "Recent runs"].map((name) => h("th", { key: name, scope: "col" }, name)),
              h("th", { class: "number", scope: "col" }, "Runs"),
            page.canAct && h("th", { scope: "col" }, h("span", { class: "hidden-text" }, "Actions")))),
          h("tbody", null, found.map((one) => row(page, one))))))
        : card(null, null,
          empty("Nothing is scheduled",
            "Declare cron tasks with Scheduler(cron=[Cron(…)]), or submit a task with every=… to repeat it.")),
    ];
  },
};

function row(page, one) {
  return h("tr", { key: one.id },
    h("td", null,
      h("div", { class: "what" },
        h("span", { class: "row nowrap-row" }, h("b", { class: "cut", title: one.name }, one.name),
          one.paused && h("span", { class: "chip warn" }, "paused")),
        h("span", { class: "small faint cut", title: one.type }, one.type))),
    h("td", null,
      h("div", { class: "what" }, h("span", null, one.words),
        one.expression && h("code", { class: "small faint" }, one.expression))),
    h("td", { "data-label": "next run" },
      one.paused ? h("span", { class: "faint" }, "paused") : one.next_run ? when(one.next_run, page.now)
        : h("span", { class: "faint" }, "–"),
      one.task_id && [" ", taskLink(one.task_id)]),
    h("td", { "data-label": "last run" }, when(one.last_run, page.now), one.last_outcome && [" ", h("span",
      { class: `chip ${one.last_outcome === "succeeded" || one.last_outcome === "completed" || one.last_outcome === "success" ? "good" : "bad"}` },
      words(one.last_outcome))]),
    h("td", { "data-label": "recent" }, outcomes(one.recent)),
    h("td", { class: "number", "data-label": "runs" }, number(one.runs), one.max_runs && ` of ${number(one.max_runs)}`),
    page.canAct && h("td", { class: "actions-cell" }, h("div", { class: "row-actions" }, actions(page, one))));
}

/** One column for each recent run, the latest at the right: its height is how long it took, its colour how it ended. */
function outcomes(recent) {
  if (!recent.length) return h("span", { class: "faint small" }, "none yet");
  const longest = Math.max(...recent.map((task) => task.duration ?? 0), 0.001);
  return h("div", { class: "outcomes" },
    [...recent].reverse().map((task) => h("a", { key: task.id, href: href("task", {}, task.id), "data-state": task.state,
    title: `#${task.id} ${words(task.state)}${task.duration === null ? "" : ` in ${duration(task.duration)}`}`,
      "aria-label": `Run ${task.id}: ${words(task.state)}`,
    style: { "--part": `${25 + (75 * (task.duration ?? 0)) / longest}%` } })));
}

function actions(page, one) {
  if (one.kind !== "series") {
    return button("Run now",
      { key: "run",
        onclick: () => send(page, `schedules/${encodeURIComponent(one.id)}/run`, `${one.name} runs once now.`),
        "aria-label": `Run ${one.name} now` },
      "play");
  }
  return one.paused
    ? button("Resume", { key: "resume",
      onclick: () => send(page, `schedules/${encodeURIComponent(one.id)}/resume`, `${one.name} continues.`),
      "aria-label": `Resume ${one.name}` }, "play")
    : button("Pause",
      { key: "pause", onclick: () => send(page, `schedules/${encodeURIComponent(one.id)}/pause`, `${one.name} is paused.`),
        "aria-label": `Pause ${one.name}` },
      "pause");
}

