// The dialog that changes a group: before anything is applied, it shows the shares and a simulation of the queue.

import { post } from "../api.js";
import { h } from "../dom.js";
import { groupName, plural } from "../format.js";
import { ask } from "../parts/dialog.js";
import { whatIf } from "./what_if.js";

const PREVIEW_PAUSE_MS = 250;
const SIMULATION_PAUSE_MS = 500;

export function editGroup(page, group, list) {
  const given = { weight: String(group.weight), cap: group.cap === null ? "" : String(group.cap),
    min_slots: String(group.min_slots), permits: group.rate ? String(group.rate.permits) : "",
    interval: group.rate ? String((group.rate.interval_ms ?? 1000) / 1000) : "1" };
  const share = () =>
    ({ weight: Number(given.weight), cap: given.cap === "" ? null : Number(given.cap), min_slots: Number(given.min_slots) });
  const settings = () =>
    ({ ...share(), rate: given.permits === "" ? null : { permits: Number(given.permits), interval: Number(given.interval) } });
  let redraw = null;
  const shares = inquiry("groups/preview", () => ({ groups: { [group.name]: share() } }), PREVIEW_PAUSE_MS, () => redraw());
  const queue = inquiry("simulate", () => ({ groups: { [group.name]: settings() } }), SIMULATION_PAUSE_MS, () => redraw());

  ask({
    title: `${page.canAct ? "Change" : "Try settings of"} ${group.name ? `group ${group.name}` : "the tasks without a group"}`,
    action: page.canAct ? "Apply" : null,
    isWide: true,
    body(again) {
      if (redraw === null) {
        redraw = again;
        shares.ask(0);
        queue.ask(0);
      }
      const field = (name, label, props) =>
        h("label", { class: "field" }, label,
          h("input", { type: "number", name, value: given[name], ...props, oninput: (event) => {
            given[name] = event.target.value;
            shares.ask();
            queue.ask();
            redraw();
          } }));
      return [
        h("div", { class: "fields" },
          field("weight", "Weight", { min: "0.001", step: "any", required: true }),
          field("cap", "Cap (empty: none)", { min: "1", step: "1" }),
          field("min_slots", "Minimum", { min: "0", step: "1", required: true }),
          field("permits", "Starts (empty: no rate)", { min: "1", step: "1" }),
          field("interval", "per seconds", { min: "0.001", step: "any" })),
        h("div", { class: "compared" },
          h("section", { "aria-label": "Shares" },
            h("h3", null, `Shares of ${plural(list.max_concurrency, "slot")} after this change`),
            shares.problem ? h("p", { class: "dialog-error" }, shares.problem.message) : bars(shares.answer, group.name)),
          whatIf(queue, group.name, list.max_concurrency, page.now)),
      ];
    },
    act: () => page.act(`groups/${encodeURIComponent(group.name)}`, settings(), `Group ${groupName(group.name)} has its new settings.`),
  });
}

/**
 * Ask the server about the settings in the fields, one request at a time, after a pause in which they do not change.
 * It has the last `answer`, or the `problem` with it, and whether a newer one is awaited.
 */
function inquiry(path, body, pause, changed) {
  let timer = null;
  let isSent = false;
  let isAgain = false;
  const send = async () => {
    isSent = true;
    try {
      one.answer = await post(path, body());
      one.problem = null;
    } catch (error) {
      one.problem = error;
    }
    isSent = false;
    one.isAsking = false;
    if (isAgain) one.ask(0);
    changed();
  };
  const one = {
    answer: null, problem: null, isAsking: false,
    ask(delay = pause) {
      one.isAsking = true;
      isAgain = isSent;
      clearTimeout(timer);
      if (!isSent) timer = setTimeout(send, delay);
    },
  };
  return one;
}

function bars(preview, name) {
  if (preview === null) return h("p", { class: "soft small" }, "Asking…");
  const shown = preview.groups.filter((group) => group.name === name || group.slots || group.new_slots).slice(0, 10);
  const most = Math.max(1, preview.max_concurrency);
  return [
    !preview.is_shared && h("p", { class: "small soft" },
      "No group would have a weight or a minimum: priority alone decides, and groups have no shares."),
    h("ul", { class: "preview" }, shown.map((group) => h("li", { key: group.name, class: group.name === name ? "chosen" : "" },
      h("span", { class: "cut", title: group.name }, groupName(group.name)),
      h("div", { class: "preview-bars" }, h("i", { class: "before", style: { "--part": `${(100 * group.slots) / most}%` } }),
        h("i", { class: "after", style: { "--part": `${(100 * group.new_slots) / most}%` } })),
      h("b", { class: "number" }, group.slots === group.new_slots ? group.slots : `${group.slots} → ${group.new_slots}`)))),
  ];
}
