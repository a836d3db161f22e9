// One conversation as the protocol sees it: what was received, which receipts have to be written, and how far both
// members are.

import { laterId } from './ids.js';
import { Seen } from './seen.js';

/** Messages held back at most while a gap is repaired. Further ones are dropped without an ack and delivered again. */
const HELD_MAX = 1024;

/** @typedef {Record<string, any>} Frame a frame, or a part of one, as it is on the wire */
/** @typedef {{delivered: number, read: number}} Boundaries */
/**
 * The stored state of a conversation.
 *
 * @typedef {object} SavedThread
 * @property {import('./seen.js').SavedSeen | null} seen null while the conversation is known only from ticks
 * @property {number} heard the newest message of the peer that the stream brought: the value of acks and of `seen_seq`
 * @property {number} read how far the user has read; the server may not have confirmed it yet
 * @property {Boundaries} own the user's boundaries as the server knows them
 * @property {Boundaries} peer the other member's boundaries, which give the ticks
 * @property {[number, string] | null} lastOwn seq and id of the newest own message. Its tick is requested after a reconnect while it is not blue
 */

/** The state of the current connection, which is reset with the next. */
function newSession() {
  return {
    /** The highest id that the stream brought and the application has stored: the cursor's value after the next ack. @type {string | null} */
    heardId: null,
    owesAck: false,
    readWritten: 0,
    /** Messages after a gap, by seq: neither shown nor acked until the gap is closed. @type {Map<number, Frame>} */
    held: new Map(),
    /** The seq up to which a repair is in progress. @type {number | null} */
    repairing: null,
  };
}

export class Thread {
  /** @type {Seen | null} */
  #seen = null;
  heard = 0;
  read = 0;
  /** @type {Boundaries} */
  own = { delivered: 0, read: 0 };
  /** @type {Boundaries} */
  peer = { delivered: 0, read: 0 };
  /** @type {[number, string] | null} */
  lastOwn = null;
  /** The newest seq in an inbox entry, a head or a status. */
  #head = 0;
  #session = newSession();

  /** @param {Partial<SavedThread>} [saved] */
  constructor(saved) {
    if (!saved) return;
    this.#seen = saved.seen ? new Seen(saved.seen) : null;
    this.heard = saved.heard ?? 0;
    this.read = saved.read ?? 0;
    this.own = { ...this.own, ...saved.own };
    this.peer = { ...this.peer, ...saved.peer };
    this.lastOwn = saved.lastOwn ?? null;
  }

