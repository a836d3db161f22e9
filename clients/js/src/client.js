// The client as applications see it.

import { Core } from './core.js';
import { environment } from './environment.js';
import { BluetickError } from './errors.js';
import { checkDevice, checkId } from './ids.js';
import { defaultStorage } from './storage/default.js';

/** @typedef {import('./conversation.js').Conversation} Conversation */
/** @typedef {import('./conversation.js').Draft} Draft */
/** @typedef {import('./conversation.js').Profile} Profile */
/** @typedef {import('./connection.js').ConnectionState} ConnectionState */
/** @typedef {import('./message.js').Message} Message */
/** @typedef {import('./storage/memory.js').Storage} Storage */
/**
 * @typedef {object} Options
 * @property {string} [url] the server's address, `https://chat.example`; the page's own origin if absent
 * @property {string} user who this is: the `sub` of the token
 * @property {string | (() => string | Promise<string>)} token or a function that returns one: called for every connection, and before a token expires
 * @property {string} [device] a fixed device id; if absent, the storage has one
 * @property {Storage} [storage] where the outbox is kept: IndexedDB in browsers, memory elsewhere, if absent
 * @property {(message: Message) => void | Promise<void>} [receive] stores a message. It is awaited before the message is acked, and called again
 *   if it fails. Only with it the device's place in the stream is kept across restarts; it may then see a message again after a crash
 * @property {boolean} [presence] whether to watch the peers' presence; true if absent
 * @property {boolean} [autoRead] whether every message counts as read when it arrives, for bots; false if absent
 * @property {new (url: string) => WebSocket} [WebSocket] for platforms without one: Node before 22
 * @property {typeof fetch} [fetch]
 * @property {() => number} [random] for tests
 * @property {() => number} [now] for tests
 * @property {(then: () => void, ms: number) => unknown} [setTimeout] for tests
 * @property {(timer: any) => void} [clearTimeout] for tests
 */
/**
 * The events, and the arguments of their handlers.
 *
 * - `state`: `state`, `retryAt` or `reason` changed
 * - `caughtUp`: everything that was pending when the connection began has arrived
 * - `message`: a message of the peer, or an own message from another device, arrived. Once, and in order within its conversation
 * - `sent`: the server has stored an own message
 * - `failed`: a message was refused for good; it stays in its conversation until it is retried or discarded
 * - `ticks`: a user (the user id) has received or read more
 * - `typing`, `presence`: the peer's typing or presence changed
 * - `change`: a conversation, or (null) the list or the connection, has to be drawn again. Emitted once per turn of the event loop
 * - `reset`: the cursor was too old; inbox and histories are being reloaded
 * - `frame`: every frame in both directions, without tokens, for debugging
 * - `error`: a background task failed, or a handler threw; without a handler it is logged to the console
 *
 * @typedef {{
 *   state: [client: Client],
 *   caughtUp: [],
 *   message: [message: Message, conversation: Conversation],
 *   sent: [message: Message],
 *   failed: [message: Message, error: BluetickError],
 *   ticks: [conversation: Conversation, userId: string],
 *   typing: [conversation: Conversation],
 *   presence: [conversation: Conversation],
 *   change: [conversation: Conversation | null],
 *   reset: [],
 *   frame: [traced: {direction: 'in' | 'out', frame: Record<string, any>}],
 *   error: [error: BluetickError],
 * }} Events
 */

/** A client that stays connected, keeps unsent messages, and keeps ticks current. */
export class Client {
  #core;
  #stopListening;

  /** @param {Options} options */
  constructor(options) {
    const base = (options.url ?? globalThis.location?.origin ?? '').replace(/\/+$/, '');
    if (!/^https?:\/\//.test(base)) throw new BluetickError('bad_request', 'url must begin with http:// or https://');
    if (options.device !== undefined) checkDevice(options.device);
    this.#core = new Core({
      user: checkId(options.user, 'user'),
      base,
      token: options.token,
      device: options.device,
      storage: options.storage ?? defaultStorage((error) => this.#core.report(error)),
      receive: options.receive,
      presence: options.presence ?? true,
      autoRead: options.autoRead ?? false,
      environment: environment(options),
      client: () => this,
    });
    this.#stopListening = onNetworkChange(() => this.#core.connection.nudge(), () => this.#core.connection.doubt());
  }

  /** The user of this client. */
  get user() {
    return this.#core.user;
  }

  /** The id of this device; empty until the storage is open, known when the client is online. */
  get device() {
    return this.#core.device;
  }

  /** `waiting` is the delay before the next attempt: see `retryAt`. `offline` is on purpose, or for the given `reason`. */
  get state() {
    return this.#core.connection.state;
  }

  /** The time of the next attempt, in milliseconds since 1970; null if none is planned. */
  get retryAt() {
    return this.#core.connection.retryAt;
  }

  /** Why there is no connection; null if there is one, or if the application disconnected. */
  get reason() {
    return this.#core.connection.reason;
  }

  /** Whether everything that was pending when the connection began has arrived. */
  get caughtUp() {
    return this.#core.caughtUp;
  }

