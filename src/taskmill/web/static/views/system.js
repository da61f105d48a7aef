// System: settings in effect, versions, the store, and what “taskmill doctor” finds.

import { h } from "../dom.js";
import { bytes, groupName, sentence, words } from "../format.js";
import { card, facts } from "../parts/basics.js";
import { icon } from "../parts/icons.js";

const SIGNS = { ok: "check", note: "dot", problem: "cross" };

export const system = {
  title: () => "System",
  reads: () => ({ found: ["system"] }),

  draw(page) {
    const { versions, store, settings, findings, is_healthy: isHealthy } = page.data.found;
    return [
      h("div", { class: "head" }, h("h1", null, "System"),
        h("span", { class: `chip ${isHealthy ? "good" : "bad"}` }, isHealthy ? "no problem found" : "a problem was found")),
      h("div", { class: "cards wide" },
        h("div", { class: "stack" },
          card("Checks", { note: "as “taskmill doctor”" },
            h("ul", { class: "findings" },
              findings.map((one, place) =>
                h("li", { key: place, "data-level": one.level }, icon(SIGNS[one.level] ?? "dot", one.level),
                  h("div", null, h("b", null, sentence(one.subject)), h("p", { class: "small soft" }, one.text)))))),
          card("Versions", null, facts(Object.entries(versions), { class: "lines" }))),
        h("div", { class: "stack" },
          card("Store", null, facts(rows(store), { class: "lines" })),
          card("Settings in effect", null, facts(rows(settings), { class: "lines" })))),
    ];
  },
};

const rows = (values) =>
  Object.entries(values).map(([name, value]) =>
    [sentence(words(name)), name.endsWith("bytes") && typeof value === "number" ? bytes(value) : text(value)]);

/** A mapping of mappings is a line for each; what is deeper stands in one line. */
function text(value) {
  if (value === null || typeof value !== "object") return inline(value);
  const parts = Object.entries(value);
  const isDeep = parts.some(([, one]) => one !== null && typeof one === "object");
  if (!isDeep || !parts.length) return inline(value);
  return parts.map(([name, one]) =>
    h("div", { key: name }, !Array.isArray(value) && h("span", { class: "soft" }, `${groupName(name)}: `), inline(one)));
}

function inline(value) {
  if (value === null || value === undefined) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object") return String(value);
  const parts = Object.entries(value).filter(([, one]) => one !== null);
  return parts.map(([name, one]) =>
    (Array.isArray(value) ? inline(one)
      : `${words(name)} ${typeof one === "object" ? `(${inline(one)})` : inline(one)}`)).join(", ") || "none";
}
