// One conversation as the protocol sees it: what was received, what is owed to the server, how far both sides are.

import { laterId } from './ids.js';
import { Seen } from './seen.js';

/** Messages kept while a gap before them is repaired. Those beyond it are dropped unacked and come again. */
const HELD_MAX = 1024;

/** @typedef {Record<string, any>} Frame a frame, or a part of one, as it is on the wire */
/** @typedef {{delivered: number, read: number}} Boundaries */
/**
 * What is remembered of a conversation across restarts.
 *
 * @typedef {object} SavedThread
 * @property {import('./seen.js').SavedSeen | null} seen null while it is known only from ticks
 * @property {number} heard the newest message of the peer's that the stream brought: what is acked, and what a reply has seen
 * @property {number} read how far the user has read; the server may not know yet
 * @property {Boundaries} own the user's own boundaries as the server knows them
 * @property {Boundaries} peer the other member's: these make the ticks
 * @property {[number, string] | null} lastOwn seq and id of the newest own message: while it is not blue, its tick is worth asking for
 */

/** What belongs to the connection that is up now, and begins anew with the next. */
function newSession() {
  return {
    /** The highest id that the stream brought and the device holds: how far the cursor may go with the next ack. @type {string | null} */
    heardId: null,
    owesAck: false,
    readWritten: 0,
    /** Came after a gap: neither told nor acked until the gap is closed. @type {Map<number, Frame>} */
    held: new Map(),
    /** The seq up to which a repair is under way. @type {number | null} */
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
  /** The newest seq that a list, a head or a status has named. */
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

  /** @param {number[]} [pending] what has arrived and is not held yet @returns {SavedThread} */
  save(pending = []) {
    const { heard, read, own, peer, lastOwn } = this;
    return { seen: this.#seen?.save(pending) ?? null, heard, read, own: { ...own }, peer: { ...peer }, lastOwn };
  }

  disconnected() {
    this.#session = newSession();
  }

  // ---- what was received ----

  /** What was received here; a conversation not heard of before expects nothing up to `before`. @param {number} before */
  seenSince(before) {
    this.#seen ??= new Seen();
    this.#seen.found(before);
    return this.#seen;
  }

  get settled() {
    return this.#seen?.settled ?? 0;
  }

  /** The conversation goes up to here, at least. @param {number} seq */
  named(seq) {
    this.#head = Math.max(this.#head, seq);
  }

  /** The newest seq that was named without its message. */
  get head() {
    return Math.max(this.#head, this.own.delivered, this.peer.delivered);
  }

  /** The newest seq that is known at all. */
  get newest() {
    return Math.max(this.head, this.settled, this.heard, this.lastOwn?.[0] ?? 0);
  }

  /** The server has stored a message of one's own; whether that is news. @param {number} seq @param {string} id @param {boolean} [justNow] and not long ago */
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

  /** The device holds a message of the peer's that the stream brought. @param {number} seq @param {string} id */
  stored(seq, id) {
    // Acking it is right: a stream begins with the first message that nobody has, and all before this is settled.
    this.heard = Math.max(this.heard, seq);
    this.#session.heardId = laterId(this.#session.heardId, id);
    this.#session.owesAck = true;
  }

  // ---- receipts ----

  /** The ack to write now, and the message_id to which it moves the cursor. */
  takeAck() {
    if (!this.#session.owesAck) return null;
    this.#session.owesAck = false;
    return { seq: this.heard, messageId: this.#session.heardId };
  }

  get owesAck() {
    return this.#session.owesAck;
  }

  /** Whether the server has not said that it has the last ack: then it is owed once more. */
  ackAgain() {
    const lost = this.heard > this.own.delivered;
    if (lost) this.#session.owesAck = true;
    return lost;
  }

  get owesRead() {
    return this.read > Math.max(this.own.read, this.#session.readWritten);
  }

  /** Whether the server does not know yet how far the user has read. */
  get readPending() {
    return this.read > this.own.read;
  }

  /** The read to write now. */
  takeRead() {
    if (!this.owesRead) return null;
    this.#session.readWritten = this.read;
    return this.read;
  }

  /** The read did not arrive and shall be written again. */
  readLost() {
    this.#session.readWritten = 0;
  }

  /** The server will not take this read, now or later. */
  readRefused() {
    this.read = this.own.read;
  }

  /** How far the user has read, said or not. */
  get readUpTo() {
    return Math.max(this.read, this.own.read);
  }

  /** @param {'own' | 'peer'} whose @param {Boundaries} theirs @returns {boolean} whether they grew */
  merge(whose, theirs) {
    const ours = this[whose];
    const read = Math.max(ours.read, theirs.read);
    // Read implies delivered, whatever order the two numbers come in.
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

  /** The newest own message, if its tick may have changed while nobody was listening. */
  get unfinishedTick() {
    return this.lastOwn && this.tickOf(this.lastOwn[0]) !== 'read' ? this.lastOwn[1] : null;
  }

  // ---- gaps ----

  /** Keeps a message that came after a gap. @param {Frame} message */
  hold(message) {
    if (this.#session.held.size < HELD_MAX) this.#session.held.set(message.seq, message);
  }

  #firstHeld() {
    return this.#session.held.size === 0 ? null : Math.min(...this.#session.held.keys());
  }

  /** The next held message that no longer waits for anything. */
  nextHeld() {
    const first = this.#firstHeld();
    if (first === null || this.#seen?.lacksBefore(first)) return null;
    const message = /** @type {Frame} */ (this.#session.held.get(first));
    this.#session.held.delete(first);
    return message;
  }

  /** Waits for history up to `seq`; false if a repair was under way already. @param {number} seq */
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

  /** Gives up on the gap before the next held message; false if none is held. */
  settleToNextHeld() {
    const first = this.#firstHeld();
    if (first === null) return false;
    this.seenSince(0).settle(first - 1);
    return true;
  }
}
