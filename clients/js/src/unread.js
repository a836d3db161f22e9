// The unread count where not all messages are loaded: the server's count, and what came since.

export class Unread {
  #count = 0;
  /** The highest seq that the count covers. */
  #upto = 0;

  get count() {
    return this.#count;
  }

  get upto() {
    return this.#upto;
  }

  /** Takes the server's count. Returns false if it is older than the newest message. @param {number} count @param {number} lastSeq @param {number} read */
  told(count, lastSeq, read) {
    if (lastSeq < this.#upto) return false;
    this.#upto = lastSeq;
    // A read that the server has not confirmed counts here already.
    this.#count = read >= lastSeq ? 0 : count;
    return true;
  }

  /** A message of the peer arrived. @param {number} seq @param {number} read */
  arrived(seq, read) {
    if (seq <= this.#upto) return;
    this.#upto = seq;
    if (seq > read) this.#count += 1;
  }

  /** The user has read up to here. Returns false if only the server knows how many are left. @param {number} seq */
  read(seq) {
    if (seq >= this.#upto) this.#count = 0;
    return this.#count === 0;
  }
}
