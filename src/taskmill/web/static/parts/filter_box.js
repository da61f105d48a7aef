// The box in which tasks are filtered: words such as "type:sync::upload state:failed tag:tenant=a", with completion.

import { h } from "../dom.js";
import { number } from "../format.js";
import { icon } from "./icons.js";

const FIELDS = {
  type: "a task type, such as sync::upload",
  group: "the group",
  state: "a status or an ending",
  tag: "a tag, as name=value",
  key: "the key",
  domain: "the domain",
  parent: "the id of the parent",
};

export const STATES = ["pending", "scheduled", "blocked", "running", "waiting", "paused",
  "completed", "failed", "dead_letter", "cancelled", "superseded", "expired", "dependency_failed"];

/** Split a filter into its words; quotes keep spaces together. Throws a sentence if a word is not understood. */
export function parse(text) {
  const terms = [];
  for (const [word] of text.matchAll(/(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g)) {
    const colon = word.indexOf(":");
    const field = colon < 0 ? "" : word.slice(0, colon);
    if (!(field in FIELDS)) throw new Error(`“${word}” is not understood. A filter is made of ${Object.keys(FIELDS).map((name) => `${name}:`).join(", ")}.`);
    terms.push([field, unquoted(word.slice(colon + 1))]);
  }
  return terms;
}

/** Return the words as parameters of the API. Throws a sentence if one occurs twice: all of them must match. */
export function asFilters(terms) {
  const found = {};
  for (const [field, value] of terms) {
    if (field === "tag") {
      if (!value.includes("=")) throw new Error(`“tag:${value}” needs a value: tag:name=value.`);
      (found.tag ??= []).push(value);
    } else if (field in found) {
      throw new Error(`“${field}:” may be given once.`);
    } else if (field === "state" && ![...STATES, "active", "ended"].includes(value)) {
      throw new Error(`“${value}” is not a state. States are ${STATES.join(", ")}, and “active” or “ended” for several.`);
    } else if (field === "parent" && !/^\d+$/.test(value)) {
      throw new Error(`“parent:${value}” needs the id of a task.`);
    } else {
      found[field] = value;
    }
  }
  return found;
}

function unquoted(text) {
  if (!text.startsWith('"')) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text.slice(1);
  }
}

/** The state of one box. `apply` is called with the text once the reader has finished it. */
export class FilterBox {
  constructor({ apply, suggest, redraw }) {
    this.apply = apply;
    this.suggest = suggest;
    this.redraw = redraw;
    this.text = "";
    this.choices = [];
    this.chosen = -1;
    this.asked = 0;
    this.node = null;
    this.editing = false;
  }

  /** Follow the address, unless the reader is typing. */
  follow(text) {
    if (!this.editing) this.text = text;
  }

  focus() {
    this.node?.focus();
    this.node?.select();
  }

  view() {
    const open = this.editing && this.choices.length > 0;
    return h("div", { class: "filter-box", role: "search" },
      icon("search"),
      h("input", {
        type: "text", class: "filter-input", value: this.text, spellcheck: "false", autocomplete: "off", autocapitalize: "off",
        placeholder: "type:  group:  state:  tag:  key:",
        role: "combobox", "aria-label": "Filter tasks", "aria-expanded": String(open), "aria-controls": "filter-choices",
        "aria-autocomplete": "list", "aria-activedescendant": open && this.chosen >= 0 ? `choice-${this.chosen}` : null,
        created: (node) => { this.node = node; },
        onfocus: () => { this.editing = true; this.#complete(); },
        onblur: () => this.#leave(),
        oninput: (event) => { this.text = event.target.value; this.#complete(); },
        onclick: () => this.#complete(),
        onkeydown: (event) => this.#key(event),
      }),
      this.text && h("button", { type: "button", class: "button quiet", "aria-label": "Clear the filter", title: "Clear the filter",
        onclick: () => { this.text = ""; this.#finish(); } }, icon("cross")),
      h("kbd", { class: "hide-small", "aria-hidden": "true" }, "/"),
      open && h("ul", { class: "choices", id: "filter-choices", role: "listbox" },
        this.choices.map((choice, place) => h("li", {
          key: choice.word, id: `choice-${place}`, role: "option", "aria-selected": String(place === this.chosen),
          // Before the box loses its focus.
          onmousedown: (event) => { event.preventDefault(); this.#take(choice); },
        }, h("span", { class: "cut" }, choice.shown), h("span", { class: "faint small cut" }, choice.note)))));
  }

  #word() {
    const end = this.node.selectionStart ?? this.text.length;
    const start = this.text.slice(0, end).search(/(?:[^\s"]|"(?:[^"\\]|\\.)*"?)*$/);
    return { start, end, word: this.text.slice(start, end) };
  }

  async #complete() {
    const asked = ++this.asked;
    const { word } = this.#word();
    const colon = word.indexOf(":");
    const field = colon < 0 ? null : word.slice(0, colon);
    let choices = [];
    if (field === null) {
      choices = Object.entries(FIELDS).filter(([name]) => name.startsWith(word))
        .map(([name, note]) => ({ word: `${name}:`, shown: `${name}:`, note, open: true }));
    } else if (field in FIELDS && field !== "parent") {
      const typed = unquoted(word.slice(colon + 1));
      const found = field === "state"
        ? ["active", "ended", ...STATES].filter((state) => state.startsWith(typed)).map((value) => ({ value }))
        : await this.suggest(field, typed).catch(() => []);
      choices = found.map(({ value, count, open }) => ({
        word: `${field}:${/[\s"]/.test(value) || value === "" ? JSON.stringify(value) : value}`,
        shown: value || "(none)", note: count ? number(count) : "", open,
      }));
    }
    if (asked !== this.asked || !this.editing) return;
    this.choices = choices.slice(0, 12);
    this.chosen = -1;
    this.redraw();
  }

  #take(choice) {
    const { start, end } = this.#word();
    const space = choice.open ? "" : " ";
    this.text = `${this.text.slice(0, start)}${choice.word}${space}${this.text.slice(end).trimStart()}`;
    this.node.value = this.text;
    const caret = start + choice.word.length + space.length;
    this.node.setSelectionRange(caret, caret);
    if (choice.open) this.#complete();
    else this.#finish(true);
  }

  #finish(stay = false) {
    this.choices = [];
    this.chosen = -1;
    this.asked++;
    this.apply(this.text.trim());
    if (!stay) this.node.blur();
    this.redraw();
  }

  #leave() {
    this.editing = false;
    this.choices = [];
    this.asked++;
    this.apply(this.text.trim());
    this.redraw();
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.choices.length) {
      event.preventDefault();
      this.chosen = (this.chosen + step + this.choices.length + (this.chosen < 0 && step < 0 ? 1 : 0)) % this.choices.length;
      this.redraw();
    } else if ((event.key === "Enter" || event.key === "Tab") && this.chosen >= 0) {
      event.preventDefault();
      this.#take(this.choices[this.chosen]);
    } else if (event.key === "Enter") {
      this.#finish();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      if (this.choices.length) {
        this.choices = [];
        this.redraw();
      } else {
        this.node.blur();
      }
    }
  }
}
