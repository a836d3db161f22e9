// A seq that should have come and did not is asked for as history, and what came after it waits: neither told nor acked,
// and the cursor stands still. Should the connection end before the answer, all of it comes again.

import { Repairs } from './repairs.js';

/** @typedef {import('./thread.js').Frame} Frame */
/** @typedef {import('./thread.js').Thread} Thread */
/** @typedef {import('./errors.js').BluetickError} BluetickError */
/** @typedef {{id: string, after: number, upto: number}} Missing what a page was asked for */
/**
 * @typedef {object} Line
 * @property {(id: string) => Thread} thread
 * @property {(message: Frame, stream: boolean) => void} take a message that nothing is missing before any more
 * @property {(message: Frame) => void} found a message of a page
 * @property {(missing: Missing) => void} ask
 * @property {(error: BluetickError) => void} retryLater
 */

export class Gaps {
  #line;
  #repairs = new Repairs();

  /** @param {Line} line */
  constructor(line) {
    this.#line = line;
  }

  get areClosed() {
    return this.#repairs.areDone;
  }

  disconnected() {
    this.#repairs = new Repairs();
  }

  /** The wait after a refusal is over. */
  retry() {
    this.#repairs.paused = false;
    this.#ask();
  }

  /** Something up to `seq` is missing. @param {string} id @param {number} seq */
  repairUpTo(id, seq) {
    if (!this.#line.thread(id).beginRepair(seq)) return;
    this.#repairs.open(id);
    this.#ask();
  }

  #ask() {
    for (let id = this.#repairs.next(); id !== null; id = this.#repairs.next()) {
      this.#line.ask({ id, ...this.#line.thread(id).missing() });
    }
  }

  /** @param {Missing} asked @param {Frame | null} page @param {BluetickError | null} error */
  answered(asked, page, error) {
    this.#repairs.answered();
    if (page) this.#takePage(asked, page);
    else if (error?.retryable) {
      this.#repairs.paused = true;
      this.#repairs.again(asked.id);
      this.#line.retryLater(error);
    } else this.#giveUp(asked.id);
    this.#ask();
  }

  /** The page begins where the device's knowledge ended: what it leaves out is void. @param {Missing} asked @param {Frame} page */
  #takePage({ id, after, upto: askedUpto }, page) {
    const thread = this.#line.thread(id);
    const { upto } = thread.missing();
    for (const message of page.messages) {
      this.#line.found(message);
      thread.seenSince(0).settle(message.seq - 1);
      this.#line.take(message, false);
    }
    thread.seenSince(0).settle(Math.min(page.to_seq, upto));
    this.release(id);
    const moreToRead = page.next !== null && thread.settled > after;
    if (thread.isRepaired) this.#close(id);
    else if (moreToRead || upto > askedUpto) this.#repairs.again(id);
    // The history ends before the gap does: there is nothing to wait for.
    else this.#giveUp(id);
  }

  /** Takes what waited behind a gap that has closed. @param {string} id */
  release(id) {
    const thread = this.#line.thread(id);
    for (let message = thread.nextHeld(); message; message = thread.nextHeld()) this.#line.take(message, true);
  }

  /** Goes on without what is missing; should it come after all, it is still new. @param {string} id */
  #giveUp(id) {
    const thread = this.#line.thread(id);
    const { upto } = thread.missing();
    while (thread.settleToNextHeld()) this.release(id);
    thread.seenSince(0).settle(upto);
    this.#close(id);
  }

  /** @param {string} id */
  #close(id) {
    this.#line.thread(id).endRepair();
    this.#repairs.close(id);
  }
}
