// Numbers, sizes, durations and instants as text for people. The words are those of the command line.

const NAMES = { 0: "critical", 64: "high", 128: "normal", 192: "low", 255: "idle" };
const MOVES = { disk_read: "read", disk_write: "written", net_rx: "received", net_tx: "sent" };
export const AXES = { disk_read: "disk reads", disk_write: "disk writes", net_rx: "network in", net_tx: "network out" };

const grouped = new Intl.NumberFormat("en");
const compacted = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export const number = (value) => grouped.format(value);

/** Return 12,345 as "12.3K" where space is short. */
export const short = (value) => (value < 10000 ? grouped.format(value) : compacted.format(value));

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export const words = (name) => name.replaceAll("_", " ");

export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const groupName = (name) => name || "(no group)";

export const priorityName = (value) => NAMES[value] ?? String(value);

/** Return "high (64)": the name helps to read the number, the number to compare it. */
export const priorityText = (value) => (NAMES[value] ? `${NAMES[value]} (${value})` : String(value));

export function percent(fraction, digits = 0) {
  return `${(fraction * 100).toFixed(digits)} %`;
}

export function bytes(count) {
  if (count < 1000) return `${Math.round(count)} B`;
  let value = count;
  for (const unit of ["kB", "MB", "GB"]) {
    value /= 1000;
    if (value < 999.5) return `${value.toFixed(value < 99.95 ? 1 : 0)} ${unit}`;
  }
  return `${(value / 1000).toFixed(1)} TB`;
}

/** Return "12.0 MB read, 3.0 MB sent" for the bytes on each axis; empty if none are moved. */
export function io(budget) {
  if (!budget) return "";
  return Object.keys(MOVES).filter((axis) => budget[axis]).map((axis) => `${bytes(budget[axis])} ${MOVES[axis]}`).join(", ");
}

/** Return a number of seconds as "450 ms", "3.2 s", "5 min 3 s" or "2 d 4 h". */
export function duration(seconds) {
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  return whole(Math.round(seconds));
}

/** Return a number of seconds in one unit, for large figures: "3.2 s", "5.1 min" or "33 h". */
export function rough(seconds) {
  if (seconds < 99.5) return seconds < 59.5 ? duration(seconds) : `${Math.round(seconds)} s`;
  const [unit, name] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => seconds >= 1.6 * size);
  return `${(seconds / unit).toFixed(seconds < 9.95 * unit ? 1 : 0)} ${name}`;
}

function whole(seconds) {
  if (seconds < 60) return `${seconds} s`;
  for (const [unit, name, smaller, smallerName] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (seconds < unit) continue;
    const rest = Math.floor((seconds % unit) / smaller);
    return `${Math.floor(seconds / unit)} ${name}${rest ? ` ${rest} ${smallerName}` : ""}`;
  }
  return `${seconds} s`;
}

/** Return "3 s ago" or "in 5 min". */
export function ago(at, now) {
  const seconds = (now - Date.parse(at)) / 1000;
  const rounded = Math.round(Math.abs(seconds));
  if (rounded < 1) return "now";
  return seconds > 0 ? `${whole(rounded)} ago` : `in ${whole(rounded)}`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Return the local date and time to the second, with the zone: for hovering. */
export function absolute(at) {
  const date = new Date(at);
  const pad = (value, width = 2) => String(value).padStart(width, "0");
  const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(date)
    .find((part) => part.type === "timeZoneName").value;
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock.format(date)} ${zone}`;
}

/** Return "14:05:09" today and "3 Nov 14:05" on other days. */
export function time(at, now) {
  const date = new Date(at);
  return date.toDateString() === new Date(now).toDateString() ? clock.format(date) : `${day.format(date)} ${minute.format(date)}`;
}

/** Return a text of the server with its instants, such as "(2026-11-17 14:05:09 UTC)", in local time. */
export function localized(text, now) {
  return text.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g, (_, date, clockTime) => time(`${date}T${clockTime}Z`, now));
}

/** Return "10 per second" or "100 per minute" for a rate limit, with its burst if it differs. */
export function rate(limit) {
  const seconds = (limit.interval_ms ?? 1000 * limit.interval) / 1000;
  const unit = { 1: "second", 60: "minute", 3600: "hour", 86400: "day" }[seconds] ?? duration(seconds);
  const burst = limit.burst && limit.burst !== limit.permits ? `, burst ${number(limit.burst)}` : "";
  return `${number(limit.permits)} per ${unit}${burst}`;
}

/** Return what tells a task from others of its type: its label, its key or its payload. */
export function subject(task) {
  if (task.label || task.key) return task.label || task.key;
  return task.payload && Object.keys(task.payload).length ? compact(task.payload) : "";
}

export const compact = (value) => JSON.stringify(value) ?? "";

export const firstLine = (text) => (text ?? "").trim().split("\n", 1)[0];

const HOLDS = {
  not_due: "Not due yet", dependency: "Dependencies", replaced_task: "The task it replaces", children: "Children",
    siblings: "Siblings",
  stopping: "It was asked to stop", scheduler_paused: "The scheduler is paused", domain_paused: "Its domain is paused",
    group_paused: "Its group is paused",
  series_paused: "Its series is paused", preempted: "It was preempted", no_dispatcher: "Nothing dispatches",
    no_handler: "No handler",
  group_cap: "Cap of its group", domain_cap: "Cap of its domain", group_rate: "Rate of its group",
    type_rate: "Rate of its task type",
  pressure: "Pressure", io: "Disk and network", slots: "No free slot", share: "Share of its group", ahead: "Tasks ahead",
};

/** Return the title of a hold; a word that is not known here is shown as it is. */
export const holdName = (reason) => HOLDS[reason] ?? sentence(words(reason));
