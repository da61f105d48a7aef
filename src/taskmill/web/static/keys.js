// Keys: "/" filters, j and k move, x selects, Enter opens, r retries, c cancels, f freezes, ? lists them.

import { h } from "./dom.js";
import { ask, isDialogOpen } from "./parts/dialog.js";
import { go, href } from "./router.js";

const GENERAL = {
  "/": "filter tasks",
  "f": "freeze the page, or continue",
  "?": "show this list",
  "g then o t u s m e n y": "go to Overview, Tasks, Groups, Schedules, Machine, Errors, Nodes, System",
};
const IN_LISTS = {
  "j, k": "next and previous task",
  "x": "select or unselect the task",
  "Enter": "open the task",
  "r": "retry the task, or the selected ones",
  "c": "cancel the task, or the selected ones",
};
const PLACES = { o: "overview", t: "tasks", u: "groups", s: "schedules", m: "machine", e: "errors", n: "nodes", y: "system" };

export function showKeys() {
  const list = (keys) => h("dl", { class: "key-list" }, Object.entries(keys).map(([key, text]) =>
    h("div", { key },
      h("dt", null, key.split(/(, | then | )/).map((part) => (/^(, | then | )$/.test(part) ? part : h("kbd", null, part)))),
      h("dd", null, text))));
  ask({ title: "Keys",
    body: () => [h("h3", null, "Everywhere"), list(GENERAL), h("h3", null, "In lists and on a task"), list(IN_LISTS)] });
}

export function listenToKeys(page, view) {
  let isGoing = false;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isDialogOpen() || page.locked !== null) return;
    const target = event.target;
    if (target.closest?.("input:not([type=checkbox]), textarea, select")) return;
    const key = event.key;
    if (isGoing) {
      isGoing = false;
      if (PLACES[key]) {
        event.preventDefault();
        go(href(PLACES[key]));
      }
      return;
    }
    if (key === "g") {
      isGoing = true;
      setTimeout(() => { isGoing = false; }, 1500);
    } else if (key === "?") {
      event.preventDefault();
      showKeys();
    } else if (key === "f") {
      page.live.freeze(!page.live.frozen);
    } else if (key === "/") {
      event.preventDefault();
      if (page.route.name === "tasks") view().keys["/"](page);
      else go(href("tasks", { focus: "filter" }));
    } else if (key === "Enter" && target.closest?.("a, button")) {
      // The focused link or button answers itself.
    } else if (view().keys?.[key]) {
      event.preventDefault();
      view().keys[key](page);
    }
  });
}
