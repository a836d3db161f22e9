// The delay before the next connection attempt.

const BASE_MS = 200;
const CAP_MS = 30_000;
/** The shortest delay, for a server that keeps failing. */
const FLOOR_MS = 50;

/** Exponential backoff with full jitter, so that clients that lost their connections together do not reconnect together. */
export class Backoff {
  #failures = 0;

  succeeded() {
    this.#failures = 0;
  }

  /** The delay before the next attempt, no shorter than the server asked for. @param {number} hintMs @param {() => number} random */
  next(hintMs, random) {
    const limit = Math.min(BASE_MS * 2 ** Math.min(this.#failures, 16), CAP_MS);
    this.#failures += 1;
    return Math.max(FLOOR_MS, Math.round(random() * limit), hintMs);
  }
}
