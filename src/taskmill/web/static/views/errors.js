// Errors: failed attempts, grouped by task type, exception and place; each group can be retried.

import { counting } from "../actions.js";
import { h } from "../dom.js";
import { number, plural } from "../format.js";
import { button, card, empty, filterLink, taskLink, term, when } from "../parts/basics.js";
import { ask } from "../parts/dialog.js";
import { change } from "../router.js";

const PERIODS = { hour: ["Hour", 1], day: ["Day", 24], week: ["Week", 168], year: ["Year", 8760] };
const period = (route) => (route.get("since") in PERIODS ? route.get("since") : "day");

export const errors = {
  title: () => "Errors",
  reads: (route) => ({ list: ["errors", { hours: PERIODS[period(route)][1], limit: 200 }] }),

  draw(page) {
    const { groups, total } = page.data.list;
    const choice = (name) =>
      h("button",
        { key: name, type: "button", "aria-pressed": String(period(page.route) === name),
          onclick: () => change({ since: name === "day" ? "" : name }) },
        PERIODS[name][0]);
    return [
      h("div", { class: "head" }, h("h1", null, "Errors"),
        h("span", { class: "soft" },
          groups.length ? `${plural(groups.reduce((sum, one) => sum + one.count, 0), "failed attempt")} in ${plural(total, "kind")}` : null),
        h("span", { class: "actions" },
          h("div", { class: "segments", role: "group", "aria-label": "Period" }, Object.keys(PERIODS).map(choice)))),
      groups.length
        ? h("div", { class: "stack" }, groups.map((one) => row(page, one)))
        : card(null, null, empty("No errors", "No attempt failed in this period. Choose a longer one to look further back.")),
    ];
  },
};

function row(page, one) {
  return h("section",
    { key: `${one.type} ${one.exception} ${one.location}`, class: "card error-group",
      "aria-label": `${one.exception} in ${one.type}` },
    h("div", { class: "error-count" }, h("b", null, number(one.count)),
      h("span", { class: "small soft" }, one.count === 1 ? "attempt" : "attempts")),
    h("div", { class: "error-about" },
      h("div", { class: "line-head" }, h("b", { class: "error-text" }, one.exception),
        filterLink(term("type", one.type), one.type, { class: "chip" })),
      one.location && h("code", { class: "small soft" }, one.location),
      h("p", { class: "small" },
        one.dead_letters ? h("b", null, plural(one.dead_letters, "dead letter")) : h("span", { class: "soft" }, "no dead letter is left")),
      h("p", { class: "small soft" }, "last ", when(one.last_at, page.now), ", first ", when(one.first_at, page.now),
        one.sample_ids.length > 0 && [", for example ",
          one.sample_ids.slice(0, 5).map((id, place) => [place > 0 && ", ", taskLink(id)])])),
    one.dead_letters > 0 && h("div", { class: "row-actions" },
      filterLink(`${term("type", one.type)} state:dead_letter`, "Dead letters", { class: "button" }),
      page.canAct && button("Retry", { "aria-label": `Retry ${one.exception} of ${one.type}`, onclick: () => retry(page, one) },
        "again")));
}

function retry(page, { type, exception, location, count: attempts }) {
  const errors = { type, exception, ...(location ? { location } : {}) };
  const count = counting("errors/retry", errors);
  ask({
    title: `Retry ${exception}?`,
    action: "Retry tasks",
    body: (redraw) => {
      const { answer, text, isBad } = count(redraw);
      return [
        h("p", { class: "soft" }, type, location && ` at ${location}`),
        h("p", { class: `bulk-count ${isBad ? "dialog-error" : ""}`, "data-count": answer ? answer.count : null },
          answer ? [h("b", null, plural(answer.count, "task")), " will return to the queue, with all retries."] : text),
        h("p", { class: "small soft" },
          `${plural(attempts, "attempt")} failed in this way in the chosen period. All tasks that became dead letters by it are retried, except those whose key another task has by then.`),
      ];
    },
    act: () => page.act("errors/retry", errors, ({ count: all, ids }) =>
      (ids.length ? `${plural(ids.length, "task")} returned to the queue.${stayed(all - ids.length)}`
        : "None of these tasks is a dead letter that can return, so none was retried.")),
  });
}

const stayed = (number_) => (number_ > 0 ? ` ${number_} stayed: another task has the key.` : "");
