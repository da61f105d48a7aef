// Dialogs that ask before something is done, and short messages about what was done.

import { h, show } from "../dom.js";
import { button } from "./basics.js";

let open = null;

/** True while a dialog is open: keys of the page do nothing then. */
export const isDialogOpen = () => open !== null;

/**
 * Ask the reader. `body` is a function that describes the content; it is called again by `redraw`, which it gets.
 * `act` does the work and may throw: its sentence is shown and the dialog stays open.
 */
export function ask({ title, body, action, kind = "accent", isWide = false, act }) {
  const container = document.getElementById("dialogs");
  const back = document.activeElement;
  let error = null;
  let busy = false;
  const close = () => {
    open = null;
    show(container);
    back?.focus?.();
  };
  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    busy = true;
    error = null;
    redraw();
    try {
      await act();
      close();
    } catch (problem) {
      error = problem.message;
      busy = false;
      redraw();
    }
  };
  const redraw = () => {
    if (open !== redraw) return;
    show(container,
      h("dialog", { class: `dialog ${isWide ? "wide" : ""}`, "aria-labelledby": "dialog-title", oncancel: (event) => { event.preventDefault(); close(); },
      onclick: (event) => { if (event.target === event.currentTarget) close(); },
      created: (node) => queueMicrotask(() => { if (!node.open && node.isConnected) node.showModal(); }) },
    h("form", { method: "dialog", onsubmit: submit },
      h("h2", { id: "dialog-title" }, title),
      h("div", { class: "dialog-body" }, body(redraw)),
      error && h("p", { class: "dialog-error", role: "alert" }, error),
      h("div", { class: "dialog-actions" },
        button(action ? "Back" : "Close", { onclick: close, kind: "plain" }),
        action && button(busy ? "Working…" : action, { type: "submit", kind, disabled: busy })))));
  };
  open = redraw;
  redraw();
}

const SHOWN_MS = 6000;
let toasts = [];
let lastKey = 0;

/** Say for some seconds what happened. */
export function toast(text, kind = "good") {
  const one = { key: ++lastKey, text, kind };
  toasts = [...toasts.slice(-3), one];
  drawToasts();
  setTimeout(() => {
    toasts = toasts.filter((other) => other !== one);
    drawToasts();
  }, SHOWN_MS);
}

function drawToasts() {
  show(document.getElementById("toasts"), toasts.map((one) => h("div", { key: one.key, class: `toast ${one.kind}` }, one.text)));
}
