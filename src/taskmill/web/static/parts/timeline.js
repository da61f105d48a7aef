// The life of a task as a band: waiting, held, each attempt, its end; below it the same as a list of sentences.

import { h } from "../dom.js";
import { absolute, duration } from "../format.js";
import { moment } from "./basics.js";

/**
 * Draw spans of {kind, from, to, text} (milliseconds; `open` if it still lasts) and marks of {at, text}.
 * A span that is too short to see keeps a width that can be pointed at.
 */
export function timeline(spans, marks, now) {
  if (!spans.length) return null;
  const first = Math.min(...spans.map((span) => span.from));
  const last = Math.max(...spans.map((span) => span.to), first + 1);
  const part = (time) => `${((time - first) / (last - first)) * 100}%`;
  return h("figure", { class: "timeline" },
    h("div", { class: "band", role: "img",
      "aria-label": spans.map((span) => `${span.text}: ${duration((span.to - span.from) / 1000)}`).join("; ") },
      spans.map((span, place) => h("i", { key: place, class: `span ${span.open ? "open" : ""}`, "data-kind": span.kind,
        title: `${span.text}: ${duration((span.to - span.from) / 1000)}\n${absolute(span.from)} – ${absolute(span.to)}`,
        style: { "--from": part(span.from), "--size": `${((span.to - span.from) / (last - first)) * 100}%` } },
      h("span", { class: "cut" }, span.short ?? span.text))),
      marks.filter((mark) => mark.at >= first && mark.at <= last).map((mark) =>
        h("s", { key: mark.text, class: "mark", title: `${mark.text}\n${absolute(mark.at)}`,
          style: { "--from": part(mark.at) } }))),
    h("figcaption", { class: "chart-times tiny faint" }, moment(new Date(first).toISOString(), now),
      h("span", null, duration((last - first) / 1000)), moment(new Date(last).toISOString(), now)));
}
