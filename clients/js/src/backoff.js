// How long to wait before connecting again.

const BASE_MS = 200;
const CAP_MS = 30_000;
/** Even the luckiest draw leaves a failing server a moment. */
const FLOOR_MS = 50;

/** Doubling with full jitter: clients that were cut off together do not come back together. */
export class Backoff {
  #failures = 0;

  succeeded() {
    this.#failures = 0;
  }

  /** The wait before the next try, no shorter than the server asked for. @param {number} hintMs @param {() => number} random */
  next(hintMs, random) {
    const limit = Math.min(BASE_MS * 2 ** Math.min(this.#failures, 16), CAP_MS);
    this.#failures += 1;
    return Math.max(FLOOR_MS, Math.round(random() * limit), hintMs);
  }
}
