// How many of the peer's messages are unread, where not all of them are held: the server's count, and what came since.

export class Unread {
  #count = 0;
  /** The highest seq that the count has looked at. */
  #upto = 0;

  get count() {
    return this.#count;
  }

  get upto() {
    return this.#upto;
  }

  /** What the server says; false if it said so before the newest message, and has to be asked again. @param {number} count @param {number} lastSeq @param {number} read */
  told(count, lastSeq, read) {
    if (lastSeq < this.#upto) return false;
    this.#upto = lastSeq;
    // A read that the server has not heard of yet counts here already.
    this.#count = read >= lastSeq ? 0 : count;
    return true;
  }

  /** A message of the peer's came. @param {number} seq @param {number} read */
  arrived(seq, read) {
    if (seq <= this.#upto) return;
    this.#upto = seq;
    if (seq > read) this.#count += 1;
  }

  /** The user has read up to here; false if what is left can only be told by the server. @param {number} seq */
  read(seq) {
    if (seq >= this.#upto) this.#count = 0;
    return this.#count === 0;
  }
}
