// The list of conversations, page by page.

import { soon } from './environment.js';
import { peerOf } from './ids.js';

const PAGE = 50;
/** Pages that are loaded again after a reconnect, so that no entry is older than the connection. */
const RELOAD_MAX = 20;
/** Conversations beyond those pages that are refreshed after a reconnect, and how many at the same time. */
const STALE_MAX = 500;
const STALE_AT_ONCE = 4;

/** @typedef {import('./conversation.js').Conversation} Conversation */

export class Inbox {
  #core;
  /** The `before` of the next page; null at the end. @type {string | null | undefined} */
  #next = undefined;
  #pages = 0;
  /** Loads the first pages of this connection, or of the next one. @type {Promise<void> | null} */
  #first = null;
  /** @type {Promise<void> | null} */
  #refreshing = null;
  /** Conversations with unread messages before this connection, which may have been read elsewhere. @type {Set<Conversation>} */
  #stale = new Set();
  loaded = false;

  /** @param {import('./core.js').Core} core */
  constructor(core) {
    this.#core = core;
  }

  /** A connection is up: reloads the list, which may have changed. */
  connected() {
    const unread = [...this.#core.conversations.values()].filter((conversation) => conversation.unread > 0);
    this.#stale = new Set(unread.sort((a, b) => b.lastTs - a.lastTs));
    // A page in flight is requested again by itself.
    this.#first ??= this.#reload().finally(() => (this.#first = null));
    this.#core.quietly(this.#first);
  }

  async #reload() {
    /** @type {string | null | undefined} */
    let next;
    const pages = Math.min(Math.max(this.#pages, 1), RELOAD_MAX);
    for (let page = 0; page < pages && next !== null; page += 1) next = await this.#page(next);
    if (this.#pages <= pages) [this.#next, this.#pages] = [next, pages];
    this.loaded = true;
    this.#core.watchSoon();
    this.#core.changed(null);
    this.#askForStale();
  }

  /** Refreshes the conversations that the pages did not include, a few at the same time. */
  #askForStale() {
    const rest = [...this.#stale].slice(0, STALE_MAX).values();
    this.#stale.clear();
    const worker = async () => {
      for (const conversation of rest) await conversation._refresh(true);
    };
    for (let n = 0; n < STALE_AT_ONCE; n += 1) this.#core.quietly(worker());
  }

  /** Loads one more page. @returns {Promise<{more: boolean}>} */
  async loadMore() {
    if (this.#first) await this.#first;
    else if (!this.loaded) await (this.#first = this.#reload().finally(() => (this.#first = null)));
    else if (this.#next) {
      this.#next = await this.#page(this.#next, false);
      this.#pages += 1;
      this.#core.watchSoon();
    }
    return { more: Boolean(this.#next) };
  }

  /** A user wrote for the first time: reloads the first page, which has their name. */
  refreshSoon() {
    if (this.#first || this.#refreshing) return;
    this.#refreshing = new Promise((resolve) => soon(() => resolve(undefined)))
      .then(() => this.#page(undefined))
      .then(() => {})
      .finally(() => (this.#refreshing = null));
    this.#core.quietly(this.#refreshing);
  }

  /** @param {string | null | undefined} before @param {boolean} [patient] @returns {Promise<string | null>} */
  async #page(before, patient = true) {
    const page = await this.#core.ask({ type: 'inbox', limit: PAGE, ...(before && { before }) }, patient);
    for (const entry of page.conversations) {
      if (peerOf(entry.conversation_id, this.#core.user) === null) continue;
      const conversation = this.#core.conversation(entry.peer.user_id);
      this.#stale.delete(conversation);
      conversation._inbox(entry);
    }
    this.#core.changed(null);
    return page.next;
  }
}
