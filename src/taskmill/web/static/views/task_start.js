// When a waiting task will start, how sure that is, and which changes would start it now or in time.

import { h } from "../dom.js";
import { sentence, time } from "../format.js";
import { button } from "../parts/basics.js";
import { ask } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";

/** Return how sure an expected start is, as a few words. */
export function certainty({ estimated_start: start, earliest_start: earliest, latest_start: latest, holds }, now) {
  if (!start) return null;
  if (earliest) {
    const [from, to] = [time(earliest, now), latest && time(latest, now)];
    if (from === to) return "the same in nearly all simulations";
    return to ? `8 of 10 simulations: ${from} to ${to}` : `from ${from}; in some simulations not within 7 days`;
  }
  return holds.every((hold) => hold.reason === "not_due") ? "its due time" : "a rough guess from recent endings";
}

/** When a task starts with a remedy, as the summary says it. */
const WHEN = { now: "now", in_time: "in time" };

/** Return the summary of an explanation without the remedies, which are shown below it. */
export function withoutRemedies({ summary, remedies }) {
  return Object.entries(WHEN).reduce((left, [starts, when]) => {
    const texts = remedies.filter((one) => one.starts === starts).map((one) => one.text);
    return left.replace(` It would start ${when} with: ${texts.join("; or ")}.`, "");
  }, summary);
}

export function remedies(page, { task, explanation }) {
  const found = explanation.remedies;
  return found.length > 0 && h("section", { class: "remedies", "aria-label": "What would help" },
    h("h3", null, "What would help"),
    h("ul", { class: "holds" }, found.map((one) => h("li", { key: one.text }, icon("up"),
      h("div", null, h("b", null, `${sentence(one.text)}.`),
        h("p", { class: "soft" }, `With this it would start ${when(one)}, as simulations show. `, whereElse(page, one))),
      page.canAct && isPossible(page, one) && button("Apply",
        { class: "push", "aria-label": `Apply: ${one.text}`, onclick: () => confirm(page, task, one) })))));
}

const when = ({ starts }) => (starts === "now" ? "now" : "later, but before its deadline");

/** The number of slots is declared by the program that dispatches; another process cannot change it. */
const isPossible = (page, { changes }) => !("max_concurrency" in changes) || page.overview.is_dispatching;

const whereElse = (page, one) =>
  !isPossible(page, one) && [`Only the program that dispatches can make this change: `,
    h("code", null, `scheduler.set_max_concurrency(${one.changes.max_concurrency})`), "."];

function confirm(page, task, one) {
  const { text, changes } = one;
  ask({
    title: "Apply this change?",
    action: "Apply",
    body: () => [
      h("p", null, h("b", null, `${sentence(text)}.`)),
      h("p", { class: "soft" }, `Task ${task.id} would start ${when(one)}. The change stays, and it concerns other tasks, too.`,
        "max_concurrency" in changes && " The number of slots lasts until the program declares another one."),
    ],
    act: () => page.act("apply", changes, "The change was made."),
  });
}
