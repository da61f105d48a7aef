// What a change of a group would do to the queue: waits, missed deadlines and used slots, now and then, simulated.

import { h } from "../dom.js";
import { duration, groupName, number, plural } from "../format.js";
import { when } from "../parts/basics.js";

const MOST_SHOWN = 6;
/** The server may refuse because of the state of the queue, for example its size: that is no fault. */
const CONFLICT = 409;

/** Draw an inquiry about `api/simulate`: what is known so far, and whether a newer answer is on its way. */
export function whatIf({ answer, problem, isAsking }, name, slots, now) {
  return h("section", { class: "what-if", "aria-label": "Simulation", "aria-busy": String(isAsking) },
    h("h3", null, "The queue, simulated", isAsking && h("span", { class: "faint" }, " …")),
    problem
      ? h("p", { class: problem.status === CONFLICT ? "small soft" : "dialog-error", role: "note" }, problem.message)
      : answer ? comparison(answer, name, slots, now) : h("p", { class: "soft small" }, "Simulating…"));
}

function comparison(answer, name, slots, now) {
  const { before, after, groups, total, notes } = answer;
  if (before.started + before.unstarted + before.deadlines_missed === 0)
    return h("p", { class: "soft small" }, "No task waits, so there is nothing to compare.");
  const shown = groups.slice(0, MOST_SHOWN);
  const longest = Math.max(...shown.flatMap((one) => [one.wait_p90 ?? 0, one.new_wait_p90 ?? 0]), 1e-9);
  return [
    h("table", { class: "then-table" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Median wait"), h("th", { scope: "col" }, "Now"),
        h("th", { scope: "col" }, "Then"))),
      h("tbody", null, shown.map((one) => h("tr", { key: one.name, class: one.name === name ? "chosen" : "" },
        h("th", { scope: "row" }, h("div", { class: "cut", title: one.name }, groupName(one.name))),
        wait(one.wait_p50, one.wait_p90, longest, "quiet"),
        wait(one.new_wait_p50, one.new_wait_p90, longest, "accent", one.wait_p50 !== one.new_wait_p50)))),
      h("tbody", null,
        fact("Deadlines missed", before, after, (run) => number(run.deadlines_missed)),
        fact("Slots used", before, after, (run) =>
          (run.slots_used === null ? "–" : `${run.slots_used.toFixed(1)} of ${number(slots)}`)),
        before.unstarted + after.unstarted > 0
          && fact("Not started in 7 days", before, after, (run) => plural(run.unstarted, "task")),
        h("tr", null, h("th", { scope: "row" }, "All ended"), [before, after].map((run, place) =>
          h("td", { key: place }, run.ends_at ? when(run.ends_at, now) : h("span", { class: "faint" }, "–")))))),
    total > shown.length && h("p", { class: "tiny soft" }, `${plural(total - shown.length, "other group")} with smaller differences or none`),
    h("p", { class: "tiny soft" }, "If nothing more is submitted, with durations from history. ",
      notes.map((note) => `${note.charAt(0).toUpperCase()}${note.slice(1)}. `)),
  ];
}

/** A wait as text and as a bar: solid up to the median, pale up to nine of ten tasks. */
function wait(half, most, longest, tone, isNew = false) {
  if (half === null) return h("td", null, h("span", { class: "faint" }, "no start"));
  const part = (seconds) => ({ "--part": `${(100 * seconds) / longest}%` });
  return h("td", null, h("span", { class: `nowrap ${isNew ? "new" : ""}` }, duration(half)),
    h("span", { class: "tiny faint nowrap" }, `9 of 10: ${duration(most)}`),
    h("div", { class: "wait-bar", "data-tone": tone, "aria-hidden": "true" }, h("i", { style: part(most) }),
      h("i", { style: part(half) })));
}

function fact(title, before, after, text) {
  const [now, then] = [text(before), text(after)];
  return h("tr", { key: title }, h("th", { scope: "row" }, title), h("td", null, now),
    h("td", { class: now === then ? "" : "new" }, then));
}
