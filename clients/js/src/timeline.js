// The loaded part of a conversation: messages in the order of seq, without a gap.

/** @typedef {import('./message.js').Message} Message */

/** Messages in memory at most. The oldest are dropped and can be loaded again. */
const ITEMS_MAX = 10_000;

export class Timeline {
  /** Whether the newest page is loaded, so that new messages are appended. */
  ready = false;
  /** The lowest loaded seq. */
  from = 1;
  /** The `before_seq` of the previous page; null if there is none. @type {number | null} */
  earlier = null;
  /** @type {Message[]} */
  #items = [];
  /** Messages that arrived while the newest page was being loaded. @type {Message[]} */
  #later = [];

  get items() {
    return this.#items;
  }

  /** @param {number} seq */
  find(seq) {
    const at = this.#position(seq);
    if (this.#items[at]?.seq === seq) return this.#items[at];
    return this.#later.find((message) => message.seq === seq);
  }

  /** Takes the newest page of history. @param {Message[]} messages @param {{from_seq: number, to_seq: number, next: number | null}} page */
  begin(messages, page) {
    const last = this.#items[this.#items.length - 1];
    const adjoins = last !== undefined && page.from_seq <= Number(last.seq) + 1;
    if (!adjoins) this.#items = [];
    if (!adjoins || page.from_seq < this.from) {
      this.earlier = page.next;
      this.from = page.next === null ? 1 : page.from_seq;
    }
    for (const message of messages) this.#insert(message);
    this.ready = true;
    for (const message of this.#later) this.add(message);
    this.#later = [];
  }

  /** Takes the page before the loaded part. @param {Message[]} messages @param {{from_seq: number, next: number | null}} page */
  prepend(messages, page) {
    for (const message of messages) this.#insert(message);
    this.earlier = page.next;
    this.from = page.next === null ? 1 : Math.min(this.from, page.from_seq);
  }

  /** Adds a message of the stream, or an own message that was sent. @param {Message} message */
  add(message) {
    if (!this.ready) {
      this.#later.push(message);
      return;
    }
    // A message before the loaded part would leave a gap; it comes with its page.
    if (Number(message.seq) < this.from) return;
    this.#insert(message);
    if (this.#items.length > ITEMS_MAX) {
      this.#items.splice(0, this.#items.length - ITEMS_MAX + 1000);
      this.earlier = this.from = Number(this.#items[0].seq);
    }
  }

  /** The loaded part may have a gap: the newest page has to be loaded again. */
  doubt() {
    this.ready = false;
  }

  /** The number of the peer's messages after `seq`. @param {number} seq */
  countAfter(seq) {
    let count = 0;
    for (let at = this.#items.length - 1; at >= 0 && Number(this.#items[at].seq) > seq; at -= 1) {
      if (!this.#items[at].own) count += 1;
    }
    return count;
  }

  /** The newest message of the peer. @returns {Message | undefined} */
  get newestOfPeer() {
    for (let at = this.#items.length - 1; at >= 0; at -= 1) if (!this.#items[at].own) return this.#items[at];
    return undefined;
  }

  /** @param {Message} message */
  #insert(message) {
    const seq = Number(message.seq);
    const at = this.#position(seq);
    // The application holds the object of an own message from the outbox: that object stays.
    if (this.#items[at]?.seq !== seq) this.#items.splice(at, 0, message);
    else if (message.own) this.#items[at] = message;
  }

  /** @param {number} seq */
  #position(seq) {
    let low = 0;
    let high = this.#items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (Number(this.#items[middle].seq) < seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
