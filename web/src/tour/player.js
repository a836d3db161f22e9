// Shows events one after another at a speed that can be followed. The server takes a send's five steps within a few
// milliseconds; the player spreads them out, and hurries when many wait, so that it is never behind by much.

/** Between two steps while few wait. */
const CALM_MS = 420;
/** What waits is all shown within this after the last of it came. */
const BEHIND_MS = 3000;
/** Faster than this nobody could see it. */
const HURRY_MS = 30;
/** Beyond this many the oldest are shown at once. */
const MOST = 80;

export class Player {
  /** Milliseconds that the server itself waits between steps; between two of its waits two steps may come. */
  pace = 0;

  /**
   * @param {(event: object) => void} show
   * @param {{setTimeout?: Function, clearTimeout?: Function, now?: () => number}} clock for tests
   */
  constructor(show, { setTimeout = (f, ms) => globalThis.setTimeout(f, ms), clearTimeout = (t) => globalThis.clearTimeout(t), now = () => performance.now() } = {}) {
    Object.assign(this, { show, setTimeout, clearTimeout, now, queue: [], timer: null, shownAt: -Infinity, cameAt: -Infinity });
  }

  get idle() { return this.queue.length === 0; }

  push(event) {
    this.queue.push(event);
    this.cameAt = this.now();
    while (this.queue.length > MOST) this.next();
    this.plan();
  }

  clear() {
    this.queue = [];
    this.clearTimeout(this.timer);
    this.timer = null;
  }

  gap() {
    const left = this.cameAt + BEHIND_MS - this.now();
    const calm = this.pace ? Math.min(CALM_MS, this.pace * 0.45) : CALM_MS;
    return Math.min(calm, Math.max(HURRY_MS, left / this.queue.length));
  }

  plan() {
    if (this.timer !== null || this.idle) return;
    const wait = Math.max(0, this.shownAt + this.gap() - this.now());
    this.timer = this.setTimeout(() => { this.timer = null; this.next(); this.plan(); }, wait);
  }

  next() {
    const event = this.queue.shift();
    this.shownAt = this.now();
    this.show(event);
  }
}
