// The frame around every view: navigation, the state of the connection, notices that matter everywhere.

import { resumeEverything } from "./actions.js";
import { h } from "./dom.js";
import { plural, short } from "./format.js";
import { showKeys } from "./keys.js";
import { button, notice } from "./parts/basics.js";
import { icon, wheel } from "./parts/icons.js";
import { href } from "./router.js";

const PLACES = [
  ["overview", "Overview"], ["tasks", "Tasks"], ["groups", "Groups"], ["schedules", "Schedules"],
  ["machine", "Machine"], ["errors", "Errors"], ["nodes", "Nodes"], ["system", "System"],
];
const CONNECTION = {
  live: ["Live", "Changes appear as they happen"],
  polling: ["Polling", "The stream of events is not available; the page asks every few seconds"],
  offline: ["No answer", "The server does not answer; the page keeps trying"],
  frozen: ["Frozen", "The page shows the moment at which it was frozen"],
};

export function shell(page, title, body) {
  const state = page.live.state;
  const [word, meaning] = CONNECTION[state];
  return h("div", { class: "shell", "data-live": state },
    h("a", { class: "brand", href: href("overview"), "aria-label": "taskmill: overview" }, wheel(), h("span", null, "taskmill")),
    h("header", { class: "top" },
      h("div", { class: "store" },
        h("b", { class: "cut", title: page.session?.store ?? null }, page.session?.store ?? "…"),
        page.session?.access === "read" && h("span", { class: "chip", title: "This page may not change anything" }, icon("lock"),
          "read-only")),
      h("span", { class: "live", "data-live": state, role: "status", title: meaning }, h("i", null), word),
      h("button", { type: "button", class: "button", "aria-pressed": String(page.live.frozen), title: "Freeze (f)",
        onclick: () => page.live.freeze(!page.live.frozen) }, icon(page.live.frozen ? "play" : "snow"),
      h("span", { class: "hide-small" }, page.live.frozen ? "Continue" : "Freeze"))),
    h("nav", { class: "side", "aria-label": "Views" },
      PLACES.map(([name, text]) =>
        h("a", { key: name, href: href(name), "aria-current": isAt(page.route.name, name) ? "page" : null, title: text },
        icon(name), h("span", null, text), amount(page, name))),
      h("div", { class: "foot" }, h("button", { type: "button", onclick: showKeys }, "Keys: press ", h("kbd", null, "?")))),
    h("main", { class: "main", id: "main", tabindex: "-1", "aria-label": title },
      h("div", { class: "notices" }, [...notices(page)]), body));
}

const isAt = (present, name) => present === name || (present === "task" && name === "tasks");

function amount(page, name) {
  const overview = page.overview;
  if (!overview) return null;
  if (name === "tasks") {
    const active = ["pending", "scheduled", "blocked", "running", "waiting",
      "paused"].reduce((sum, state) => sum + (overview.counts[state] ?? 0), 0);
    return h("span", { class: "amount" }, short(active));
  }
  const errors = name === "errors" ? overview.errors.count : 0;
  return errors > 0 && h("span", { class: "amount bad", title: "tasks that failed in the last hour" }, short(errors));
}

function* notices(page) {
  const overview = page.overview;
  if (!overview) return;
  if (page.live.state === "offline")
    yield notice("bad", "No answer.",
      "The server does not answer. What you see is the last that was read; the page continues by itself.");
  else if (page.problem && page.isReady) yield notice("bad", "Not up to date.", page.problem);
  if (!overview.has_dispatcher)
    yield notice("", "Nothing dispatches.",
      "No scheduler runs the tasks of this store, so waiting tasks do not start. Start your program, or “taskmill run MODULE:SCHEDULER”.");
  if (overview.paused.scheduler)
    yield notice("", "Paused.", "The scheduler is paused: running tasks continue, no task starts.",
      ...(page.canAct ? [button("Resume", { onclick: () => resumeEverything(page) }, "play")] : []));
  const strange = Object.entries(overview.unhandled);
  if (strange.length && overview.has_dispatcher) {
    const first = strange.slice(0, 3).map(([type, count]) => `${plural(count, "task")} of ${type}`).join(", ");
    const rest = strange.length > 3 ? " and others" : "";
    yield notice("", "No handler.", `${first}${rest} cannot start: no node has a handler for that type.`);
  }
}

export function gate(page, signIn) {
  return h("main", { class: "gate" }, h("section", { class: "card", "aria-label": "Sign in" },
    wheel(), h("h1", null, "taskmill"),
    h("p", { class: "soft" }, "Open the address that “taskmill web” printed: it ends in #token=…. Or paste the token here."),
    h("form",
      { onsubmit: (event) =>
        { event.preventDefault(); signIn(new FormData(event.target).get("token").trim().replace(/^.*#token=/, "")); } },
      h("label", { class: "field" }, "Token", h("input", { name: "token", type: "password", autocomplete: "off", required: true })),
      page.locked && h("p", { class: "dialog-error", role: "alert" }, page.locked),
      button("Open", { type: "submit", kind: "accent" }))));
}
