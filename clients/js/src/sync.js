// The client's half of the contract as plain state: frames in, frames and news out. No socket, no clock, no chance.
//
// Whoever drives it says what happened (`connected`, `frame`, `disconnected`, `retry`), writes every `takeFrames`,
// and handles the `arrivals` in order, calling `handled` for each: an ack or a cursor never covers what the device
// does not hold yet. Acks and reads are made when frames are asked for, so those of a batch are one per conversation.

import { BluetickError, fromWire } from './errors.js';
import { Gaps } from './gaps.js';
import { laterId } from './ids.js';
import { Outbox } from './outbox.js';
import { Thread } from './thread.js';

/** Conversations whose ticks are asked for after a reconnect, the most recent first. */
const TICKS_ASKED_MAX = 32;
/** With as many heads as this the server may know conversations that it did not name. */
const HEADS_MAX = 1000;
const RETRY_MS = 2_000;

/** @typedef {import('./thread.js').Frame} Frame */
/**
 * What must be handled in order, one after the other.
 *
 * @typedef {{kind: 'message', frame: Frame, fresh: boolean, own: boolean, stream: boolean}
 *   | {kind: 'cursor', to: string}
 *   | {kind: 'caughtUp'}} Arrival
 */
/**
 * What the state tells its driver at once.
 *
 * @template T
 * @typedef {object} News
 * @property {(entry: import('./outbox.js').Entry<T>, message: Frame) => void} stored the server has it; it may still be in the outbox
 * @property {(entry: import('./outbox.js').Entry<T>) => void} done it has left the outbox, and is stored
 * @property {(entry: import('./outbox.js').Entry<T>, error: BluetickError) => void} failed
 * @property {(conversationId: string, userId: string, readMoved: boolean) => void} ticks the last: whether the user has read more, and nobody is about to say how much is left
 * @property {(conversationId: string) => void} readConfirmed
 */
/** @typedef {{knowsAll: boolean, cursor: string | null, threads: Map<string, import('./thread.js').SavedThread>}} SavedSync */

/** @template T what the driver keeps with each message of the outbox */
export class Sync {
  /** @type {'down' | 'greeting' | 'draining' | 'live'} */
  link = 'down';
  /** @type {string | null} */
  cursor = null;
  maxBodyBytes = Infinity;
  /** @type {Outbox<T>} */
  outbox = new Outbox();
  /** @type {Arrival[]} */
  arrivals = [];
  /** Conversations whose saved part has changed. @type {Set<string>} */
  dirty = new Set();

