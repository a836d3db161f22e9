// What an application holds in its hands.

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
 * @property {string | (() => string | Promise<string>)} token or a function that gets one: called for every connection, and before a token ends
 * @property {string} [device] a fixed device id; without it the storage has one
 * @property {Storage} [storage] where the outbox is kept: IndexedDB in browsers, memory elsewhere, if absent
 * @property {(message: Message) => void | Promise<void>} [receive] stores a message. It is awaited before the message is acked, and called again
 *   if it fails. Only with it the device's place in the stream is kept across restarts; it may then see a message again after a crash
 * @property {boolean} [presence] whether to hear of the peers' coming and going; true if absent
 * @property {boolean} [autoRead] whether every message counts as read when it comes: for bots; false if absent
 * @property {new (url: string) => WebSocket} [WebSocket] where there is none: Node before 22
 * @property {typeof fetch} [fetch]
 * @property {() => number} [random] for tests
 * @property {() => number} [now] for tests
 * @property {(then: () => void, ms: number) => unknown} [setTimeout] for tests
 * @property {(timer: any) => void} [clearTimeout] for tests
 */
/**
 * What there is to listen to, and what a handler is given.
 *
 * - `state`: state, retryAt or reason are others now
 * - `caughtUp`: everything that was waiting when the connection began is here
 * - `message`: a message came, the peer's or one's own from another device. In order within its conversation, and once
 * - `sent`: the server has a message of one's own
 * - `failed`: a message was refused for good; it stays in its conversation until it is retried or discarded
 * - `ticks`: somebody (the user id) has received or read more
 * - `typing`, `presence`: of the conversation's peer
 * - `change`: anything worth a redraw, of a conversation, or (null) of the list and the connection. Told once however much happens at once
 * - `reset`: the device was away for too long; inbox and histories are being loaded anew
 * - `frame`: everything that goes over the wire, tokens blanked; for debugging
 * - `error`: something failed that nobody waits for, or a handler threw; without a handler it goes to the console
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

/** A client that keeps itself connected, its messages safe and its ticks right. */
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

  /** Who this is. */
  get user() {
    return this.#core.user;
  }

  /** The id of this device; empty until the storage is open, known when the client is online. */
  get device() {
    return this.#core.device;
  }

  /** `waiting` is between two tries: see `retryAt`. `offline` is on purpose, or for the `reason` given. */
  get state() {
    return this.#core.connection.state;
  }

  /** When the next try is made, in milliseconds since 1970; null if none is planned. */
  get retryAt() {
    return this.#core.connection.retryAt;
  }

  /** Why there is no connection; null if there is one, or if it was not wanted. */
  get reason() {
    return this.#core.connection.reason;
  }

  /** Whether everything that was waiting when the connection began is here. */
  get caughtUp() {
    return this.#core.caughtUp;
  }

  /** What the server takes; known after the first connection. */
  get limits() {
    return { maxBodyBytes: this.#core.sync.maxBodyBytes };
  }

  /** Be online from now on, through every loss. While waiting for the next try, it is made at once. */
  connect() {
    this.#core.connect();
  }

  /** Go offline. What is sent meanwhile waits. */
  disconnect() {
    this.#core.disconnect();
  }

  /** Ends the client for good. What it could not send stays in the storage. @returns {Promise<void>} */
  close() {
    this.#stopListening();
    return this.#core.close();
  }

  /**
   * @template {keyof Events} K
   * @param {K} event
   * @param {(...args: Events[K]) => void} handler
   * @returns {() => void} takes the handler away again
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

  /** The conversation with a user; it exists on the server with its first message. @param {string} peer @returns {Conversation} */
  conversation(peer) {
    checkId(peer, 'the peer');
    if (peer === this.user) throw new BluetickError('to_self', 'one cannot write to oneself');
    return this.#core.conversation(peer);
  }

  /** Loads one page more of the list; the first is loaded by itself after each connect. @returns {Promise<{more: boolean}>} */
  loadInbox() {
    return this.#core.inbox.loadMore();
  }

  /** The same as `conversation(to).send(draft)`. @param {string} to @param {string | Draft} draft @returns {Message} */
  send(to, draft) {
    return this.conversation(to).send(draft);
  }

  // ---- over HTTP ----

  /** One's own profile. @returns {Promise<Profile>} */
  async profile() {
    return profileOf(await this.#core.http.call('GET', '/me'));
  }

  /** What is left out is removed. @param {{name?: string | null, avatarUrl?: string | null}} profile @returns {Promise<Profile>} */
  async setProfile({ name, avatarUrl }) {
    return profileOf(await this.#core.http.call('PUT', '/me', { ...(name && { name }), ...(avatarUrl && { avatar_url: avatarUrl }) }));
  }

  /** The profile of somebody one shares a conversation with. @param {string} id @returns {Promise<Profile>} */
  async userProfile(id) {
    return profileOf(await this.#core.http.call('GET', `/users/${encodeURIComponent(checkId(id, 'the user'))}`));
  }

  /** Whom the user blocks. @returns {Promise<string[]>} */
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

  /** What is muted now. @returns {Promise<{conversationId: string, until: number | null}[]>} */
  async mutes() {
    const mutes = await this.#core.http.list('/mutes', 'mutes');
    return mutes.map((/** @type {any} */ { conversation_id: conversationId, until }) => ({ conversationId, until: until ?? null }));
  }

  /** No notifications of this conversation, for ever or until a time in milliseconds since 1970. @param {string} conversationId @param {number} [until] @returns {Promise<void>} */
  async mute(conversationId, until) {
    await this.#core.http.call('PUT', `/conversations/${encodeURIComponent(conversationId)}/mute`, until === undefined ? undefined : { until });
  }

  /** @param {string} conversationId @returns {Promise<void>} */
  async unmute(conversationId) {
    await this.#core.http.call('DELETE', `/conversations/${encodeURIComponent(conversationId)}/mute`);
  }

  /** Which providers of notifications the server has. @returns {Promise<{providers: string[], vapidPublicKey: string | null, content: string}>} */
  async push() {
    const { providers, vapid_public_key: vapidPublicKey, content } = await this.#core.http.call('GET', '/push');
    return { providers, vapidPublicKey: vapidPublicKey ?? null, content };
  }

  /** Registers this device for notifications; see docs/protocol.md, "Registering". Null takes the registration away. @param {Record<string, unknown> | null} registration @returns {Promise<void>} */
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

/** A page hears when the network comes back, or when it is looked at again, and when the network goes. @param {() => void} then @param {() => void} doubt @returns {() => void} */
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
