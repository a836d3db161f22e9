// Questions that wait for an answer. What a lost connection left unanswered is asked again on the next.

import { BluetickError, fromWire } from './errors.js';

/** @typedef {import('./thread.js').Frame} Frame */

const TIMEOUT_MS = 30_000;
const TRIES_MAX = 5;
const RETRY_MS = 2_000;
/** The least wait after a refusal: doubled with each, up to the cap. */
const FLOOR_MS = 50;
const FLOOR_CAP_MS = 30_000;

/** @typedef {{frame: Frame, patient: boolean, resolve: (answer: Frame) => void, reject: (error: BluetickError) => void, tries: number, timer: unknown}} Asked */

export class Requests {
  /** @type {Map<number, Asked>} */
  #asked = new Map();
  #environment;
  #line;

  /** @param {import('./environment.js').Environment} environment @param {{isUp: () => boolean, write: (frame: Frame) => void, nextRef: () => number}} line */
  constructor(environment, line) {
    this.#environment = environment;
    this.#line = line;
  }

  /** The answer; waits through any time offline. @param {Frame} frame @param {boolean} patient whether it is asked for as long as it takes @returns {Promise<Frame>} */
  ask(frame, patient) {
    return new Promise((resolve, reject) => {
      const ref = this.#line.nextRef();
      const asked = { frame: { ...frame, ref }, patient, resolve, reject, tries: 0, timer: null };
      this.#asked.set(ref, asked);
      if (this.#line.isUp()) this.#write(ref, asked);
    });
  }

  /** A connection is up: what is still open is asked on it. */
  up() {
    for (const [ref, asked] of this.#asked) {
      asked.tries = 0;
      this.#write(ref, asked);
    }
  }

  down() {
    for (const [ref, asked] of [...this.#asked]) {
      // The next session has a token of its own, and a newer one.
      if (asked.frame.type === 'auth') this.#finish(ref, asked).reject(new BluetickError('offline', 'the session has ended'));
      else this.#cancelTimer(asked);
    }
  }

  /** @param {Frame} frame @returns {boolean} whether it answers one of these */
  answer(frame) {
    const asked = this.#asked.get(frame.ref);
    if (!asked) return false;
    if (frame.type !== 'error') this.#finish(frame.ref, asked).resolve(frame);
    else this.#refused(frame.ref, asked, fromWire(frame));
    return true;
  }

  close() {
    for (const [ref, asked] of [...this.#asked]) {
      this.#finish(ref, asked).reject(new BluetickError('closed', 'the client was closed'));
    }
  }

  /** @param {number} ref @param {Asked} asked @param {BluetickError} error */
  #refused(ref, asked, error) {
    this.#cancelTimer(asked);
    const hopeless = !error.retryable || (asked.tries >= TRIES_MAX && !asked.patient);
    if (hopeless) return this.#finish(ref, asked).reject(error);
    const floor = Math.min(FLOOR_MS * 2 ** Math.min(asked.tries - 1, 16), FLOOR_CAP_MS);
    const wait = Math.max(error.retryAfterMs ?? RETRY_MS, floor);
    asked.timer = this.#environment.setTimeout(() => this.#write(ref, asked), wait);
  }

  /** @param {number} ref @param {Asked} asked */
  #write(ref, asked) {
    this.#cancelTimer(asked);
    asked.tries += 1;
    asked.timer = this.#environment.setTimeout(() => {
      if (asked.patient) this.#write(ref, asked);
      else this.#finish(ref, asked).reject(new BluetickError('timeout', 'the server did not answer in time'));
    }, TIMEOUT_MS);
    this.#line.write(asked.frame);
  }

  /** @param {number} ref @param {Asked} asked */
  #finish(ref, asked) {
    this.#cancelTimer(asked);
    this.#asked.delete(ref);
    return asked;
  }

  /** @param {Asked} asked */
  #cancelTimer(asked) {
    if (asked.timer !== null) this.#environment.clearTimeout(asked.timer);
    asked.timer = null;
  }
}