  /** @param {number[]} [pending] seqs that have arrived but are not stored by the application yet @returns {SavedThread} */
  save(pending = []) {
    const { heard, read, own, peer, lastOwn } = this;
    return { seen: this.#seen?.save(pending) ?? null, heard, read, own: { ...own }, peer: { ...peer }, lastOwn };
  }

  disconnected() {
    this.#session = newSession();
  }

  // ---- what was received ----

  /** The received seqs. A conversation that is new to the device expects nothing up to `before`. @param {number} before */
  seenSince(before) {
    this.#seen ??= new Seen();
    this.#seen.found(before);
    return this.#seen;
  }

  get settled() {
    return this.#seen?.settled ?? 0;
  }

  /** The conversation has at least this many messages. @param {number} seq */
  named(seq) {
    this.#head = Math.max(this.#head, seq);
  }

  /** The newest seq that is known without its message. */
  get head() {
    return Math.max(this.#head, this.own.delivered, this.peer.delivered);
  }

  /** The newest known seq. */
  get newest() {
    return Math.max(this.head, this.settled, this.heard, this.lastOwn?.[0] ?? 0);
  }

  /**
   * The server has stored an own message. If it is the first and was stored just now, everything after it is still to
   * come; a repeated first message does not say that. Returns whether it is new.
   *
   * @param {number} seq @param {string} id @param {boolean} [justNow]
   */
  ownSent(seq, id, justNow = false) {
    this.#seen ??= new Seen();
    if (seq === 1 && justNow) this.#seen.found(0);
    const fresh = this.#seen.insert(seq);
    this.noteOwn(seq, id);
    return fresh;
  }

  /** @param {number} seq @param {string} id */
  noteOwn(seq, id) {
    if (!this.lastOwn || seq > this.lastOwn[0]) this.lastOwn = [seq, id];
  }

  /** The application has stored a message of the peer that the stream brought. @param {number} seq @param {string} id */
  stored(seq, id) {
    // The ack is safe: the stream begins with the first message that no device has, and all before this one is settled.
    this.heard = Math.max(this.heard, seq);
    this.#session.heardId = laterId(this.#session.heardId, id);
    this.#session.owesAck = true;
  }

  // ---- receipts ----

  /** The ack to write now, and the cursor's value after it. */
  takeAck() {
    if (!this.#session.owesAck) return null;
    this.#session.owesAck = false;
    return { seq: this.heard, messageId: this.#session.heardId };
  }

  get owesAck() {
    return this.#session.owesAck;
  }

  /** Schedules the last ack once more if the server has not confirmed it by `ticks`. */
  ackAgain() {
    const lost = this.heard > this.own.delivered;
    if (lost) this.#session.owesAck = true;
    return lost;
  }

  get owesRead() {
    return this.read > Math.max(this.own.read, this.#session.readWritten);
  }

  /** Whether the server has not confirmed how far the user has read. */
  get readPending() {
    return this.read > this.own.read;
  }

  /** The read to write now. */
  takeRead() {
    if (!this.owesRead) return null;
    this.#session.readWritten = this.read;
    return this.read;
  }

  /** The read was refused temporarily and has to be written again. */
  readLost() {
    this.#session.readWritten = 0;
  }

  /** The read was refused for good. */
  readRefused() {
    this.read = this.own.read;
  }

  /** How far the user has read, confirmed or not. */
  get readUpTo() {
    return Math.max(this.read, this.own.read);
  }

  /** @param {'own' | 'peer'} whose @param {Boundaries} theirs @returns {boolean} whether they grew */
  merge(whose, theirs) {
    const ours = this[whose];
    const read = Math.max(ours.read, theirs.read);
    // Read implies delivered, in whatever order the two numbers come.
    const delivered = Math.max(ours.delivered, theirs.delivered, read);
    const grew = read > ours.read || delivered > ours.delivered;
    this[whose] = { delivered, read };
    return grew;
  }

  /** @param {number} seq @returns {'sent' | 'delivered' | 'read'} */
  tickOf(seq) {
    if (seq <= this.peer.read) return 'read';
    return seq <= this.peer.delivered ? 'delivered' : 'sent';
  }

  /** The newest own message, if its tick may have changed while the device was offline. */
  get unfinishedTick() {
    return this.lastOwn && this.tickOf(this.lastOwn[0]) !== 'read' ? this.lastOwn[1] : null;
  }

  // ---- gaps ----

  /** Holds back a message that came after a gap. @param {Frame} message */
  hold(message) {
    if (this.#session.held.size < HELD_MAX) this.#session.held.set(message.seq, message);
  }

  #firstHeld() {
    return this.#session.held.size === 0 ? null : Math.min(...this.#session.held.keys());
  }

  /** The next held message that has no gap before it any more. */
  nextHeld() {
    const first = this.#firstHeld();
    if (first === null || this.#seen?.lacksBefore(first)) return null;
    const message = /** @type {Frame} */ (this.#session.held.get(first));
    this.#session.held.delete(first);
    return message;
  }

  /** Begins a repair up to `seq`, or extends the one in progress. Returns whether it is new. @param {number} seq */
  beginRepair(seq) {
    const upto = this.#session.repairing;
    this.#session.repairing = Math.max(seq, upto ?? 0);
    return upto === null;
  }

  missing() {
    return { after: this.settled, upto: this.#session.repairing ?? this.settled };
  }

  get isRepaired() {
    const { held, repairing } = this.#session;
    return held.size === 0 && (repairing === null || this.settled >= repairing);
  }

  endRepair() {
    this.#session.repairing = null;
  }

  /** Gives up on the gap before the next held message. Returns false if none is held. */
  settleToNextHeld() {
    const first = this.#firstHeld();
    if (first === null) return false;
    this.seenSince(0).settle(first - 1);
    return true;
  }
}
