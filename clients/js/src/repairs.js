// The conversations with an open gap, and the order in which their pages are requested.

/** Repair requests in flight at most, so that a device with many gaps does not delay its own acks. */
const IN_FLIGHT_MAX = 4;

export class Repairs {
  /** Every conversation with an open gap. @type {Set<string>} */
  #open = new Set();
  /** Those of them whose next page is not requested yet. @type {Set<string>} */
  #waiting = new Set();
  #inFlight = 0;
  /** After a refusal, nothing is requested until the retry timer fires. */
  paused = false;

  get areDone() {
    return this.#open.size === 0;
  }

  /** @param {string} id */
  open(id) {
    this.#open.add(id);
    this.#waiting.add(id);
  }

  /** @param {string} id */
  again(id) {
    this.#waiting.add(id);
  }

  /** @param {string} id */
  close(id) {
    this.#open.delete(id);
    this.#waiting.delete(id);
  }

  /** The next conversation to request, if any. @returns {string | null} */
  next() {
    if (this.paused || this.#inFlight >= IN_FLIGHT_MAX) return null;
    for (const id of this.#waiting) {
      this.#waiting.delete(id);
      this.#inFlight += 1;
      return id;
    }
    return null;
  }

  answered() {
    this.#inFlight = Math.max(0, this.#inFlight - 1);
  }
}
