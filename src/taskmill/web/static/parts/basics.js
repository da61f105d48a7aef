// The small parts that every view uses: badges, times, cards, buttons, bars, facts, empty states.

import { h } from "../dom.js";
import { absolute, ago, bytes, percent, priorityName, priorityText, rough, time, words } from "../format.js";
import { href } from "../router.js";
import { icon, stateIcon } from "./icons.js";

/** The state of a task: a sign, a word and a colour, so that no one of them is needed to read it. */
export const badge = (state) => h("span", { class: "badge", "data-state": state }, stateIcon(state), words(state));

/** A moment: relative, with the absolute time on hover. */
export function when(at, now) {
  if (!at) return h("span", { class: "faint" }, "–");
  return h("time", { datetime: at, title: absolute(at), class: "nowrap" }, ago(at, now));
}

/** A moment as a clock time, with the relative one on hover. */
export function moment(at, now) {
  if (!at) return h("span", { class: "faint" }, "–");
  return h("time", { datetime: at, title: `${absolute(at)}, ${ago(at, now)}`, class: "nowrap" }, time(at, now));
}

export function card(title, props, ...children) {
  const { aside, note, ...rest } = props ?? {};
  return h("section", { ...rest, class: `card ${rest.class ?? ""}`, "aria-label": rest["aria-label"] ?? title },
    title && h("header", { class: "card-head" }, h("h2", null, title), note && h("span", { class: "faint small" }, note),
      aside && h("div", { class: "aside" }, aside)),
    children);
}

export function button(text, props, sign = null) {
  const { kind = "plain", ...rest } = props ?? {};
  return h("button", { type: "button", ...rest, class: `button ${kind} ${rest.class ?? ""}` }, sign && icon(sign),
    h("span", null, text));
}

export function empty(title, text, ...more) {
  return h("div", { class: "empty" }, h("b", null, title), h("p", { class: "soft" }, text), more);
}

export function facts(rows, props = null) {
  return h("dl", { ...props, class: `facts ${props?.class ?? ""}` },
    rows.filter((row) => row && ![null, undefined, "", false].includes(row[1]))
      .map(([name, value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value))));
}

export function figure(value, text, props = null) {
  return h("div", { ...props, class: `figure ${props?.class ?? ""}` }, h("b", null, value),
    h("span", { class: "soft small" }, text));
}

/** A bar from 0 to 1; `limit` is a mark on it. */
export function bar(fraction, { label, tone = "accent", limit = null, limitText = null } = {}) {
  const known = fraction !== null && fraction !== undefined;
  const shown = known ? Math.max(0, Math.min(1, fraction)) : 0;
  return h("div", { class: `bar ${known ? "" : "unknown"}`, role: "progressbar", "aria-label": label ?? null,
    "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": known ? Math.round(shown * 100) : null, "data-tone": tone },
  h("i", { style: { "--part": `${shown * 100}%` } }),
  limit !== null && h("s", { style: { "--part": `${Math.min(1, limit) * 100}%` }, title: limitText }));
}

/** What is known of a running task's progress: percent, bytes, rate, time left, message. */
export function progressText(progress, { withFraction = true } = {}) {
  if (!progress) return "";
  const parts = [];
  if (withFraction && progress.fraction !== null && progress.fraction !== undefined) parts.push(percent(progress.fraction));
  if (progress.done_bytes !== null && progress.done_bytes !== undefined)
    parts.push(bytes(progress.done_bytes) + (progress.total_bytes ? ` of ${bytes(progress.total_bytes)}` : ""));
  if (progress.rate) parts.push(`${bytes(progress.rate)}/s`);
  if (progress.message) parts.push(progress.message);
  return parts.join(" · ");
}

export function priority(task) {
  const raised = task.effective_priority !== undefined && task.effective_priority !== null && task.effective_priority !== task.priority;
  return h("span",
    { class: "nowrap",
      title: raised ? `${priorityText(task.priority)}, effective ${priorityText(task.effective_priority)}`
        : priorityText(task.priority) },
    priorityName(task.priority), raised && h("span", { class: "raised" }, icon("arrow"), priorityName(task.effective_priority)));
}

export const taskLink = (id, text = null) => h("a", { href: href("task", {}, id) }, text ?? `#${id}`);

export const filterLink = (filter, text, props = null) => h("a", { ...props, href: href("tasks", { filter }) }, text);

/** A word of a filter, quoted if it has spaces. */
export const term = (field, value) => `${field}:${/[\s"]/.test(value) || value === "" ? JSON.stringify(value) : value}`;

export function notice(kind, title, text, ...actions) {
  return h("div", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : "note" }, title && h("b", null, title),
    h("span", null, text),
    actions.length > 0 && h("span", { class: "actions" }, actions));
}

export const seconds = (value) => (value === null || value === undefined ? "–" : rough(value));

export function copyButton(text, label = "Copy") {
  return h("button", { type: "button", class: "button quiet copy", title: label, "aria-label": label, onclick: async (event) => {
    const target = event.currentTarget;
    await copyText(text);
    target.classList.add("done");
    setTimeout(() => target.classList.remove("done"), 1500);
  } }, icon("copy"), icon("check"));
}

async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Without TLS browsers have no clipboard object except on loopback.
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden-text";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export const code = (text, label) =>
  h("div", { class: "code-line" }, h("pre", { tabindex: "0" }, h("code", null, text)),
    copyButton(text, label ?? "Copy the command"));
