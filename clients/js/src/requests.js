// Requests in flight. A request that a lost connection left unanswered is sent again on the next one.

import { BluetickError, fromWire } from './errors.js';

/** @typedef {import('./thread.js').Frame} Frame */

const TIMEOUT_MS = 30_000;
const TRIES_MAX = 5;
const RETRY_MS = 2_000;
/** The shortest delay after a refusal, doubled with each up to the cap. */
const FLOOR_MS = 50;
const FLOOR_CAP_MS = 30_000;

/** @typedef {{frame: Frame, patient: boolean, resolve: (answer: Frame) => void, reject: (error: BluetickError) => void, tries: number, timer: unknown}} PendingRequest */

export class Requests {
  /** @type {Map<number, PendingRequest>} */
  #requests = new Map();
  #environment;
  #transport;

  /** @param {import('./environment.js').Environment} environment @param {{isUp: () => boolean, write: (frame: Frame) => void, nextRef: () => number}} line */
  constructor(environment, line) {
    this.#environment = environment;
    this.#transport = line;
  }

  /** Resolves with the response, also across time offline. @param {Frame} frame @param {boolean} patient whether it is retried without limit @returns {Promise<Frame>} */
  ask(frame, patient) {
    return new Promise((resolve, reject) => {
      const ref = this.#transport.nextRef();
      const pending = { frame: { ...frame, ref }, patient, resolve, reject, tries: 0, timer: null };
      this.#requests.set(ref, pending);
      if (this.#transport.isUp()) this.#write(ref, pending);
    });
  }

  /** A connection is up: sends every open request on it. */
  up() {
    for (const [ref, pending] of this.#requests) {
      pending.tries = 0;
      this.#write(ref, pending);
    }
  }

  down() {
    for (const [ref, pending] of [...this.#requests]) {
      // The next session begins with a newer token.
      if (pending.frame.type === 'auth') this.#finish(ref, pending).reject(new BluetickError('offline', 'the session has ended'));
      else this.#cancelTimer(pending);
    }
  }

  /** @param {Frame} frame @returns {boolean} whether it is the response to a request */
  answer(frame) {
    const pending = this.#requests.get(frame.ref);
    if (!pending) return false;
    if (frame.type !== 'error') this.#finish(frame.ref, pending).resolve(frame);
    else this.#refused(frame.ref, pending, fromWire(frame));
    return true;
  }

  close() {
    for (const [ref, pending] of [...this.#requests]) {
      this.#finish(ref, pending).reject(new BluetickError('closed', 'the client was closed'));
    }
  }

  /** @param {number} ref @param {PendingRequest} pending @param {BluetickError} error */
  #refused(ref, pending, error) {
    this.#cancelTimer(pending);
    const hopeless = !error.retryable || (pending.tries >= TRIES_MAX && !pending.patient);
    if (hopeless) return this.#finish(ref, pending).reject(error);
    const floor = Math.min(FLOOR_MS * 2 ** Math.min(pending.tries - 1, 16), FLOOR_CAP_MS);
    const wait = Math.max(error.retryAfterMs ?? RETRY_MS, floor);
    pending.timer = this.#environment.setTimeout(() => this.#write(ref, pending), wait);
  }

  /** @param {number} ref @param {PendingRequest} pending */
  #write(ref, pending) {
    this.#cancelTimer(pending);
    pending.tries += 1;
    pending.timer = this.#environment.setTimeout(() => {
      if (pending.patient) this.#write(ref, pending);
      else this.#finish(ref, pending).reject(new BluetickError('timeout', 'the server did not answer in time'));
    }, TIMEOUT_MS);
    this.#transport.write(pending.frame);
  }

  /** @param {number} ref @param {PendingRequest} pending */
  #finish(ref, pending) {
    this.#cancelTimer(pending);
    this.#requests.delete(ref);
    return pending;
  }

  /** @param {PendingRequest} pending */
  #cancelTimer(pending) {
    if (pending.timer !== null) this.#environment.clearTimeout(pending.timer);
    pending.timer = null;
  }
}
