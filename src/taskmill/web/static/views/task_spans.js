// Turns what is known of a task's life into moments and spans of time: not due, waiting, running, failed, paused.

import { firstLine } from "../format.js";

const NAMES = { scheduled: "not due", delayed: "retry delay", waited: "waiting", ran: "running", failed: "failed attempt",
  held: "paused" };

const instant = (text) => Date.parse(text);

/** Return the moments in order of time, failed attempts among them. */
export function momentsOf({ timeline, attempts }) {
  const known = timeline.some((one) => one.kind === "failed");
  const failures = known ? []
    : attempts.filter((one) => one.at).map((one) =>
      ({ at: one.at, kind: "failed", attempt: one.attempt, text: `Attempt ${one.attempt} failed: ${firstLine(one.error)}` }));
  const started = timeline.find((one) => one.kind === "started");
  // A retry without delay may start in the millisecond in which the failure before it is committed, or an earlier one.
  const isBefore = (one) => one.kind === "failed" && started && started.text !== `Attempt ${one.attempt} started`;
  const order = (one) => (isBefore(one) ? Math.min(instant(one.at), instant(started.at) - 0.5) : instant(one.at));
  // The end is committed with the last failure, and may bear an earlier millisecond.
  const isEnd = (one) => one.kind === "ended";
  return [...timeline, ...failures].sort((one, other) => isEnd(one) - isEnd(other) || order(one) - order(other));
}

/** Return {spans, marks} for the band, from the timeline and the failed attempts of a task. */
export function spansOf({ task, timeline, attempts }, now) {
  const at = (kind) => timeline.filter((one) => one.kind === kind).map((one) => instant(one.at));
  const created = instant(task.created_at);
  const end = task.ended_at ? instant(task.ended_at) : now;
  const failed = attempts.filter((one) => one.at).map((one) =>
    ({ text: `attempt ${one.attempt}`, to: instant(one.at), from: instant(one.at) - 1000 * (one.duration ?? 0) }));
  const changes = [{ at: created, kind: "waited" }];
  for (const one of failed) changes.push({ at: one.from, kind: "failed", text: one.text }, { at: one.to, kind: "waited" });
  const due = at("due").at(-1) ?? 0;
  // A due time after a failure is that of the retry; before the first attempt it is that of the task.
  const before = Math.max(created, ...failed.map((one) => one.to).filter((time) => time <= due));
  if (due > before) changes.push({ at: before, kind: before > created ? "delayed" : "scheduled" }, { at: due, kind: "waited" });
  const lastFailure = Math.max(0, ...failed.map((one) => one.to));
  for (const started of at("started")) if (started >= lastFailure) changes.push({ at: started, kind: "ran",
    text: `attempt ${task.attempt}` });
  for (const paused of at("paused")) changes.push({ at: paused, kind: "held" });
  changes.sort((one, other) => one.at - other.at);
  const spans = [];
  changes.forEach((one, place) => {
    const to = Math.min(changes[place + 1]?.at ?? end, end);
    if (to <= one.at) return;
    const last = spans.at(-1);
    if (last?.kind === one.kind && last.to === one.at && !one.text) last.to = to;
    else spans.push({ kind: one.kind, from: one.at, to, text: one.text ?? NAMES[one.kind] });
  });
  if (!spans.length) spans.push({ kind: task.started_at ? "ran" : "waited", from: created, to: Math.max(end, created + 1),
    text: NAMES.waited });
  spans.at(-1).open = !task.ended_at;
  return { spans, marks: at("expires").map((time) => ({ at: time, text: "deadline to start" })) };
}