  /** The server's limits, known after the first connection. */
  get limits() {
    return { maxBodyBytes: this.#core.sync.maxBodyBytes };
  }

  /** Goes online, and reconnects after every loss. During the delay before the next attempt, connects at once. */
  connect() {
    this.#core.connect();
  }

  /** Goes offline. Messages that are sent meanwhile wait. */
  disconnect() {
    this.#core.disconnect();
  }

  /** Ends the client. Unsent messages stay in the storage. @returns {Promise<void>} */
  close() {
    this.#stopListening();
    return this.#core.close();
  }

  /**
   * @template {keyof Events} K
   * @param {K} event
   * @param {(...args: Events[K]) => void} handler
   * @returns {() => void} removes the handler
   */
  on(event, handler) {
    return this.#core.emitter.on(event, handler);
  }

  /** The known conversations, newest first; unsent messages count as newest. @returns {Conversation[]} */
  get conversations() {
    const known = [...this.#core.conversations.values()].filter(({ lastSeq, _waits }) => lastSeq > 0 || _waits);
    return known.sort((a, b) => Number(b._waits) - Number(a._waits) || b.lastTs - a.lastTs || (a.id < b.id ? -1 : 1));
  }

  /** Unread messages in the known conversations. */
  get unread() {
    return [...this.#core.conversations.values()].reduce((sum, { unread }) => sum + unread, 0);
  }

  /** The conversation with a user; it exists on the server from its first message on. @param {string} peer @returns {Conversation} */
  conversation(peer) {
    checkId(peer, 'the peer');
    if (peer === this.user) throw new BluetickError('to_self', 'one cannot write to oneself');
    return this.#core.conversation(peer);
  }

  /** Loads one more page of the list; the first is loaded automatically after each connect. @returns {Promise<{more: boolean}>} */
  loadInbox() {
    return this.#core.inbox.loadMore();
  }

  /** The same as `conversation(to).send(draft)`. @param {string} to @param {string | Draft} draft @returns {Message} */
  send(to, draft) {
    return this.conversation(to).send(draft);
  }

  // ---- over HTTP ----

  /** The user's own profile. @returns {Promise<Profile>} */
  async profile() {
    return profileOf(await this.#core.http.call('GET', '/me'));
  }

  /** Sets the user's profile; fields that are left out are removed. @param {{name?: string | null, avatarUrl?: string | null}} profile @returns {Promise<Profile>} */
  async setProfile({ name, avatarUrl }) {
    return profileOf(await this.#core.http.call('PUT', '/me', { ...(name && { name }), ...(avatarUrl && { avatar_url: avatarUrl }) }));
  }

  /** The profile of a user with a common conversation. @param {string} id @returns {Promise<Profile>} */
  async userProfile(id) {
    return profileOf(await this.#core.http.call('GET', `/users/${encodeURIComponent(checkId(id, 'the user'))}`));
  }

  /** The users that the user blocks. @returns {Promise<string[]>} */
  async blocks() {
    return this.#core.http.list('/blocks', 'blocks');
  }

  /** @param {string} user @returns {Promise<void>} */
  async block(user) {
    await this.#core.http.call('PUT', `/blocks/${encodeURIComponent(checkId(user, 'the user'))}`);
  }

  /** @param {string} user @returns {Promise<void>} */
  async unblock(user) {
    await this.#core.http.call('DELETE', `/blocks/${encodeURIComponent(checkId(user, 'the user'))}`);
  }

  /** The muted conversations. @returns {Promise<{conversationId: string, until: number | null}[]>} */
  async mutes() {
    const mutes = await this.#core.http.list('/mutes', 'mutes');
    return mutes.map((/** @type {any} */ { conversation_id: conversationId, until }) => ({ conversationId, until: until ?? null }));
  }

  /** Mutes notifications of this conversation, permanently or until a time in milliseconds since 1970. @param {string} conversationId @param {number} [until] @returns {Promise<void>} */
  async mute(conversationId, until) {
    await this.#core.http.call('PUT', `/conversations/${encodeURIComponent(conversationId)}/mute`, until === undefined ? undefined : { until });
  }

  /** @param {string} conversationId @returns {Promise<void>} */
  async unmute(conversationId) {
    await this.#core.http.call('DELETE', `/conversations/${encodeURIComponent(conversationId)}/mute`);
  }

  /** The notification providers of the server. @returns {Promise<{providers: string[], vapidPublicKey: string | null, content: string}>} */
  async push() {
    const { providers, vapid_public_key: vapidPublicKey, content } = await this.#core.http.call('GET', '/push');
    return { providers, vapidPublicKey: vapidPublicKey ?? null, content };
  }

  /** Registers this device for notifications; see docs/protocol.md, "Registering". Null removes the registration. @param {Record<string, unknown> | null} registration @returns {Promise<void>} */
  async registerPush(registration) {
    const device = await this.#core.deviceId();
    const path = `/devices/${encodeURIComponent(device)}/push`;
    if (registration === null) await this.#core.http.call('DELETE', path);
    else await this.#core.http.call('PUT', path, registration);
  }

  /** The devices that are registered for notifications. @returns {Promise<{device: string, provider: string, content: string, registeredAt: number}[]>} */
  async devices() {
    const { devices } = await this.#core.http.call('GET', '/devices');
    return devices.map((/** @type {any} */ { registered_at: registeredAt, ...rest }) => ({ ...rest, registeredAt }));
  }
}

/** @param {any} wire @returns {Profile} */
function profileOf({ user_id: userId, name, avatar_url: avatarUrl }) {
  return { userId, name: name ?? null, avatarUrl: avatarUrl ?? null };
}

/** Calls `then` when the network returns or the page becomes visible, and `doubt` when the network goes down. @param {() => void} then @param {() => void} doubt @returns {() => void} */
function onNetworkChange(then, doubt) {
  if (typeof globalThis.addEventListener !== 'function' || typeof document === 'undefined') return () => {};
  const seen = () => document.visibilityState === 'visible' && then();
  globalThis.addEventListener('online', then);
  globalThis.addEventListener('offline', doubt);
  globalThis.addEventListener('pageshow', seen);
  document.addEventListener('visibilitychange', seen);
  return () => {
    globalThis.removeEventListener('online', then);
    globalThis.removeEventListener('offline', doubt);
    globalThis.removeEventListener('pageshow', seen);
    document.removeEventListener('visibilitychange', seen);
  };
}
