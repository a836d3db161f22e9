// Connects the parts of the client: contract (sync.js), connection, storage and conversations.

import { Connection } from './connection.js';
import { Conversation } from './conversation.js';
import { Emitter } from './emitter.js';
import { soon } from './environment.js';
import { BluetickError, asError } from './errors.js';
import { Http } from './http.js';
import { conversationId, peerOf } from './ids.js';
import { Inbox } from './inbox.js';
import { Persistence } from './persistence.js';
import { Requests } from './requests.js';
import { Sending } from './sending.js';
import { Sync } from './sync.js';
import { Renewal, Tokens } from './tokens.js';
import { Watch } from './watch.js';

/** The delay before `receive` is retried, doubled up to the cap. */
const RECEIVE_RETRY_MS = 1_000;
const RECEIVE_RETRY_CAP_MS = 30_000;
/** How long `close` waits for a running `receive`. */
const RECEIVE_GRACE_MS = 3_000;

/** @typedef {import('./thread.js').Frame} Frame */
/** @typedef {import('./message.js').Message} Message */
/** @typedef {import('./drafts.js').Item} Item */
/** @typedef {import('./client.js').Events} Events */
/**
 * @typedef {object} Settings
 * @property {string} user
 * @property {string} base
 * @property {string | (() => string | Promise<string>)} token
 * @property {string | undefined} device
 * @property {import('./storage/memory.js').Storage} storage
 * @property {((message: Message) => void | Promise<void>) | undefined} receive
 * @property {boolean} presence
 * @property {boolean} autoRead
 * @property {import('./environment.js').Environment} environment
 * @property {() => any} client what handlers of `state` are given
 */

export class Core {
  user;
  environment;
  /** @type {Emitter<Events>} */
  emitter = new Emitter();
  /** @type {Sync<Item>} */
  sync;
  connection;
  http;
  inbox;
  /** @type {Map<string, Conversation>} */
  conversations = new Map();
  device = '';
  /** Resolves when the storage is open. @type {Promise<void>} */
  opened;
  isOpen = false;
  isClosed = false;
  sending;
  caughtUp = false;

  #settings;
  #tokens;
  #renewal;
  #requests;
  #persistence;
  #watch;
  #pumping = false;
  /** Whether `receive` is running. */
  #receiving = false;
  /** Resolves when the running `receive` has ended. @type {Promise<void>} */
  #received = Promise.resolve();
  /** Ends the delay between two calls of `receive`. */
  #endPause = () => {};
  /** @type {unknown} */
  #retryTimer = null;
  #retryAt = 0;
  /** @type {Set<Conversation | null>} */
  #changes = new Set();

