// Which conversations have a gap that is being closed, and whose turn it is to ask.

/** Histories asked for at the same time: a device that lacks much must not crowd out its own acks. */
const IN_FLIGHT_MAX = 4;

export class Repairs {
  /** Every conversation with a gap that is being closed. @type {Set<string>} */
  #open = new Set();
  /** Those of them whose next page is not asked for yet. @type {Set<string>} */
  #waiting = new Set();
  #inFlight = 0;
  /** After a refusal nothing is asked until the retry timer fires. */
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

  /** The conversation to ask for now, if any. @returns {string | null} */
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