  #user;
  #news;
  /** The last session since this start. It is not saved: what is saved may be older than what was acked. @type {string | null} */
  #lastSession = null;
  /** Every conversation that the user had when this device last caught up is known here. */
  knowsAll = false;
  /** Where the cursor may go once no repair is open. @type {string | null} */
  #cursorOwed = null;
  /** Between a `reset` and the next `caught_up` gaps mean nothing: everything is loaded anew. */
  #resetting = false;
  /** @type {Map<string, Thread>} */
  #threads = new Map();
  /** Conversations that may owe an ack or a read. @type {Set<string>} */
  #owing = new Set();
  /** Messages of the stream that have arrived and are not handled yet, by conversation and seq. @type {Set<string>} */
  #arriving = new Set();
  #gaps = new Gaps({
    thread: (id) => this.thread(id),
    take: (message, stream) => this.#take(message, stream),
    found: (message) => void (message.sender === this.#user && this.settleOwn(message)),
    ask: (missing) => {
      const ref = this.nextRef();
      this.#asked.set(ref, { kind: 'repair', missing });
      this.#frames.push({ type: 'history', ref, conversation_id: missing.id, after_seq: missing.after, limit: 200 });
    },
    retryLater: (error) => this.#retryLater(error.retryAfterMs ?? RETRY_MS),
  });
  /** What a numbered ref stands for. @type {Map<number, {kind: 'repair', missing: import('./gaps.js').Missing} | {kind: 'ticks'} | {kind: 'read', id: string, seq: number}>} */
  #asked = new Map();
  #lastRef = 0;
  /** @type {number | null} */
  #retryMs = null;
  /** @type {Frame[]} */
  #frames = [];

  /** @param {string} user @param {News<T>} news */
  constructor(user, news) {
    this.#user = user;
    this.#news = news;
  }

  /** What an earlier life of the device has kept. @param {SavedSync} saved */
  restore(saved) {
    this.cursor = saved.cursor;
    this.knowsAll = saved.knowsAll;
    for (const [id, thread] of saved.threads) {
      const restored = new Thread(thread);
      restored.read = Math.max(restored.read, this.#threads.get(id)?.read ?? 0);
      this.#threads.set(id, restored);
    }
  }

  /** @param {string} id @returns {Thread} */
  thread(id) {
    let thread = this.#threads.get(id);
    if (!thread) this.#threads.set(id, (thread = new Thread()));
    return thread;
  }

  get isUp() {
    return this.link === 'draining' || this.link === 'live';
  }

  nextRef() {
    return ++this.#lastRef;
  }

  // ---- the connection ----

  /** A connection is open: the hello to say on it. @param {string} token @param {string} device @returns {Frame} */
  connected(token, device) {
    this.disconnected();
    this.link = 'greeting';
    /** @type {Frame} */
    const hello = { type: 'hello', token, device };
    if (this.cursor !== null) hello.cursor = this.cursor;
    if (this.#lastSession !== null) hello.resumes = this.#lastSession;
    return hello;
  }

  /** The connection is gone. What was under way is unknown; what must be said again will be. */
  disconnected() {
    this.link = 'down';
    this.#frames = [];
    this.#owing.clear();
    this.#gaps.disconnected();
    this.#cursorOwed = null;
    this.#resetting = false;
    this.#retryMs = null;
    this.#asked.clear();
    this.outbox.disconnected();
    for (const thread of this.#threads.values()) thread.disconnected();
  }

  /** How long to wait before calling `retry`; told once for each new wait. */
  takeRetryMs() {
    const ms = this.#retryMs;
    this.#retryMs = null;
    return ms;
  }

  /** The wait is over: what the server refused for the moment is tried again. */
  retry() {
    this.outbox.releaseHeld();
    this.#oweReads();
    this.#gaps.retry();
  }

  /** @param {number} ms */
  #retryLater(ms) {
    this.#retryMs = Math.max(this.#retryMs ?? 0, ms);
  }

  // ---- what the application wants ----

  /** The user has read the conversation up to here. Made offline, it is kept and said later. @param {string} id @param {number} seq */
  read(id, seq) {
    const thread = this.thread(id);
    thread.read = Math.max(thread.read, seq);
    this.#owing.add(id);
    this.dirty.add(id);
  }

  /** History was loaded up to `seq`: what comes later must not leave anything out. @param {string} id @param {number} seq */
  loaded(id, seq) {
    this.thread(id).seenSince(seq);
  }

  // ---- what comes out ----

  /** The frames to write now: receipts first, then what waits to be sent. */
  takeFrames() {
    if (!this.isUp) return [];
    this.#writeReceipts();
    for (let entry = this.outbox.next(); entry; entry = this.outbox.next()) {
      if (new TextEncoder().encode(entry.send.body).length > this.maxBodyBytes) this.#fail(entry, this.bodyTooLarge());
      else this.#frames.push({ type: 'send', ref: entry.send.client_msg_id, ...entry.send });
    }
    const frames = this.#frames;
    this.#frames = [];
    return frames;
  }

  bodyTooLarge() {
    return new BluetickError('body_too_large', `the body is longer than ${this.maxBodyBytes} bytes`);
  }

  /** One ack and one read for each conversation, however many messages came since the last time. */
  #writeReceipts() {
    for (const id of this.#owing) {
      const thread = this.thread(id);
      const ack = thread.takeAck();
      if (ack) {
        this.#frames.push({ type: 'ack', conversation_id: id, seq: ack.seq });
        // Before the drain is over an ack says nothing about other conversations: theirs may still come.
        if (this.link === 'live' && ack.messageId !== null) this.#moveCursor(ack.messageId);
      }
      const read = thread.takeRead();
      if (read !== null) {
        const ref = this.nextRef();
        this.#asked.set(ref, { kind: 'read', id, seq: read });
        this.#frames.push({ type: 'read', ref, conversation_id: id, seq: read });
      }
    }
    this.#owing.clear();
  }

  /** @param {string} to */
  #moveCursor(to) {
    this.#cursorOwed = laterId(this.#cursorOwed, to);
    this.#settleCursor();
  }

  /** The cursor follows behind all that has arrived: it must never cover what the device does not hold. */
  #settleCursor() {
    if (!this.#gaps.areClosed || this.#cursorOwed === null) return;
    this.arrivals.push({ kind: 'cursor', to: this.#cursorOwed });
    this.#cursorOwed = null;
  }

  #oweReads() {
    for (const [id, thread] of this.#threads) if (thread.owesRead) this.#owing.add(id);
  }

  // ---- what comes in ----

  /** Takes one frame of the server's; false if it is an answer to somebody else's question. @param {Frame} frame @returns {boolean} */
  frame(frame) {
    switch (frame.type) {
      case 'welcome': this.#onWelcome(frame); break;
      case 'sent': this.#onSent(frame); break;
      case 'message': this.#onMessage(frame); break;
      case 'caught_up': this.#onCaughtUp(frame); break;
      case 'reset': this.#resetting = true; break;
      case 'ticks': this.#learn(frame.conversation_id, frame.user_id === this.#user ? 'own' : 'peer', frame); break;
      case 'inbox':
        for (const entry of frame.conversations) {
          this.thread(entry.conversation_id).named(entry.last_seq);
          this.#learn(entry.conversation_id, 'peer', entry.peer_status);
        }
        return false;
      case 'status': return this.#onStatus(frame);
      case 'history': return this.#onAnswer(frame.ref, frame, null);
      case 'done': return this.#onDone(frame.ref);
      case 'error': return this.#onError(frame);
      case 'bye':
        // A message that makes the server hang up would do so for ever, and hold up all behind it.
        if (frame.code === 'frame_too_large' || frame.code === 'not_json') this.#blameLongest(frame);
        break;
      default: return false;
    }
    return true;
  }

  /** @param {Frame} frame */
  #onWelcome(frame) {
    this.#lastSession = frame.session_id;
    this.link = 'draining';
    this.maxBodyBytes = frame.max_body_bytes;
    this.#oweReads();
  }

  /** @param {Frame} message */
  #onMessage(message) {
    const id = message.conversation_id;
    const before = message.seq - 1;
    const thread = this.thread(id);
    this.dirty.add(id);
    if (message.sender === this.#user) this.settleOwn(message);
    // A conversation that was not there when this device had caught up is new from its first message on.
    const seen = thread.seenSince(this.knowsAll ? 0 : before);
    if (this.#resetting) seen.settle(before);
    if (seen.lacksBefore(message.seq)) {
      thread.hold(message);
      return this.#gaps.repairUpTo(id, before);
    }
    this.#take(message, true);
    this.#gaps.release(id);
  }

  /** One's own message that came back before its `sent` did: it is shown as sent, and stays in the outbox. @param {Frame} message */
  settleOwn(message) {
    const entry = this.outbox.stored(message.client_msg_id);
    if (!entry) return;
    this.thread(message.conversation_id).ownSent(message.seq, message.message_id);
    this.#news.stored(entry, message);
    if (!this.outbox.get(message.client_msg_id)) this.#news.done(entry);
  }

  /** Takes a message that nothing is missing before. @param {Frame} frame @param {boolean} stream whether the stream brought it */
  #take(frame, stream) {
    const own = frame.sender === this.#user;
    const thread = this.thread(frame.conversation_id);
    const fresh = thread.seenSince(frame.seq - 1).insert(frame.seq);
    if (own) thread.noteOwn(frame.seq, frame.message_id);
    const key = `${frame.conversation_id} ${frame.seq}`;
    // Of one that is still being handled, the repetition adds nothing: its ack will be the ack of both.
    if (!fresh && (own || !stream || this.#arriving.has(key))) return;
    if (stream) this.#arriving.add(key);
    this.arrivals.push({ kind: 'message', frame, fresh, own, stream });
  }

  /** The device holds it: now it may be acked, or the cursor moved. @param {Arrival} arrival */
  handled(arrival) {
    if (arrival.kind === 'cursor') this.cursor = laterId(this.cursor, arrival.to);
    if (arrival.kind !== 'message') return;
    const { frame, own, stream } = arrival;
    this.dirty.add(frame.conversation_id);
    // What was fetched past the stream is not acked: it says nothing about what the stream has still to bring.
    if (!stream) return;
    this.#arriving.delete(`${frame.conversation_id} ${frame.seq}`);
    if (own) return;
    this.thread(frame.conversation_id).stored(frame.seq, frame.message_id);
    this.#owing.add(frame.conversation_id);
  }

  /** What has arrived and is not held yet, by conversation. @returns {Map<string, number[]>} */
  pending() {
    const pending = new Map();
    for (const arrival of this.arrivals) {
      if (arrival.kind !== 'message' || !arrival.fresh) continue;
      const { conversation_id: id, seq } = arrival.frame;
      if (!pending.has(id)) pending.set(id, []);
      pending.get(id).push(seq);
    }
    return pending;
  }

  /** @param {Frame} sent */
  #onSent(sent) {
    const id = sent.conversation_id;
    this.thread(id).ownSent(sent.seq, sent.message_id, !sent.duplicate);
    this.dirty.add(id);
    this.#gaps.release(id);
    const entry = this.outbox.confirmed(sent.client_msg_id);
    if (!entry) return;
    if (!entry.isStored) this.#news.stored(entry, sent);
    this.#news.done(entry);
  }

  /** @param {Frame} frame */
  #onCaughtUp(frame) {
    this.link = 'live';
    const knewAll = this.knowsAll;
    this.knowsAll = frame.heads.length < HEADS_MAX;
    for (const head of frame.heads) {
      const thread = this.thread(head.conversation_id);
      thread.named(head.last_seq);
      const seen = thread.seenSince(knewAll ? 0 : head.last_seq);
      if (this.#resetting) seen.settle(head.last_seq);
      if (seen.settled < head.last_seq) this.#gaps.repairUpTo(head.conversation_id, head.last_seq);
      this.dirty.add(head.conversation_id);
    }
    this.#resetting = false;
    // An ack may have been lost with the connection, and what it was for need not come again.
    for (const [id, thread] of this.#threads) if (thread.ackAgain()) this.#owing.add(id);
    this.#moveCursor(frame.cursor);
    this.#askForTicks();
    this.arrivals.push({ kind: 'caughtUp' });
  }

  // ---- receipts ----

  /** Receipts are state: who was away while they changed asks for them. */
  #askForTicks() {
    const unfinished = [...this.#threads]
      .map(([id, thread]) => ({ id, last: thread.unfinishedTick }))
      .filter(({ last }) => last !== null)
      .sort((a, b) => (laterId(a.last, b.last) === a.last ? -1 : 1));
    for (const { id } of unfinished.slice(0, TICKS_ASKED_MAX)) {
      const ref = this.nextRef();
      this.#asked.set(ref, { kind: 'ticks' });
      this.#frames.push({ type: 'status', ref, conversation_id: id });
    }
  }

  /** @param {Frame} status */
  #onStatus(status) {
    const id = status.conversation_id;
    const asked = this.#asked.delete(status.ref);
    this.thread(id).named(status.last_seq);
    // Somebody else's question was how much is unread: the answer is in the same frame.
    this.#learn(id, 'own', status.own, asked);
    this.#learn(id, 'peer', status.peer);
    return asked;
  }

  /** @param {string} id @param {'own' | 'peer'} whose @param {Frame} wire @param {boolean} [tell] whether what was read changes what is unread */
  #learn(id, whose, wire, tell = true) {
    const theirs = { delivered: wire.last_delivered_seq, read: wire.last_read_seq };
    const thread = this.thread(id);
    const before = thread.own.read;
    if (!thread.merge(whose, theirs)) return;
    this.dirty.add(id);
    const [one, other] = id.split('~');
    const peer = one === this.#user ? other : one;
    this.#news.ticks(id, whose === 'own' ? this.#user : peer, tell && thread.own.read > before);
  }

  // ---- answers ----

  /** @param {unknown} ref @param {Frame | null} page @param {BluetickError | null} error */
  #onAnswer(ref, page, error) {
    const asked = this.#asked.get(/** @type {number} */ (ref));
    if (!asked) return false;
    this.#asked.delete(/** @type {number} */ (ref));
    if (asked.kind === 'repair') {
      this.dirty.add(asked.missing.id);
      this.#gaps.answered(asked.missing, page, error);
      this.#settleCursor();
    }
    if (asked.kind === 'read' && error) this.#onReadRefused(asked.id, error);
    return true;
  }

  /** @param {string} id @param {BluetickError} error */
  #onReadRefused(id, error) {
    this.dirty.add(id);
    if (!error.retryable) return this.thread(id).readRefused();
    this.thread(id).readLost();
    this.#retryLater(error.retryAfterMs ?? RETRY_MS);
  }

  /** @param {number} ref */
  #onDone(ref) {
    const asked = this.#asked.get(ref);
    if (asked?.kind !== 'read') return false;
    this.#asked.delete(ref);
    const { read } = this.thread(asked.id).own;
    if (asked.seq > read) this.#learn(asked.id, 'own', { last_delivered_seq: 0, last_read_seq: asked.seq });
    this.#news.readConfirmed(asked.id);
    return true;
  }

  /** @param {Frame} frame */
  #onError(frame) {
    const error = fromWire(frame);
    if (typeof frame.ref !== 'string') return this.#onAnswer(frame.ref, null, error);
    const entry = this.outbox.get(frame.ref);
    if (!entry) {
      if (!error.retryable) this.outbox.forget(frame.ref);
      return true;
    }
    const again = this.outbox.refused(entry, error);
    if (again !== null) this.#retryLater(again);
    else this.#fail(entry, error);
    return true;
  }

  /** @param {Frame} bye */
  #blameLongest(bye) {
    const entry = this.outbox.longestInFlight();
    if (entry) this.#fail(entry, new BluetickError(bye.code, bye.reason));
  }

  /** @param {import('./outbox.js').Entry<T>} entry @param {BluetickError} error */
  #fail(entry, error) {
    entry.progress = 'failed';
    if (!entry.isStored) return this.#news.failed(entry, error);
    // Only its repetition was refused.
    this.outbox.remove(entry.send.client_msg_id);
    this.#news.done(entry);
  }
}