  /** @param {Settings} settings */
  constructor(settings) {
    this.#settings = settings;
    this.user = settings.user;
    this.environment = settings.environment;
    this.#tokens = new Tokens(settings.token, this.environment);
    this.http = new Http(settings.base, this.environment.fetch, this.#tokens);
    this.sync = new Sync(this.user, {
      stored: (entry, wire) => this.sending.onStored(entry, wire),
      done: (entry) => this.sending.onDone(entry),
      failed: (entry, error) => this.sending.onFailed(entry, error),
      ticks: (id, userId, readMoved) => this.#onTicks(id, userId, readMoved),
      readConfirmed: (id) => {
        this.#conversationOf(id)?._readMoved();
        this.keepSoon();
      },
    });
    const address = `${settings.base.replace(/^http/, 'ws')}/v1/ws`;
    this.connection = new Connection(this.environment, address, this.#tokens.canRefresh, {
      token: () => this.#tokenForConnection(),
      hello: (token) => {
        this.#renewal.began(token);
        return this.sync.connected(token, this.device);
      },
      frame: (frame) => this.#onFrame(frame),
      down: () => this.#onDown(),
      changed: () => this.#stateChanged(),
      trace: (direction, frame) => this.#trace(direction, frame),
    });
    this.#requests = new Requests(this.environment, {
      isUp: () => this.sync.isUp,
      write: (frame) => this.connection.write(frame),
      nextRef: () => this.sync.nextRef(),
    });
    this.#renewal = new Renewal(this.#tokens, this.environment, {
      isUp: () => this.sync.isUp,
      auth: (token) => this.ask({ type: 'auth', token }),
      report: (error) => this.report(error),
    });
    this.inbox = new Inbox(this);
    this.#watch = new Watch(this, settings.presence);
    this.#persistence = new Persistence(this.sync, settings.receive !== undefined, this.environment, (error) => this.report(error));
    this.sending = new Sending(this, this.#persistence);
    this.opened = this.#open();
    // Sends and connection attempts report the failure.
    this.opened.catch(() => {});
  }

  // ---- the device's storage ----

  async #open() {
    const { storage, device } = this.#settings;
    const saved = await this.#persistence.open(storage, this.user, device);
    this.device = saved.device;
    this.sending.restore(saved.outbox.sort((a, b) => a.n - b.n));
    this.isOpen = true;
    if (saved.inherit) this.quietly(saved.inherit((rows) => this.sending.inherit(rows)));
  }

  // ---- calls of the application ----

  connect() {
    this.checkOpen();
    this.connection.connect();
  }

  disconnect() {
    // Writes the last receipts first.
    this.#pump();
    this.connection.disconnect();
  }

  async close() {
    if (this.isClosed) return this.#persistence.closed;
    this.#pump();
    this.isClosed = true;
    this.connection.close();
    this.#cancelTimers();
    const error = new BluetickError('closed', 'the client was closed');
    this.#requests.close();
    for (const conversation of this.conversations.values()) conversation._stopTyping();
    await this.opened.catch(() => {});
    this.sending.close(error);
    await this.#lastReceived();
    await this.#persistence.close();
  }

  async deviceId() {
    await this.opened;
    return this.device;
  }

  checkOpen() {
    if (this.isClosed) throw new BluetickError('closed', 'the client was closed');
  }

  /** @param {string} peer */
  conversation(peer) {
    const id = conversationId(this.user, peer);
    let conversation = this.conversations.get(id);
    if (!conversation) {
      conversation = new Conversation(this, id, peer);
      this.conversations.set(id, conversation);
    }
    return conversation;
  }

  /** @param {string} id */
  #conversationOf(id) {
    const peer = peerOf(id, this.user);
    return peer === null ? null : this.conversation(peer);
  }

  /** @param {Frame} frame @param {boolean} [patient] for a request of the client itself: retried until it succeeds */
  ask(frame, patient = false) {
    if (this.isClosed) return Promise.reject(new BluetickError('closed', 'the client was closed'));
    return this.#requests.ask(frame, patient);
  }

  /** @param {Frame} frame */
  write(frame) {
    this.connection.write(frame);
  }

  watchSoon() {
    this.#watch.soon();
  }

  /** How far `read()` goes without a seq. With `receive`, only messages of the stream count. @param {number} heard @param {number} loaded */
  readable(heard, loaded) {
    return this.#settings.receive ? heard : Math.max(heard, loaded);
  }

  // ---- the connection ----

  async #tokenForConnection() {
    // Retries a storage that could not be opened before.
    this.opened = this.opened.catch(() => this.#open());
    await this.opened.catch((error) => {
      throw new BluetickError('storage_failed', asError(error, 'storage_failed').message, { cause: error });
    });
    return this.#tokens.fresh();
  }

  /** @param {Frame} frame */
  #onFrame(frame) {
    try {
      this.#takeFrame(frame);
    } catch (error) {
      // A malformed frame is reported and skipped.
      this.report(error);
    }
  }

  /** @param {Frame} frame */
  #takeFrame(frame) {
    if (frame.type === 'welcome' && frame.user_id !== this.user) {
      const error = new BluetickError('wrong_user', `the token is of ${frame.user_id}, and the client of ${this.user}`);
      return this.connection.refuse(error);
    }
    const taken = this.sync.frame(frame);
    if (!taken && this.#requests.answer(frame)) return this.#after();
    if (frame.type === 'welcome') this.#onWelcome();
    else if (frame.type === 'reset') this.#onReset();
    else if (frame.type === 'typing' && frame.user_id !== this.user) this.#conversationOf(frame.conversation_id)?._typing();
    else if (frame.type === 'presence') this.#watch.told(frame);
    this.#after();
  }

  #after() {
    this.#handleArrivals();
    this.pumpSoon();
  }

  #onWelcome() {
    this.sending.connected();
    this.#requests.up();
    this.inbox.connected();
    this.#watch.connected();
  }

  #onReset() {
    for (const conversation of this.conversations.values()) conversation._reset();
    this.emit('reset');
  }

  #onDown() {
    this.sync.disconnected();
    this.#renewal.ended();
    this.#requests.down();
    this.#watch.disconnected();
    if (this.#retryTimer !== null) this.environment.clearTimeout(this.#retryTimer);
    this.#retryTimer = null;
    this.caughtUp = false;
    for (const conversation of this.conversations.values()) conversation._stopTyping();
  }

  #cancelTimers() {
    if (this.#retryTimer !== null) this.environment.clearTimeout(this.#retryTimer);
    this.#watch.disconnected();
  }

  #stateChanged() {
    this.emit('state', this.#settings.client());
    this.changed(null);
  }

  /** @param {'in' | 'out'} direction @param {Frame} frame */
  #trace(direction, frame) {
    if (!this.emitter.has('frame')) return;
    this.emit('frame', { direction, frame: 'token' in frame ? { ...frame, token: '…' } : frame });
  }

  // ---- arrivals ----

  /** Handles arrivals in order. A message that `receive` is storing blocks those behind it. */
  #handleArrivals() {
    while (!this.#receiving && this.sync.arrivals.length > 0 && !this.isClosed) {
      const arrival = this.sync.arrivals[0];
      if (arrival.kind === 'message' && arrival.fresh && this.#settings.receive) this.#received = this.#receive(arrival);
      else this.#handled();
    }
    if (!this.#receiving) this.keepSoon();
    else if (this.isOpen) this.#persistence.later();
  }

  /** @param {Extract<import('./sync.js').Arrival, {kind: 'message'}>} arrival */
  async #receive(arrival) {
    this.#receiving = true;
    const message = this.#conversationOf(arrival.frame.conversation_id)?._peek(arrival.frame);
    const held = !message || (await this.#store(message));
    this.#receiving = false;
    if (!this.isClosed) {
      this.#handled(message);
      this.#after();
    } else if (held) {
      this.sync.arrivals.shift();
      this.sync.handled(arrival);
      if (this.#settings.autoRead && !arrival.own) this.sync.read(arrival.frame.conversation_id, arrival.frame.seq);
    }
  }

  /** Calls `receive` until it succeeds or the client is closed. @param {Message} message @returns {Promise<boolean>} whether it succeeded */
  async #store(message) {
    for (let wait = RECEIVE_RETRY_MS; !this.isClosed; wait = Math.min(wait * 2, RECEIVE_RETRY_CAP_MS)) {
      try {
        await this.#settings.receive?.(message);
        return true;
      } catch (error) {
        // It is not stored, so neither it nor a later message may be acked.
        this.report(error);
        if (!this.isClosed) await this.#pause(wait);
      }
    }
    return false;
  }

  /** @param {number} ms @returns {Promise<void>} */
  #pause(ms) {
    return new Promise((resolve) => {
      const timer = this.environment.setTimeout(resolve, ms);
      this.#endPause = () => {
        this.environment.clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Waits a moment for a running `receive`, so that its message need not be delivered again. */
  async #lastReceived() {
    this.#endPause();
    if (!this.#receiving) return;
    const grace = this.#pause(RECEIVE_GRACE_MS);
    await Promise.race([this.#received, grace]);
    this.#endPause();
  }

  /** @param {Message} [received] */
  #handled(received) {
    const arrival = /** @type {import('./sync.js').Arrival} */ (this.sync.arrivals.shift());
    this.sync.handled(arrival);
    if (arrival.kind === 'caughtUp') this.#onCaughtUp();
    if (arrival.kind === 'message' && arrival.fresh) this.#onMessage(arrival.frame, received);
  }

  /** @param {Frame} frame @param {Message} [received] */
  #onMessage(frame, received) {
    const conversation = this.#conversationOf(frame.conversation_id);
    if (!conversation) return;
    const isNew = conversation.lastSeq === 0;
    const message = received ?? conversation._peek(frame);
    conversation._arrived(message);
    if (isNew) this.onNewConversation();
    // A user who writes for the first time becomes visible, with name and presence.
    else if (!message.own && this.#watch.heard(frame.sender)) this.inbox.refreshSoon();
    this.changed(null);
    this.emit('message', message, conversation);
    if (this.#settings.autoRead && !message.own) conversation.read(frame.seq);
  }

  /** Loads the peer's name from the inbox and subscribes to their presence. */
  onNewConversation() {
    this.inbox.refreshSoon();
    this.watchSoon();
  }

  #onCaughtUp() {
    if (this.sync.phase !== 'live') return;
    this.caughtUp = true;
    this.connection.settled();
    for (const conversation of this.conversations.values()) conversation._resume();
    this.emit('caughtUp');
    this.changed(null);
  }

  /** @param {string} id @param {string} userId @param {boolean} readMoved */
  #onTicks(id, userId, readMoved) {
    const conversation = this.#conversationOf(id);
    if (!conversation) return;
    if (readMoved) conversation._readMoved();
    else this.changed(conversation);
    this.emit('ticks', conversation, userId);
  }

  // ---- writing ----

  /** Writes frames after the input that is readable already, so that one ack covers many messages. */
  pumpSoon() {
    if (this.#pumping) return;
    this.#pumping = true;
    soon(() => {
      this.#pumping = false;
      this.#pump();
    });
  }

  #pump() {
    if (this.isClosed) return;
    for (const frame of this.sync.takeFrames()) this.connection.write(frame);
    this.#handleArrivals();
    const ms = this.sync.takeRetryMs();
    if (ms !== null) this.#retryLater(ms);
  }

  /** @param {number} ms */
  #retryLater(ms) {
    const at = this.environment.now() + ms;
    if (this.#retryTimer !== null) {
      if (at <= this.#retryAt) return;
      this.environment.clearTimeout(this.#retryTimer);
    }
    this.#retryAt = at;
    this.#retryTimer = this.environment.setTimeout(() => {
      this.#retryTimer = null;
      this.sync.retry();
      this.#pump();
    }, ms);
  }

  /** Stores the state when no arrival is pending. */
  keepSoon() {
    if (this.isOpen) this.#persistence.soon();
  }

  // ---- events ----

  /**
   * @template {keyof Events} K
   * @param {K} event
   * @param {Events[K]} args
   */
  emit(event, ...args) {
    this.emitter.emit(event, ...args);
  }

  /** Emits `change` once per turn of the event loop. @param {Conversation | null} what */
  changed(what) {
    const scheduled = this.#changes.size > 0;
    this.#changes.add(what);
    if (scheduled) return;
    queueMicrotask(() => {
      const changes = [...this.#changes];
      this.#changes.clear();
      for (const change of changes) this.emit('change', change);
    });
  }

  /** Reports the failure of a promise that no caller awaits. @param {Promise<unknown>} promise */
  quietly(promise) {
    promise.catch((error) => {
      const dull = error instanceof BluetickError && (error.code === 'closed' || error.code === 'offline');
      if (!dull) this.report(error);
    });
  }

  /** @param {unknown} error */
  report(error) {
    if (this.isClosed) return;
    const told = asError(error, 'internal');
    if (this.emitter.has('error')) this.emit('error', told);
    else console.error('bluetick:', told);
  }
}
