// Gaps: a skipped seq is requested by `history`, and the messages after it are held back. While a gap is open they are
// neither shown nor acked, and the cursor does not move. If the connection ends first, the server delivers all again.

import { Repairs } from './repairs.js';

/** @typedef {import('./thread.js').Frame} Frame */
/** @typedef {import('./thread.js').Thread} Thread */
/** @typedef {import('./errors.js').BluetickError} BluetickError */
/** @typedef {{id: string, after: number, upto: number}} MissingRange the range that a repair requests */
/**
 * @typedef {object} GapHost
 * @property {(id: string) => Thread} thread
 * @property {(message: Frame, stream: boolean) => void} take a message with no gap before it any more
 * @property {(message: Frame) => void} found a message of a page
 * @property {(missing: MissingRange) => void} ask
 * @property {(error: BluetickError) => void} retryLater
 */

export class Gaps {
  #host;
  #repairs = new Repairs();

  /** @param {GapHost} host */
  constructor(host) {
    this.#host = host;
  }

  get areClosed() {
    return this.#repairs.areDone;
  }

  disconnected() {
    this.#repairs = new Repairs();
  }

  /** The delay after a refusal is over. */
  retry() {
    this.#repairs.paused = false;
    this.#ask();
  }

  /** Requests what is missing up to `seq`, once per gap. @param {string} id @param {number} seq */
  repairUpTo(id, seq) {
    if (!this.#host.thread(id).beginRepair(seq)) return;
    this.#repairs.open(id);
    this.#ask();
  }

  #ask() {
    for (let id = this.#repairs.next(); id !== null; id = this.#repairs.next()) {
      this.#host.ask({ id, ...this.#host.thread(id).missing() });
    }
  }

  /** @param {MissingRange} asked @param {Frame | null} page @param {BluetickError | null} error */
  answered(asked, page, error) {
    this.#repairs.answered();
    if (page) this.#takePage(asked, page);
    else if (error?.retryable) {
      this.#repairs.paused = true;
      this.#repairs.again(asked.id);
      this.#host.retryLater(error);
    } else this.#giveUp(asked.id);
    this.#ask();
  }

  /** The page begins after the last settled seq: a seq that it covers without a message is void. @param {MissingRange} asked @param {Frame} page */
  #takePage({ id, after, upto: askedUpto }, page) {
    const thread = this.#host.thread(id);
    const { upto } = thread.missing();
    for (const message of page.messages) {
      this.#host.found(message);
      thread.seenSince(0).settle(message.seq - 1);
      this.#host.take(message, false);
    }
    thread.seenSince(0).settle(Math.min(page.to_seq, upto));
    this.release(id);
    const moreToRead = page.next !== null && thread.settled > after;
    if (thread.isRepaired) this.#close(id);
    else if (moreToRead || upto > askedUpto) this.#repairs.again(id);
    // The history ends before the gap does: nothing more will come.
    else this.#giveUp(id);
  }

  /** Takes the messages that were held back behind a closed gap. @param {string} id */
  release(id) {
    const thread = this.#host.thread(id);
    for (let message = thread.nextHeld(); message; message = thread.nextHeld()) this.#host.take(message, true);
  }

  /** Continues without the missing messages. If they come after all, they are still new. @param {string} id */
  #giveUp(id) {
    const thread = this.#host.thread(id);
    const { upto } = thread.missing();
    while (thread.settleToNextHeld()) this.release(id);
    thread.seenSince(0).settle(upto);
    this.#close(id);
  }

  /** @param {string} id */
  #close(id) {
    this.#host.thread(id).endRepair();
    this.#repairs.close(id);
  }
}
