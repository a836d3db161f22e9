// The client's half of the contract as plain state: frames in, frames and events out. No socket, no clock, no randomness.
//
// Its driver reports what happened (`connected`, `frame`, `disconnected`, `retry`), writes every frame of `takeFrames`,
// and handles the `arrivals` in order, calling `handled` for each: an ack or a cursor never covers a message that the
// application has not stored yet. Acks and reads are created in `takeFrames`, so a batch needs one per conversation.

import { BluetickError, fromWire } from './errors.js';
import { Gaps } from './gaps.js';
import { laterId } from './ids.js';
import { Outbox } from './outbox.js';
import { Thread } from './thread.js';

/** Conversations whose ticks are requested after a reconnect, the most recent first. */
const TICKS_ASKED_MAX = 32;
/** With this many heads, the list of conversations may be incomplete. */
const HEADS_MAX = 1000;
const RETRY_MS = 2_000;

/** @typedef {import('./thread.js').Frame} Frame */
/**
 * What the driver must handle in order, one after the other.
 *
 * @typedef {{kind: 'message', frame: Frame, fresh: boolean, own: boolean, stream: boolean}
 *   | {kind: 'cursor', to: string}
 *   | {kind: 'caughtUp'}} Arrival
 */
/**
 * What the state reports to its driver at once.
 *
 * @template T
 * @typedef {object} SyncListener
 * @property {(entry: import('./outbox.js').Entry<T>, message: Frame) => void} stored the server has stored it; it may still be in the outbox
 * @property {(entry: import('./outbox.js').Entry<T>) => void} done it has left the outbox and is stored
 * @property {(entry: import('./outbox.js').Entry<T>, error: BluetickError) => void} failed
 * @property {(conversationId: string, userId: string, readMoved: boolean) => void} ticks `readMoved`: the user has read more, and the unread count has to be computed again
 * @property {(conversationId: string) => void} readConfirmed
 */
/** @typedef {{knowsAll: boolean, cursor: string | null, threads: Map<string, import('./thread.js').SavedThread>}} SavedSync */

