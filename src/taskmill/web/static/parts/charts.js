// Pictures of numbers over time: sparklines, stacked areas, steps. The drawings are SVG without texts: texts stand
// beside them as HTML, so that they are never stretched.

import { h } from "../dom.js";
import { moment } from "./basics.js";

const WIDE = 1000;
const HIGH = 100;
/** A chart over time covers two minutes at least: what was seen so far grows from the right. */
const SHORTEST_MS = 120_000;

const at = (value, low, high, size) => (high > low ? ((value - low) / (high - low)) * size : 0);
const round = (value) => Math.round(value * 10) / 10;

/** Draw evenly spaced values as a line over a pale area. */
export function sparkline(values, { label, high = null, tone = "accent" } = {}) {
  const top = Math.max(high ?? 0, ...values, 1e-9);
  const step = WIDE / Math.max(1, values.length - 1);
  const points = values.map((value, place) => [round(place * step), round(HIGH - at(value, 0, top, HIGH - 4) - 2)]);
  const line = points.map(([x, y]) => `${x} ${y}`).join("L");
  return h("svg",
    { class: "sparkline", "data-tone": tone, viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img",
      "aria-label": label ?? "over time" },
    points.length > 1 && h("path", { class: "ground", d: `M0 ${HIGH}L${line}L${WIDE} ${HIGH}Z` }),
    points.length > 1 && h("path", { class: "stroke", d: `M${line}` }));
}

/** Draw bars, one for each of `values`: {parts: [[tone, amount], …], title}, the parts on top of each other. */
export function columns(values, { label }) {
  const top = Math.max(...values.map((one) => total(one.parts)), 1e-9);
  const width = WIDE / Math.max(1, values.length);
  return h("svg",
    { class: "columns", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    values.map((one, place) => {
      let base = HIGH;
      return h("g", { key: place }, h("title", null, one.title),
        h("rect", { class: "reach", x: round(place * width), y: 0, width: round(width), height: HIGH }),
        one.parts.filter(([, amount]) => amount > 0).map(([tone, amount]) => {
          const tall = Math.max(2, at(amount, 0, top, HIGH));
          base -= tall;
          return h("rect",
            { x: round(place * width + width * 0.12), y: round(base), width: round(width * 0.76), height: round(tall),
              "data-tone": tone });
        }));
    }));
}

const total = (parts) => parts.reduce((sum, [, amount]) => sum + amount, 0);

/** Draw lines over a common scale; a gap where a value is null. */
export function lines(series, { label, tones: colours }) {
  const top = Math.max(...series.flat().map((value) => value ?? 0), 1e-9);
  const count = Math.max(...series.map((values) => values.length), 2);
  const path = (values) => {
    let isDown = false;
    return values.map((value, place) => {
      if (value === null) {
        isDown = false;
        return "";
      }
      const move = isDown ? "L" : "M";
      isDown = true;
      const [x, y] = [round((place / (count - 1)) * WIDE), round(HIGH - 3 - at(value, 0, top, HIGH - 6))];
      // A value begins half a step before its point, so that a lone one is seen.
      return move === "M" ? `M${Math.max(0, round(x - WIDE / (count - 1) / 2))} ${y}H${x}` : `L${x} ${y}`;
    }).join("");
  };
  return h("svg",
    { class: "columns lines", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    series.map((values, place) => h("path", { key: place, class: "stroke", "data-tone": colours[place], d: path(values) })));
}

/**
 * Draw series over time on top of each other. `points` are {at, values: [..]} in order of time, `names` one per series,
 * `line` an optional level such as the number of slots.
 */
export function stacked(points, { names, tones, label, top = 0, line = null, now }) {
  const last = points.length ? points[points.length - 1].at : 1;
  const first = Math.min(points.length ? points[0].at : 0, last - SHORTEST_MS);
  const sums = points.map((point) => point.values.reduce((sum, value) => sum + value, 0));
  const high = Math.max(top, line ?? 0, ...sums, 1);
  const x = (time) => round(at(time, first, last, WIDE));
  const y = (value) => round(HIGH - at(value, 0, high, HIGH));
  const base = points.map(() => 0);
  const layers = names.map((name, layer) => {
    const lower = [...base];
    points.forEach((point, place) => { base[place] += point.values[layer] ?? 0; });
    if (points.length < 2) return null;
    // Steps, not slopes: a share changes at an instant.
    const up = points.map((point, place) => `${place ? `H${x(point.at)}V` : `${x(point.at)} `}${y(base[place])}`).join("");
    const down = points.map((point, place) => place).reverse()
      .map((place, turn) => (turn === 0 ? `V${y(lower[place])}` : `V${y(lower[place])}H${x(points[place].at)}`)).join("");
    return h("path", { key: name, class: "layer", "data-tone": tones[layer], d: `M${up}${down}Z` });
  });
  return h("figure", { class: "chart" },
    h("div", { class: "chart-frame" },
      h("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, layers,
        line !== null && h("path", { class: "limit", d: `M0 ${y(line)}H${WIDE}` })),
      h("span", { class: "chart-top tiny faint" }, round(high)),
      points.length < 2 && h("span", { class: "chart-wait small faint" },
        "Collecting: the picture grows while this page is open.")),
    points.length > 1 && h("figcaption", { class: "chart-times tiny faint" }, moment(new Date(first).toISOString(), now),
      moment(new Date(last).toISOString(), now)));
}

/** Draw a value that changes in steps, such as the effective priority; lower is more urgent and drawn higher. */
export function steps(points, { low, high, mark = null, label }) {
  const first = points[0].at;
  const last = points[points.length - 1].at;
  const x = (time) => round(at(time, first, last, WIDE));
  const y = (value) => round(6 + at(value, low, high, HIGH - 12));
  const path = points.map((point, place) =>
    (place ? `H${x(point.at)}V${y(point.value)}` : `M${x(point.at)} ${y(point.value)}`)).join("");
  return h("svg", { class: "steps", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("path", { class: "ground", d: `${path}V${HIGH}H${x(first)}Z` }),
    h("path", { class: "stroke", d: path }),
    mark !== null && h("path", { class: "limit", d: `M${x(mark)} 0V${HIGH}` }));
}

export function legend(names, tones, values = null) {
  return h("ul", { class: "legend" }, names.map((name, place) =>
    h("li", { key: name }, h("i", { "data-tone": tones[place] }), h("span", { class: "cut" }, name),
      values && h("b", null, values[place]))));
}

const places = new Map();

/** Return the names in the order in which the page first saw them, so that layers do not swap while it is live. */
export function steady(names) {
  for (const name of names) if (!places.has(name)) places.set(name, places.size);
  return [...names].sort((one, other) => places.get(one) - places.get(other));
}

/** Return a tone for each name: a group keeps its colour as long as the page is open. */
export const tones = (names) => names.map((name) => `g-${(places.get(name) ?? 7) % 8}`);
