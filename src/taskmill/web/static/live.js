// When to ask the server again: after its events, and now and then without one.
//
// The stream of events says that something changed, and brings the overview, which is not asked for while it comes.
// Without a stream the page asks every few seconds. Nothing is asked while the tab is hidden or the page is frozen. A
// lost stream is opened again with growing pauses.

const QUICKEST = 1000;
const WITH_STREAM = 5000;
const WITHOUT_STREAM = 2500;
/** The server answers the same question from memory for up to two seconds: after an event, ask once more when that is over. */
const SETTLED = 2200;
const LONGEST_PAUSE = 8000;
/** The server sends an overview at least every five seconds: after this time without one, ask for it. */
const LATE_OVERVIEW = 12000;

export class Live {
  /**
   * `refresh(everything)` reads the data of the present view again, with `everything` also what the stream brings;
   * `take(overview)` takes an overview of the stream; `changed` draws the state of the connection.
   */
  constructor(refresh, take, changed) {
    this.closed = true;
    this.frozen = false;
    this.reachable = true;
    this.streaming = false;
    this.refresh = refresh;
    this.take = take;
    this.tookAt = -Infinity;
    this.changed = changed;
    this.source = null;
    this.timer = null;
    this.reopening = null;
    this.pause = 500;
    this.lastAt = 0;
    this.busy = false;
    /** Asked for while a request was under way: "soon" or "now". */
    this.again = null;
    this.hasNews = false;
    document.addEventListener("visibilitychange", () => this.#follow());
    addEventListener("online", () => this.#follow());
  }

  get state() {
    if (this.frozen) return "frozen";
    if (!this.reachable) return "offline";
    return this.streaming ? "live" : "polling";
  }

  /** True if the stream brings overviews, so that none has to be asked for. */
  get bringsOverview() {
    return this.streaming && performance.now() - this.tookAt < LATE_OVERVIEW;
  }

  get stopped() {
    return this.closed || this.frozen || document.hidden;
  }

  /** Begin to ask: there is a session. */
  open() {
    this.closed = false;
    this.#follow();
  }

  /** Ask nothing more until there is a session again. */
  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.#closeStream();
  }

  freeze(frozen) {
    this.frozen = frozen;
    this.#follow();
  }

  /** Ask again soon, but not more often than once a second. */
  soon() {
    if (this.stopped) return;
    this.hasNews = true;
    if (this.busy) {
      this.again ??= "soon";
      return;
    }
    this.#at(Math.max(0, this.lastAt + QUICKEST - performance.now()));
  }

  /** Ask for everything again at once: the reader changed something. */
  now() {
    return this.#ask(true);
  }

  async #ask(everything) {
    if (this.closed) return;
    clearTimeout(this.timer);
    if (this.busy) {
      this.again = everything ? "now" : this.again ?? "soon";
      return;
    }
    const hadNews = this.hasNews;
    this.hasNews = false;
    this.busy = true;
    this.again = null;
    this.lastAt = performance.now();
    try {
      this.reachable = await this.refresh(everything);
    } catch (error) {
      // A fault in the page itself: report it as uncaught, and keep asking.
      reportError(error);
    } finally {
      this.busy = false;
      this.changed();
    }
    if (this.again === "now") this.now();
    else if (this.again) this.soon();
    else if (!this.stopped) this.#at(hadNews ? SETTLED : this.streaming ? WITH_STREAM : WITHOUT_STREAM);
  }

  #at(delay) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#ask(false), delay);
  }

  #follow() {
    if (this.stopped) {
      clearTimeout(this.timer);
      this.#closeStream();
    } else {
      this.#openStream();
      this.now();
    }
    this.changed();
  }

  #closeStream() {
    clearTimeout(this.reopening);
    this.source?.close();
    this.source = null;
    this.streaming = false;
  }

  #openStream() {
    if (this.source) return;
    clearTimeout(this.reopening);
    const source = new EventSource("api/events?overview=true");
    this.source = source;
    source.onopen = () => {
      this.streaming = true;
      this.reachable = true;
      this.pause = 500;
      this.soon();
      this.changed();
    };
    source.onmessage = () => this.soon();
    source.addEventListener("overview", (event) => {
      this.tookAt = performance.now();
      this.take(JSON.parse(event.data));
    });
    source.onerror = () => {
      // The browser's own attempts are slow and give up after an error page: open it again ourselves.
      this.#closeStream();
      this.reopening = setTimeout(() => this.stopped || this.#openStream(), this.pause);
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
      this.soon();
      this.changed();
    };
  }
}