/** @template T what the driver keeps with each outbox entry */
export class Sync {
  /** @type {'offline' | 'greeting' | 'draining' | 'live'} */
  phase = 'offline';
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
  #listener;
  /** The last session of this process. It is not saved, because a saved state may lack messages that this session acked. @type {string | null} */
  #lastSession = null;
  /** Whether every conversation of the last `caught_up` is known here. */
  knowsAll = false;
  /** The cursor's next value once no repair is open. @type {string | null} */
  #nextCursor = null;
  /** Set between a `reset` and the next `caught_up`. Gaps are ignored then, because everything is reloaded. */
  #resetting = false;
  /** @type {Map<string, Thread>} */
  #threads = new Map();
  /** Conversations that may have an ack or a read to write. @type {Set<string>} */
  #owing = new Set();
  /** Messages of the stream that have arrived and are not handled yet, by conversation and seq. @type {Set<string>} */
  #arriving = new Set();
  #gaps = new Gaps({
    thread: (id) => this.thread(id),
    take: (message, stream) => this.#take(message, stream),
    found: (message) => void (message.sender === this.#user && this.settleOwn(message)),
    ask: (missing) => {
      const ref = this.nextRef();
      this.#pendingRequests.set(ref, { kind: 'repair', missing });
      this.#frames.push({ type: 'history', ref, conversation_id: missing.id, after_seq: missing.after, limit: 200 });
    },
    retryLater: (error) => this.#retryLater(error.retryAfterMs ?? RETRY_MS),
  });
  /** Requests in flight, by their numeric `ref`. @type {Map<number, {kind: 'repair', missing: import('./gaps.js').MissingRange} | {kind: 'ticks'} | {kind: 'read', id: string, seq: number}>} */
  #pendingRequests = new Map();
  #lastRef = 0;
  /** @type {number | null} */
  #retryMs = null;
  /** @type {Frame[]} */
  #frames = [];

  /** @param {string} user @param {SyncListener<T>} listener */
  constructor(user, listener) {
    this.#user = user;
    this.#listener = listener;
  }

  /** Restores what an earlier process has stored. @param {SavedSync} saved */
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
    return this.phase === 'draining' || this.phase === 'live';
  }

  nextRef() {
    return ++this.#lastRef;
  }

  // ---- the connection ----

  /** A connection was opened. Returns the `hello` to write. @param {string} token @param {string} device @returns {Frame} */
  connected(token, device) {
    this.disconnected();
    this.phase = 'greeting';
    /** @type {Frame} */
    const hello = { type: 'hello', token, device };
    if (this.cursor !== null) hello.cursor = this.cursor;
    if (this.#lastSession !== null) hello.resumes = this.#lastSession;
    return hello;
  }

  /** The connection ended. Frames in flight may or may not have arrived; the next connection repeats what matters. */
  disconnected() {
    this.phase = 'offline';
    this.#frames = [];
    this.#owing.clear();
    this.#gaps.disconnected();
    this.#nextCursor = null;
    this.#resetting = false;
    this.#retryMs = null;
    this.#pendingRequests.clear();
    this.outbox.disconnected();
    for (const thread of this.#threads.values()) thread.disconnected();
  }

  /** The delay before the next call of `retry`, returned once for each new delay. */
  takeRetryMs() {
    const ms = this.#retryMs;
    this.#retryMs = null;
    return ms;
  }

  /** The delay is over: repeats what the server refused temporarily. */
  retry() {
    this.outbox.releaseHeld();
    this.#oweReads();
    this.#gaps.retry();
  }

  /** @param {number} ms */
  #retryLater(ms) {
    this.#retryMs = Math.max(this.#retryMs ?? 0, ms);
  }

  // ---- calls of the application ----

  /** The user has read the conversation up to `seq`. An offline read is kept and sent later. @param {string} id @param {number} seq */
  read(id, seq) {
    const thread = this.thread(id);
    thread.read = Math.max(thread.read, seq);
    this.#owing.add(id);
    this.dirty.add(id);
  }

  /** History was loaded up to `seq`: a gap after it is noticed. @param {string} id @param {number} seq */
  loaded(id, seq) {
    this.thread(id).seenSince(seq);
  }

  // ---- output ----

  /** The frames to write now, receipts before sends. */
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

  /** One ack and one read per conversation, however many messages came since the last call. */
  #writeReceipts() {
    for (const id of this.#owing) {
      const thread = this.thread(id);
      const ack = thread.takeAck();
      if (ack) {
        this.#frames.push({ type: 'ack', conversation_id: id, seq: ack.seq });
        // During a drain, an ack says nothing about other conversations, whose messages may still come.
        if (this.phase === 'live' && ack.messageId !== null) this.#moveCursor(ack.messageId);
      }
      const read = thread.takeRead();
      if (read !== null) {
        const ref = this.nextRef();
        this.#pendingRequests.set(ref, { kind: 'read', id, seq: read });
        this.#frames.push({ type: 'read', ref, conversation_id: id, seq: read });
      }
    }
    this.#owing.clear();
  }

  /** @param {string} to */
  #moveCursor(to) {
    this.#nextCursor = laterId(this.#nextCursor, to);
    this.#settleCursor();
  }

  /** The cursor moves after everything that has arrived: it must never cover a message that is not stored. */
  #settleCursor() {
    if (!this.#gaps.areClosed || this.#nextCursor === null) return;
    this.arrivals.push({ kind: 'cursor', to: this.#nextCursor });
    this.#nextCursor = null;
  }

  #oweReads() {
    for (const [id, thread] of this.#threads) if (thread.owesRead) this.#owing.add(id);
  }

  // ---- input ----

  /** Takes one frame of the server. Returns false if it may be the response to a request of the driver. @param {Frame} frame @returns {boolean} */
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
        // A message that makes the server hang up would do so in every session and block the messages behind it.
        if (frame.code === 'frame_too_large' || frame.code === 'not_json') this.#blameLongest(frame);
        break;
      default: return false;
    }
    return true;
  }

  /** @param {Frame} frame */
  #onWelcome(frame) {
    this.#lastSession = frame.session_id;
    this.phase = 'draining';
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
    // A conversation that did not exist when this device caught up begins with seq 1.
    const seen = thread.seenSince(this.knowsAll ? 0 : before);
    if (this.#resetting) seen.settle(before);
    if (seen.lacksBefore(message.seq)) {
      thread.hold(message);
      return this.#gaps.repairUpTo(id, before);
    }
    this.#take(message, true);
    this.#gaps.release(id);
  }

  /** An own message that came back before its `sent`: it is shown as sent and stays in the outbox. @param {Frame} message */
  settleOwn(message) {
    const entry = this.outbox.stored(message.client_msg_id);
    if (!entry) return;
    this.thread(message.conversation_id).ownSent(message.seq, message.message_id);
    this.#listener.stored(entry, message);
    if (!this.outbox.get(message.client_msg_id)) this.#listener.done(entry);
  }

  /** Takes a message with no gap before it. @param {Frame} frame @param {boolean} stream whether the stream brought it */
  #take(frame, stream) {
    const own = frame.sender === this.#user;
    const thread = this.thread(frame.conversation_id);
    const fresh = thread.seenSince(frame.seq - 1).insert(frame.seq);
    if (own) thread.noteOwn(frame.seq, frame.message_id);
    const key = `${frame.conversation_id} ${frame.seq}`;
    // A repetition of a message that is still being handled needs no ack of its own.
    if (!fresh && (own || !stream || this.#arriving.has(key))) return;
    if (stream) this.#arriving.add(key);
    this.arrivals.push({ kind: 'message', frame, fresh, own, stream });
  }

  /** The application has stored it: now it may be acked, or the cursor moved. @param {Arrival} arrival */
  handled(arrival) {
    if (arrival.kind === 'cursor') this.cursor = laterId(this.cursor, arrival.to);
    if (arrival.kind !== 'message') return;
    const { frame, own, stream } = arrival;
    this.dirty.add(frame.conversation_id);
    // What a repair brought is not acked: it says nothing about what the stream still has to deliver.
    if (!stream) return;
    this.#arriving.delete(`${frame.conversation_id} ${frame.seq}`);
    if (own) return;
    this.thread(frame.conversation_id).stored(frame.seq, frame.message_id);
    this.#owing.add(frame.conversation_id);
  }

  /** The seqs that have arrived and are not stored yet, by conversation. @returns {Map<string, number[]>} */
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
    if (!entry.isStored) this.#listener.stored(entry, sent);
    this.#listener.done(entry);
  }

  /** @param {Frame} frame */
  #onCaughtUp(frame) {
    this.phase = 'live';
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
    // An ack may have been lost with the connection, and the server need not deliver its messages again.
    for (const [id, thread] of this.#threads) if (thread.ackAgain()) this.#owing.add(id);
    this.#moveCursor(frame.cursor);
    this.#askForTicks();
    this.arrivals.push({ kind: 'caughtUp' });
  }

  // ---- receipts ----

  /** Requests the ticks that may have changed while the device was offline. */
  #askForTicks() {
    const unfinished = [...this.#threads]
      .map(([id, thread]) => ({ id, last: thread.unfinishedTick }))
      .filter(({ last }) => last !== null)
      .sort((a, b) => (laterId(a.last, b.last) === a.last ? -1 : 1));
    for (const { id } of unfinished.slice(0, TICKS_ASKED_MAX)) {
      const ref = this.nextRef();
      this.#pendingRequests.set(ref, { kind: 'ticks' });
      this.#frames.push({ type: 'status', ref, conversation_id: id });
    }
  }

  /** @param {Frame} status */
  #onStatus(status) {
    const id = status.conversation_id;
    const asked = this.#pendingRequests.delete(status.ref);
    this.thread(id).named(status.last_seq);
    // A request of the driver reads the unread count from the same frame.
    this.#learn(id, 'own', status.own, asked);
    this.#learn(id, 'peer', status.peer);
    return asked;
  }

  /** @param {string} id @param {'own' | 'peer'} whose @param {Frame} wire @param {boolean} [tell] whether a moved read changes the unread count */
  #learn(id, whose, wire, tell = true) {
    const theirs = { delivered: wire.last_delivered_seq, read: wire.last_read_seq };
    const thread = this.thread(id);
    const before = thread.own.read;
    if (!thread.merge(whose, theirs)) return;
    this.dirty.add(id);
    const [one, other] = id.split('~');
    const peer = one === this.#user ? other : one;
    this.#listener.ticks(id, whose === 'own' ? this.#user : peer, tell && thread.own.read > before);
  }

  // ---- responses ----

  /** @param {unknown} ref @param {Frame | null} page @param {BluetickError | null} error */
  #onAnswer(ref, page, error) {
    const asked = this.#pendingRequests.get(/** @type {number} */ (ref));
    if (!asked) return false;
    this.#pendingRequests.delete(/** @type {number} */ (ref));
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
    const asked = this.#pendingRequests.get(ref);
    if (asked?.kind !== 'read') return false;
    this.#pendingRequests.delete(ref);
    const { read } = this.thread(asked.id).own;
    if (asked.seq > read) this.#learn(asked.id, 'own', { last_delivered_seq: 0, last_read_seq: asked.seq });
    this.#listener.readConfirmed(asked.id);
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
    if (!entry.isStored) return this.#listener.failed(entry, error);
    // Only the repetition was refused: the message is stored.
    this.outbox.remove(entry.send.client_msg_id);
    this.#listener.done(entry);
  }
}
