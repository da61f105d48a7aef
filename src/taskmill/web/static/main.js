// Starts the page: opens a session, follows the address, reads what the view needs, draws it.

import { ApiError, get, post } from "./api.js";
import { h, show } from "./dom.js";
import { Live } from "./live.js";
import { remember } from "./memory.js";
import { current } from "./router.js";
import { gate, shell } from "./shell.js";
import { listenToKeys } from "./keys.js";
import { toast } from "./parts/dialog.js";
import { VIEWS } from "./views/index.js";

const root = document.getElementById("app");

/** An overview that was made up to so many milliseconds before the one that is shown has only arrived late. */
const LONGEST_CROSSING = 10_000;

/** The token stays in memory, never in storage: with it the page signs in again after the server was restarted. */
let known = null;

/** What a view draws from. `data` is what it asked for, by name; `overview` is known on every view. */
const page = {
  route: current(),
  data: {},
  overview: null,
  session: null,
  problem: null,
  /** True while the data are those of the previous address. */
  isStale: false,
  now: Date.now(),
  live: null,
  locked: null,
  get canAct() {
    return page.session?.access === "full";
  },
  /** True if everything that the view draws was read, even if it is no longer up to date. */
  get isReady() {
    return page.overview !== null && Object.keys(view().reads(page.route)).every((name) => page.data[name] !== undefined);
  },
  redraw: draw,
  refresh: () => page.live.now(),
  act,
};

function view() {
  return VIEWS[page.route.name] ?? VIEWS.missing;
}

function draw() {
  if (page.locked !== null) {
    document.title = "taskmill";
    show(root, gate(page, signIn));
    return;
  }
  const title = view().title(page);
  document.title = `${title} – taskmill`;
  show(root, shell(page, title, body()));
}

function body() {
  if (page.isReady) return h("div", { key: `${page.route.name}/${page.route.id ?? ""}`, class: "view" }, view().draw(page));
  return h("div", { key: "wait", class: "view" }, page.problem
    ? h("div", { class: "card empty", role: "alert" }, h("b", null, "This cannot be shown"),
      h("p", { class: "soft" }, page.problem))
    : h("div", { class: "card empty waiting-card", "aria-busy": "true" }, h("p", { class: "soft" }, "Reading…")));
}

/**
 * Read what the view shows: `everything`, or only what the stream does not bring. Return false if the server does not
 * answer.
 */
async function refresh(everything) {
  const route = page.route;
  const reads = { ...view().reads(route) };
  const names = Object.keys(reads);
  const needsOverview = everything || page.problem !== null || !page.live.bringsOverview;
  if (!needsOverview && names.length === 0) return true;
  try {
    page.session ??= await get("session");
    const [overview, ...answers] = await Promise.all(
      [needsOverview ? get("overview") : null, ...names.map((name) => get(...reads[name]))]);
    if (page.route !== route) return true;
    if (overview !== null) know(overview);
    page.data = Object.fromEntries(names.map((name, place) => [name, answers[place]]));
    page.problem = null;
    page.isStale = false;
    page.now = Date.now();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (page.route !== route) return true;
    if (error.status === 401) await signInAgain();
    page.problem = error.message;
    if (error.status === 404) page.data = {};
    return error.status !== 0;
  }
  draw();
  return true;
}

/** Take an overview, unless a later one is known: one of the stream and one that was asked for may cross. */
function know(overview) {
  const behind = page.overview === null ? 0 : Date.parse(page.overview.at) - Date.parse(overview.at);
  // If it is further behind, the server's clock was set back.
  if (behind > 0 && behind < LONGEST_CROSSING) return;
  page.overview = overview;
  page.now = Date.now();
  remember(overview, page.now);
}

/** Show an overview that the stream has brought. */
function takeOverview(overview) {
  know(overview);
  draw();
}

/** Do something for the reader, say what came of it, and read again. Errors are for the caller to show. */
async function act(path, body_, done) {
  const answer = await post(path, body_);
  toast(typeof done === "function" ? done(answer) : done);
  page.refresh();
  return answer;
}

async function signIn(token) {
  try {
    page.session = await post("session", { token });
    known = token;
    page.locked = null;
    page.route = current();
    page.live.open();
  } catch (error) {
    lock(error.message);
  }
}

/** The session has ended, as it does when the server restarts. */
async function signInAgain() {
  if (known === null) {
    lock("");
    return;
  }
  try {
    page.session = await post("session", { token: known });
    page.live.soon();
  } catch (error) {
    if (error.status !== 401) return;
    known = null;
    lock("The session has ended and the token is no longer valid. Open the address that “taskmill web” prints now.");
  }
}

/** Show nothing but the request for a token, with a sentence about the last one. */
function lock(sentence) {
  page.locked = sentence;
  page.session = null;
  page.live.close();
  draw();
}

function follow() {
  const token = takeToken();
  if (token !== null) {
    signIn(token);
    return;
  }
  const before = page.route;
  if (page.locked !== null) return;
  page.route = current();
  page.isStale = true;
  if (before.name !== page.route.name || before.id !== page.route.id) {
    page.data = {};
    page.problem = null;
    scrollTo(0, 0);
    VIEWS[before.name]?.leave?.();
  }
  page.now = Date.now();
  draw();
  page.live.now();
}

/** Take the token out of the address, so that it is neither shown nor bookmarked nor shared. */
function takeToken() {
  const found = location.hash.match(/^#token=([^&]*)/);
  if (!found) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return decodeURIComponent(found[1]);
}

async function start() {
  const token = takeToken();
  page.live = new Live(refresh, takeOverview, draw);
  page.route = current();
  addEventListener("hashchange", follow);
  listenToKeys(page, view);
  if (token !== null) await signIn(token);
  else page.live.open();
  // Relative times and countdowns move on without asking the server.
  setInterval(() => {
    if (page.live.stopped || page.overview === null || page.locked !== null) return;
    page.now = Date.now();
    draw();
  }, 1000);
}

start();
