// One conversation as an application sees it.

import { Addresses } from './addresses.js';
import { BluetickError } from './errors.js';
import { Message, fieldsOf, previewOf } from './message.js';
import { Timeline } from './timeline.js';
import { Unread } from './unread.js';

/** Typing is said again every few seconds while it is true, and ends by itself. */
const TYPING_SHOWN_MS = 6_000;
const TYPING_SAID_MS = 3_000;
const PAGE = 50;

/** @typedef {import('./thread.js').Frame} Frame */
/** @typedef {import('./message.js').Tick} Tick */
/** @typedef {{userId: string, name: string | null, avatarUrl: string | null}} Profile */
/** @typedef {{online: boolean, lastSeen: number | null}} Presence */
/** @typedef {{url: string, expiresAt: number, name: string, mime: string, bytes: number, sha256: string}} AttachmentUrl */
/**
 * What to send. One of `body`, `attachment` and `file` must be there.
 *
 * @typedef {object} Draft
 * @property {string} [body]
 * @property {Record<string, unknown>} [meta] yours: at most 4 KiB of JSON
 * @property {{s3Ref: string} & Partial<import('./message.js').Attachment>} [attachment] uploaded before
 * @property {Blob} [file] uploaded first, then sent; a `File` brings its name
 * @property {string} [name] of the file, where it has none
 * @property {boolean} [voice] the file was spoken for this message
 * @property {string} [blurhash]
 * @property {Blob} [thumbnail] a small picture of the file, uploaded with it
 * @property {string} [clientMsgId] the same id always means the same message. Made up if absent; derive it from what you
 *   answer to, and an answer given twice is sent once
 */

/** A conversation with one other user. Get it from `client.conversation(peer)`. */
export class Conversation {
  #core;
  #timeline = new Timeline();
  #unread = new Unread();
  /** Own messages that the server has not confirmed, in order. @type {Message[]} */
  #queued = [];
  /** @type {Profile} */
  #peer;
  #last = { preview: '', ts: 0, sender: /** @type {string | null} */ (null), seq: 0 };
  /** @type {Promise<void> | null} */
  #loading = null;
  /** @type {Promise<void> | null} */
  #loadingEarlier = null;
  /** @type {Promise<void> | null} */
  #refreshing = null;
  #refreshOwed = false;
  #everLoaded = false;
  /** @type {unknown} */
  #typingTimer = null;
  #typingSaidAt = -Infinity;
  /** @type {Presence | null} */
  #presence = null;
  #addresses;
  #tickOf = (/** @type {Message} */ message) => this.#tick(message);

  /** @internal @param {import('./core.js').Core} core @param {string} id @param {string} peer */
  constructor(core, id, peer) {
    this.#core = core;
    /** `alice~bob` */
    this.id = id;
    this.#peer = { userId: peer, name: null, avatarUrl: null };
    this.#addresses = new Addresses(core, id);
  }

  // ---- what is known ----

  /** The other member. The name is null until the inbox has told it, or if there is none. */
  get peer() {
    return this.#peer;
  }

  /** What is loaded, in order and without a gap, then what waits in the outbox, in order. @returns {Message[]} */
  get messages() {
    return [...this.#timeline.items, ...this.#queued];
  }

  /** How many of the peer's messages the user has not read. */
  get unread() {
    return this.#holdsUnread ? this.#timeline.countAfter(this.ownRead) : this.#unread.count;
  }

  /** Whether everything after what was read is here, and can be counted. */
  get #holdsUnread() {
    return this.#timeline.ready && this.#timeline.from <= this.ownRead + 1;
  }

  /** The last message on one line. */
  get preview() {
    const waiting = this.#queued[this.#queued.length - 1];
    return waiting ? previewOf(waiting) : this.#last.preview;
  }

  /** When the last message was written; 0 if there is none. */
  get lastTs() {
    const waiting = this.#queued[this.#queued.length - 1];
    return waiting ? waiting.ts : this.#last.ts;
  }

  /** Who wrote the last message. */
  get lastSender() {
    return this.#queued.length > 0 ? this.#core.user : this.#last.sender;
  }

  /** The seq of the newest message that the server has; 0 if there is none. */
  get lastSeq() {
    return this.#last.seq;
  }

