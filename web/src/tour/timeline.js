// The replay. The server takes the five steps of a send within a few milliseconds; the timeline queues steps and the
// frames that the phones received, in the order in which they happened, and shows them at the visitor's speed. The server
// never waits for it.

/** Between two steps at the speed "live", while few are queued. */
const CALM_MS = 420;
/** At the speed "live", the last of what is queued is shown within this after it arrived. */
const BEHIND_MAX_MS = 3000;
/** Faster than this nobody could follow. */
const HURRY_MS = 30;
/** Beyond this many entries the oldest are shown at once. */
const QUEUE_MAX = 2000;
/** A frame may arrive before the event of the step that caused it, but not earlier than this. */
const FRAME_GRACE_MS = 50;

/**
 * isStep: steps are shown one after another with a gap; frames are shown together with the step before them.
 * owner: whose frame it is.
 * @typedef {{at: number, isStep: boolean, owner?: object, show: () => void}} Entry
 */

export class Timeline {
  /** Milliseconds between two steps; null is live: at a calm speed, but never far behind. */
  gapMs = null;
  isPaused = false;

  /**
   * @param {() => void} changed what the controls show has changed
   * @param {{setTimeout?: Function, clearTimeout?: Function, now?: () => number}} clock for tests
   */
  constructor(changed = () => {}, { setTimeout = (f, ms) => globalThis.setTimeout(f, ms), clearTimeout = (t) => globalThis.clearTimeout(t), now = () => Date.now() } = {}) {
    Object.assign(this, { changed, setTimeout, clearTimeout, now, queue: [], timer: null, shownAt: -Infinity, cameAt: -Infinity, lastAt: { step: -Infinity, frame: -Infinity } });
  }

  get isEmpty() { return this.queue.length === 0; }
  /** Steps that are not shown yet. */
  get waiting() { return this.queue.reduce((sum, { isStep }) => sum + isStep, 0); }

  /** A step that the server took. @param {number} at by the server's clock, which is this machine's */
  addStep(at, show) {
    this.cameAt = this.now();
    this.add({ at: Math.max(at, this.lastAt.step), isStep: true, show });
  }

  /** A frame that a phone received just now. */
  addFrame(owner, show) {
    this.add({ at: Math.max(this.now(), this.lastAt.frame), isStep: false, owner, show });
  }

  /** By time; at the same millisecond a step is before the frame that it caused. Steps and frames each keep their order. */
  add(entry) {
    this.lastAt[entry.isStep ? 'step' : 'frame'] = entry.at;
    const isBefore = (other) => other.at < entry.at || (other.at === entry.at && (other.isStep || !entry.isStep));
    const place = this.queue.findLastIndex(isBefore) + 1;
    this.queue.splice(place, 0, entry);
    while (this.queue.length > QUEUE_MAX) this.showFirst();
    this.plan();
  }

  setGap(gapMs) {
    this.gapMs = gapMs;
    this.plan();
  }

  pause() {
    this.isPaused = true;
    this.plan();
  }

  play() {
    this.isPaused = false;
    this.plan();
  }

  /** Shows the next step, and the frames that came with it. */
  step() {
    while (!this.isEmpty && !this.queue[0].isStep) this.showFirst();
    if (!this.isEmpty) this.showFirst();
    while (!this.isEmpty && !this.queue[0].isStep) this.showFirst();
    this.plan();
  }

  /** Shows the frames of this owner now. */
  flush(owner) {
    const isFlushed = (entry) => entry.owner === owner;
    const flushed = this.queue.filter(isFlushed);
    this.queue = this.queue.filter((entry) => !isFlushed(entry));
    for (const { show } of flushed) show();
    this.plan();
  }

  clear() {
    this.queue = [];
    this.plan();
  }

  gap() {
    if (this.gapMs !== null) return this.gapMs;
    const left = this.cameAt + BEHIND_MAX_MS - this.now();
    return Math.min(CALM_MS, Math.max(HURRY_MS, left / this.waiting));
  }

  plan() {
    this.clearTimeout(this.timer);
    this.timer = null;
    this.changed();
    if (this.isPaused || this.isEmpty) return;
    const [{ isStep, at }] = this.queue;
    const due = isStep ? this.shownAt + this.gap() : at + FRAME_GRACE_MS;
    this.timer = this.setTimeout(() => { this.showFirst(); this.plan(); }, Math.max(0, due - this.now()));
  }

  showFirst() {
    const { isStep, show } = this.queue.shift();
    if (isStep) this.shownAt = this.now();
    show();
  }
}
