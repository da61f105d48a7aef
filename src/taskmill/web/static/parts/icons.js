// Line drawings for navigation, states and buttons, on a grid of 20.

import { h } from "../dom.js";

const PATHS = {
  overview: "M3 10.5 10 4l7 6.5M5 9v7.5h10V9M8.5 16.5V12h3v4.5",
  tasks: "M4 5.5h1.5M8.5 5.5H16M4 10h1.5M8.5 10H16M4 14.5h1.5M8.5 14.5H16",
  groups: "M3.5 16.5V9.5h3.6v7zM8.2 16.5v-13h3.6v13zM12.9 16.5V12h3.6v4.5z",
  schedules: "M4 5.5h12v11H4zM4 9h12M7.2 3.5v3.4M12.8 3.5v3.4M10 11v2.4l1.6 1",
  machine: "M3.5 13.5a6.5 6.5 0 1 1 13 0M10 13.5l3-4.4M10 13.5h.01M5.4 16.5h9.2",
  errors: "M10 3.5 17 16H3zM10 8.2v3.7M10 13.9v.1",
  nodes: "M4 4.5h12v4.3H4zM4 11.2h12v4.3H4zM6.5 6.7h.01M6.5 13.4h.01M9.5 6.7h4M9.5 13.4h4",
  system: "M4 6h6M13.5 6H16M10 4v4M4 10h1.5M9 10h7M7 8v4M4 14h7M14.5 14H16M12.5 12v4",
  search: "M9 4a5 5 0 1 1 0 10A5 5 0 0 1 9 4M12.8 12.8 16.5 16.5",
  pause: "M7 5v10M13 5v10",
  play: "M7 4.5v11l8-5.5z",
  snow: "M10 3v14M4 6.5l12 7M16 6.5l-12 7M8 4.2 10 6l2-1.8M8 15.8l2-1.8 2 1.8",
  copy: "M7.5 7.5h9v9h-9zM4.5 12.5h-1v-9h9v1",
  check: "m4.5 10.5 3.5 3.5 7.5-8",
  cross: "m5.5 5.5 9 9M14.5 5.5l-9 9",
  clock: "M10 3.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13M10 6.5V10l2.4 1.6",
  lock: "M5 9h10v7.5H5zM7 9V6.8a3 3 0 0 1 6 0V9",
  chain: "M8.5 11.5 11.5 8.5M9 6.5l1.6-1.6a3.2 3.2 0 0 1 4.5 4.5L13.5 11M11 13.5l-1.6 1.6a3.2 3.2 0 0 1-4.5-4.5L6.5 9",
  dot: "M10 7.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6",
  ring: "M10 5.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9",
  skull: "M10 3.5a5.5 5.5 0 0 1 3 10v2.5H7v-2.5a5.5 5.5 0 0 1 3-10M8 9.2h.01M12 9.2h.01M10 13.8V16",
  minus: "M5 10h10",
  swap: "M4 7.5h10.5L12 5M16 12.5H5.5L8 15",
  hourglass: "M6 4h8M6 16h8M7 4v2.2L10 10l3-3.8V4M7 16v-2.2L10 10l3 3.8V16",
  family: "M10 4v4.5M5 16v-3.5h10V16M10 8.5v4",
  again: "M15.5 10a5.5 5.5 0 1 1-1.7-4M15.5 3.5V7H12",
  up: "M10 16V5M5.5 9.5 10 5l4.5 4.5",
  arrow: "M4.5 10h11M11 5.5l4.5 4.5-4.5 4.5",
  back: "M15.5 10h-11M9 5.5 4.5 10 9 14.5",
  sort: "m6.5 8 3.5-4 3.5 4M6.5 12l3.5 4 3.5-4",
  down: "m5.5 8 4.5 5 4.5-5",
};

export function icon(name, title = null) {
  return h("svg", { class: "icon", viewBox: "0 0 20 20", width: "18", height: "18", fill: "none", stroke: "currentColor",
    "stroke-width": "1.6", "stroke-linecap": "round", "stroke-linejoin": "round",
    "aria-hidden": title ? null : "true", role: title ? "img" : null, "aria-label": title },
  h("path", { d: PATHS[name] }));
}

/** The sign of taskmill: a mill wheel. */
export function wheel() {
  return h("svg", { viewBox: "0 0 32 32", "aria-hidden": "true", class: "sign" },
    h("rect", { width: "32", height: "32", rx: "9", class: "sign-ground" }),
    h("g", { class: "wheel" },
      h("circle", { cx: "16", cy: "16", r: "3" }),
      h("path", { d: "M16 13V6.5M19 16h6.5M16 19v6.5M13 16H6.5M12 6.5h8M25.5 12v8M20 25.5h-8M6.5 20v-8" })));
}

const OF_STATE = {
  pending: "ring", scheduled: "clock", blocked: "chain", running: "play", waiting: "family", paused: "pause",
  completed: "check", failed: "cross", dead_letter: "skull", cancelled: "minus", superseded: "swap",
  expired: "hourglass", dependency_failed: "chain",
};

export const stateIcon = (state) => icon(OF_STATE[state] ?? "dot");