  /** The tick of the last message, null if it is the peer's. @returns {Tick | null} */
  get lastTick() {
    const waiting = this.#queued[this.#queued.length - 1];
    if (waiting) return waiting.tick;
    return this.#last.sender === this.#core.user ? this.#thread.tickOf(this.#last.seq) : null;
  }

  /** Whether the peer is writing just now. */
  get typing() {
    return this.#typingTimer !== null;
  }

  /** Null while it is not known. */
  get presence() {
    return this.#presence;
  }

  /** Whether the newest page is loaded. */
  get loaded() {
    return this.#everLoaded;
  }

  /** Whether a page is on its way. */
  get loading() {
    return this.#loading !== null || this.#loadingEarlier !== null;
  }

  /** Whether there is more to load above. */
  get hasEarlier() {
    return this.#everLoaded && this.#timeline.earlier !== null;
  }

  /** Up to which seq the user has read. */
  get ownRead() {
    return this.#thread.readUpTo;
  }

  /** Up to which seq the peer has received. */
  get peerDelivered() {
    return this.#thread.peer.delivered;
  }

  /** Up to which seq the peer has read. */
  get peerRead() {
    return this.#thread.peer.read;
  }

  get #thread() {
    return this.#core.sync.thread(this.id);
  }

  /** @param {Message} message @returns {Tick} */
  #tick(message) {
    if (!message.own) return 'received';
    if (message.seq !== null) return this.#thread.tickOf(message.seq);
    return message.error ? 'failed' : 'waiting';
  }

  // ---- loading ----

  /** Loads the newest page, once; from then on what comes is appended. Waits while offline. @returns {Promise<void>} */
  load() {
    if (this.#timeline.ready) return this.#loading ?? Promise.resolve();
    this.#loading ??= this.#loadNewest().finally(() => {
      this.#loading = null;
      this.#changed();
    });
    this.#changed();
    return this.#loading;
  }

  async #loadNewest() {
    const empty = { messages: [], from_seq: 1, to_seq: 0, next: null };
    const orEmpty = (/** @type {unknown} */ error) => {
      // A conversation exists with its first message, and not before.
      if (error instanceof BluetickError && error.code === 'not_found') return /** @type {Frame} */ (empty);
      throw error;
    };
    // The first time somebody waits for it, and hears if it fails. Later nobody does: then it is asked for until it comes.
    const patient = this.#everLoaded;
    const asked = this.#core.ask({ type: 'history', conversation_id: this.id, limit: PAGE }, patient).catch(orEmpty);
    const [page] = await Promise.all([asked, this._refresh(patient)]);
    this.#timeline.begin(page.messages.map((/** @type {Frame} */ wire) => this.#messageOf(wire)), /** @type {any} */ (page));
    this.#everLoaded = true;
    this.#core.sync.loaded(this.id, page.to_seq);
    const newest = page.messages[page.messages.length - 1];
    if (newest) this.#noteLast(newest);
    this.#core.watchSoon();
  }

  /** Loads the page above. @returns {Promise<void>} */
  loadEarlier() {
    if (!this.#everLoaded) return this.load();
    if (!this.hasEarlier) return Promise.resolve();
    this.#loadingEarlier ??= this.#loadPageAbove().finally(() => {
      this.#loadingEarlier = null;
      this.#changed();
    });
    this.#changed();
    return this.#loadingEarlier;
  }

  async #loadPageAbove() {
    const before = this.#timeline.earlier;
    const page = await this.#core.ask({ type: 'history', conversation_id: this.id, before_seq: before, limit: PAGE });
    // A reset may have replaced what this page was to stand above.
    if (this.#timeline.earlier !== before) return;
    this.#timeline.prepend(page.messages.map((/** @type {Frame} */ wire) => this.#messageOf(wire)), /** @type {any} */ (page));
  }

  /** Asks the server how far both sides are, and how much is unread. @internal @param {boolean} patient @returns {Promise<void>} */
  async _refresh(patient) {
    try {
      // An answer from before the newest message is of no use; a second one cannot be.
      for (let fits = false, tries = 0; !fits && tries < 3; tries += 1) {
        const status = await this.#core.ask({ type: 'status', conversation_id: this.id }, patient);
        fits = this.#unread.told(status.unread_count, status.last_seq, this.ownRead);
      }
      this.#changed();
    } catch (error) {
      if (!(error instanceof BluetickError && error.code === 'not_found')) throw error;
    }
  }

  /** The same on the client's own behalf: one question at a time, and one more if there was a reason meanwhile. */
  #refreshSoon() {
    this.#refreshOwed = true;
    this.#refreshing ??= this.#refreshWhileOwed().finally(() => (this.#refreshing = null));
    this.#core.quietly(this.#refreshing);
  }

  async #refreshWhileOwed() {
    while (this.#refreshOwed) {
      this.#refreshOwed = false;
      await this._refresh(true);
    }
  }

  // ---- what the user does ----

  /**
   * Sends. The message is in `messages` at once, with the tick `waiting`; it is stored on the device before it goes out,
   * and goes out as often as it takes. With a `file` that is uploaded first.
   *
   * @param {string | Draft} draft
   * @returns {Message}
   * @throws {BluetickError} `empty_body`, `body_too_large`, `bad_request`, `to_self`, `outbox_full` or `closed`
   */
  send(draft) {
    return this.#core.sending.compose(this, typeof draft === 'string' ? { body: draft } : draft);
  }

  /**
   * The user has seen the peer's messages up to `seq`, or all that are here. Said offline, it is kept.
   *
   * @param {number} [seq] beyond the newest known message it means that one
   * @throws {BluetickError} `bad_request` if it is not a positive integer
   */
  read(seq) {
    const upto = seq === undefined ? this.#readable : this.#known(seq);
    if (upto <= this.ownRead) return;
    this.#core.sync.read(this.id, upto);
    this.#unread.read(upto);
    this.#core.pumpSoon();
    this.#core.keepSoon();
    this.#changed();
  }

  /** All that are here. */
  get #readable() {
    return this.#core.readable(this.#thread.heard, Number(this.#timeline.newestOfPeer?.seq ?? 0));
  }

  /** What does not exist yet cannot have been seen. @param {number} seq */
  #known(seq) {
    if (!Number.isSafeInteger(seq) || seq < 1) throw new BluetickError('bad_request', 'seq must be a positive integer');
    return Math.min(seq, Math.max(this.#last.seq, this.#thread.newest));
  }

  /** The user is typing. Call it with every key: it is said every few seconds. */
  setTyping() {
    const now = this.#core.environment.now();
    if (now - this.#typingSaidAt < TYPING_SAID_MS || this.#last.seq === 0 || !this.#core.sync.isUp) return;
    this.#typingSaidAt = now;
    this.#core.write({ type: 'typing', conversation_id: this.id });
  }

  /** Tries a failed message again, or one that waits. @param {Message} message */
  retry(message) {
    this.#core.sending.retry(this, message);
  }

  /** Takes a failed or waiting message out of the outbox. The server may have it already; then it comes back as sent. @param {Message} message */
  discard(message) {
    this.#core.sending.discard(this, message);
  }

  /** Where the file of a message can be loaded from, for a few minutes. @param {Message} message @returns {Promise<AttachmentUrl>} */
  async attachmentUrl(message) {
    if (!message.attachment?.s3Ref) throw new BluetickError('not_found', 'the message has no file');
    return this.#addresses.of(message.attachment.s3Ref);
  }

  /** The same of its thumbnail. @param {Message} message @returns {Promise<AttachmentUrl>} */
  async thumbnailUrl(message) {
    if (!message.attachment?.thumbnail) throw new BluetickError('not_found', 'the message has no thumbnail');
    return this.#addresses.of(message.attachment.thumbnail);
  }

  // ---- what the client tells it ----

  #changed() {
    this.#core.changed(this);
  }

  /** @param {Frame} wire @returns {Message} */
  #messageOf(wire) {
    // One of the outbox that the server has after all: it is sent, and the same object stays.
    if (wire.sender === this.#core.user) this.#core.sync.settleOwn(wire);
    return this.#timeline.find(wire.seq) ?? new Message(fieldsOf(wire, this.#core.user), this.#tickOf);
  }

  /** A message as an object, not yet in the conversation. @internal @param {Frame} wire */
  _peek(wire) {
    return this.#messageOf(wire);
  }

  /** A message came. @internal @param {Message} message */
  _arrived(message) {
    const seq = Number(message.seq);
    if (!message.own) {
      this.#unread.arrived(seq, this.ownRead);
      this._stopTyping();
    }
    this.#noteLast(message);
    this.#place(message);
    this.#changed();
  }

  /** A message of one's own left the outbox. @internal @param {Message} message @param {boolean} justNow the server has it since now, and not from an earlier try */
  _sent(message, justNow) {
    this._unqueue(message);
    this.#noteLast(message);
    this.#place(message, justNow);
    this.#changed();
  }

  /** @param {Message} message @param {boolean} [justNow] */
  #place(message, justNow = true) {
    const { ready } = this.#timeline;
    // The very first message, and nothing is known to come after it: there is nothing else to load.
    const isAll = justNow && message.seq === 1 && this.#last.seq <= 1 && this.#thread.head <= 1;
    if (!ready && !this.#loading && isAll) {
      this.#timeline.begin([message], { from_seq: 1, to_seq: 1, next: null });
      this.#everLoaded = true;
    } else if (ready || this.#loading || this.#everLoaded) this.#timeline.add(message);
  }

  /** @param {{seq: number | null, ts: number, sender: string, body: string, attachment?: any}} message */
  #noteLast(message) {
    if (Number(message.seq) < this.#last.seq) return;
    this.#last = { preview: previewOf(message), ts: message.ts, sender: message.sender, seq: Number(message.seq) };
  }

  /** @internal @param {Message} message */
  _queue(message) {
    this.#queued.push(message);
    this.#changed();
  }

  /** @internal @param {Message[]} messages */
  _restore(messages) {
    this.#queued = [...messages, ...this.#queued];
    this.#changed();
  }

  /** @internal @param {Message} message */
  _unqueue(message) {
    this.#queued = this.#queued.filter((other) => other !== message);
    this.#changed();
  }

  /** The message of one's own with this id, if it is among those that are loaded. @internal @param {string} clientMsgId */
  _sentMessage(clientMsgId) {
    return this.#timeline.items.find((message) => message.own && message.clientMsgId === clientMsgId);
  }

  /** Whether something waits to be sent. @internal */
  get _waits() {
    return this.#queued.length > 0;
  }

  /** @internal */
  get _tickOf() {
    return this.#tickOf;
  }

  /** A line of the inbox. @internal @param {Frame} entry */
  _inbox(entry) {
    const { user_id: userId, name, avatar_url: avatarUrl } = entry.peer;
    this.#peer = { userId, name, avatarUrl };
    if (entry.last_seq >= this.#last.seq) {
      this.#last = { preview: entry.last_message_preview, ts: entry.last_message_ts, sender: entry.last_sender, seq: entry.last_seq };
    }
    if (!this.#unread.told(entry.unread_count, entry.last_seq, this.ownRead)) this.#refreshSoon();
    this.#changed();
  }

  /** Own boundaries grew, here or on another device. @internal */
  _readMoved() {
    const known = this.#unread.read(this.ownRead) || this.#holdsUnread;
    if (!known && !this.#thread.readPending) this.#refreshSoon();
    this.#changed();
  }

  /** What was loaded may have a gap now: load it again. @internal */
  _reset() {
    if (!this.#everLoaded) return;
    this.#timeline.doubt();
    this.#core.quietly(this.load());
  }

  /** A page that did not come with the last connection is asked for again. @internal */
  _resume() {
    if (this.#everLoaded && !this.#timeline.ready) this.#core.quietly(this.load());
  }

  /** @internal */
  _typing() {
    const { setTimeout, clearTimeout } = this.#core.environment;
    const before = this.#typingTimer;
    if (before !== null) clearTimeout(before);
    this.#typingTimer = setTimeout(() => this._stopTyping(), TYPING_SHOWN_MS);
    if (before !== null) return;
    this.#core.emit('typing', this);
    this.#changed();
  }

  /** @internal */
  _stopTyping() {
    if (this.#typingTimer === null) return;
    this.#core.environment.clearTimeout(this.#typingTimer);
    this.#typingTimer = null;
    this.#core.emit('typing', this);
    this.#changed();
  }

  /** @internal @param {Presence | null} presence */
  _present(presence) {
    this.#presence = presence;
    this.#core.emit('presence', this);
    this.#changed();
  }
}
