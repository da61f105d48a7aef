// What the reader can do to tasks and groups: each asks first, says how many tasks it concerns, and reports the result.

import { post } from "./api.js";
import { h } from "./dom.js";
import { groupName, plural, priorityText } from "./format.js";
import { ask, toast } from "./parts/dialog.js";

const LEVELS = [0, 64, 128, 192, 255];
const DOES = {
  cancel: { title: "Cancel", kind: "danger", past: "cancelled",
    text: "Waiting tasks end at once. Running ones are asked to stop." },
  retry: { title: "Retry", kind: "accent", past: "returned to the queue", text: "Dead letters run again, with all their retries." },
  priority: { title: "Change the priority", kind: "accent", past: "changed",
    text: "A more urgent task starts earlier within its group." },
};

function priorityField(chosen, choose) {
  return h("label", { class: "field" }, "Priority, from 0 (most urgent) to 255",
    h("input",
      { type: "number", name: "priority", min: "0", max: "255", required: true, value: String(chosen), list: "levels",
        oninput: (event) => choose(event.target.value) }),
    h("div", { class: "choice-row" },
      LEVELS.map((level) =>
        h("button",
          { key: level, type: "button", class: "button", "aria-pressed": String(Number(chosen) === level),
            onclick: () => choose(String(level)) },
          priorityText(level)))));
}

export function actOnOne(page, task, action) {
  const does = DOES[action];
  let priority = String(task.priority);
  ask({
    title: `${does.title}${action === "priority" ? " of" : ""} task ${task.id}?`,
    kind: does.kind,
    action: action === "priority" ? "Change" : `${does.title} task`,
    body: (redraw) =>
      [h("p", { class: "soft" }, task.label ?? task.type),
        action === "priority" ? priorityField(priority, (value) => { priority = value; redraw(); }) : h("p", null, does.text)],
    act: () =>
      page.act(`tasks/${task.id}/${action}`, action === "priority" ? { priority: Number(priority) } : {},
        `Task ${task.id} was ${does.past}.`),
  });
}

/** Ask the server, once, how many tasks a request concerns. Return a function that says what is known so far. */
export function counting(path, body) {
  let known = null;
  return (redraw) => {
    if (known === null) {
      known = { text: "Counting…" };
      post(path, { ...body, dry_run: true })
        .then((answer) => { known = { answer }; }, (error) => { known = { text: error.message, isBad: true }; })
        .then(redraw);
    }
    return known;
  };
}

/**
 * Act on `ids`, or on all tasks that match `filters`. The number is asked of the server first, and shown.
 */
export function actOnMany(page, action, { ids = null, filters = null, about = null, done = () => {} }) {
  const does = DOES[action];
  const target = ids ? { ids } : { filters };
  let priority = "128";
  const options = () => (action === "priority" ? { priority: Number(priority) } : {});
  const count = counting("tasks/bulk", { action, ...target, ...options() });
  const body = (redraw) => {
    const { answer, text, isBad } = count(redraw);
    return [
      about && h("p", { class: "soft" }, about),
      h("p", { class: `bulk-count ${isBad ? "dialog-error" : ""}`, "data-count": answer ? answer.count : null },
        answer ? [h("b", null, `${plural(answer.count, "task")}${answer.is_exact ? "" : " or more"}`),
          ` will be ${does.past}.`] : text),
      answer && !answer.is_exact && h("p", { class: "small soft" }, "A request changes 1,000 tasks at most; the page repeats it."),
      answer?.skipped.length > 0 && h("p", { class: "small soft" },
        `${plural(answer.skipped.length, "task")} stay${answer.skipped.length === 1 ? "s" : ""} unchanged: ${answer.skipped[0].message}.`),
      action === "priority" ? priorityField(priority, (value) => { priority = value; redraw(); })
        : h("p", { class: "soft" }, does.text),
    ];
  };
  ask({
    title: `${does.title}${action === "priority" ? " of" : ""} ${ids ? plural(ids.length, "selected task") : "all tasks that match"}?`,
    kind: does.kind,
    action: action === "priority" ? "Change" : `${does.title} tasks`,
    body,
    act: async () => {
      const { count, isAll } = await repeat({ action, ...target, ...options() });
      const rest = isAll ? "" : " More tasks match: narrow the filter to reach them.";
      toast(`${plural(count, "task")} ${count === 1 ? "was" : "were"} ${does.past}.${rest}`);
      done();
      page.refresh();
    },
  });
}

/** Send the request until it changes no further task. Return how many were changed, and whether these are all. */
async function repeat(body) {
  const changed = new Set();
  for (;;) {
    const answer = await post("tasks/bulk", body);
    const before = changed.size;
    for (const id of answer.ids) changed.add(id);
    // Tasks that still match, as those of which only the priority changed, would be found again and again.
    if (answer.is_exact || changed.size === before) return { count: changed.size, isAll: answer.is_exact };
  }
}

const PAUSES = [["until it is resumed", null], ["for 10 minutes", 600], ["for 1 hour", 3600], ["for 8 hours", 28800],
  ["for 1 day", 86400]];

export function pauseGroup(page, name) {
  let seconds = null;
  ask({
    title: `Pause ${name ? `group ${name}` : "the tasks without a group"}?`,
    action: "Pause",
    body: (redraw) => [
      h("p", null,
        "Running tasks continue. No task of the group starts, and its slots go to the other groups. Time-to-live and aging stand still meanwhile."),
      h("div", { class: "choice-row", role: "group", "aria-label": "How long" }, PAUSES.map(([text, value]) =>
        h("button",
          { key: text, type: "button", class: "button", "aria-pressed": String(seconds === value),
            onclick: () => { seconds = value; redraw(); } },
          text)))],
    act: () =>
      page.act(`groups/${encodeURIComponent(name)}/pause`, seconds === null ? {} : { duration: seconds },
        `Group ${groupName(name)} is paused.`),
  });
}

/** Send a change that needs no question; an error is shown as a message. */
export async function send(page, path, done) {
  try {
    await page.act(path, {}, done);
  } catch (error) {
    toast(error.message, "bad");
  }
}

export const resumeGroup = (page, name) =>
  send(page, `groups/${encodeURIComponent(name)}/resume`, `Group ${groupName(name)} runs again.`);

export const resumeDomain = (page, name) => send(page, `domains/${encodeURIComponent(name)}/resume`, `Domain ${name} runs again.`);

export const resumeEverything = (page) => send(page, "resume", "The scheduler runs again.");

export function pauseEverything(page) {
  ask({
    title: "Pause the scheduler?",
    action: "Pause",
    body: () =>
      h("p", null,
        "Running tasks continue. No task of any group starts until the scheduler is resumed, here or with “taskmill resume”."),
    act: () => page.act("pause", {}, "The scheduler is paused."),
  });
}
