// What a tab leaves unsent when it goes, an open one takes over: each waits for the slots of the others that have something.

import { freed, nameOf, take } from './slots.js';

/** A page that reloads comes back for its slot, and for what is unsent in it. */
const RELOAD_MS = 5_000;

/** @typedef {import('./storage/memory.js').OutboxRow} OutboxRow */
/**
 * @typedef {object} Estate
 * @property {() => Promise<Iterable<string>>} slots those that have something unsent
 * @property {(from: string) => Promise<OutboxRow[]>} move makes all of it this slot's, at once or not at all
 */

export class Heirs {
  #user;
  #slot;
  #locks;
  #estate;
  #reloadMs;
  #channel;
  #closing = new AbortController();
  /** Slots that are waited for. @type {Set<string>} */
  #awaited = new Set();
  /** What is being taken over just now. @type {Set<Promise<unknown>>} */
  #moving = new Set();
  /** @type {((rows: OutboxRow[]) => void) | null} */
  #heir = null;

  /** @param {string} user @param {string} slot its lock is held until after `close` @param {LockManager} locks @param {Estate} estate @param {number} [reloadMs] */
  constructor(user, slot, locks, estate, reloadMs = RELOAD_MS) {
    this.#user = user;
    this.#slot = slot;
    this.#locks = locks;
    this.#estate = estate;
    this.#reloadMs = reloadMs;
    this.#channel = typeof BroadcastChannel === 'function' ? new BroadcastChannel(nameOf(user, 'unsent')) : null;
    // In Node it would keep the process.
    /** @type {any} */ (this.#channel)?.unref?.();
  }

  /** From now on; `heir` is given what is taken over, when it is stored. @param {(rows: OutboxRow[]) => void} heir */
  async start(heir) {
    this.#heir = heir;
    if (this.#channel) this.#channel.onmessage = ({ data }) => this.#await(String(data));
    for (const slot of await this.#estate.slots()) this.#await(slot);
  }

  /** This slot is about to have something unsent: the others wait for it. */
  tell() {
    if (!this.#closing.signal.aborted) this.#channel?.postMessage(this.#slot);
  }

  /** Nothing is taken over after it. */
  async close() {
    this.#closing.abort();
    this.#channel?.close();
    await Promise.allSettled(this.#moving);
  }

  /** @param {string} slot */
  #await(slot) {
    // A device that the application has named is its own affair.
    if (slot === this.#slot || slot.startsWith('device-') || this.#awaited.has(slot)) return;
    this.#awaited.add(slot);
    this.#inherit(slot)
      // Where it is, the next tab that opens finds it.
      .catch((error) => console.warn('bluetick: what another tab has not sent could not be taken over', error))
      .finally(() => this.#awaited.delete(slot));
  }

  /** @param {string} slot */
  async #inherit(slot) {
    while (await freed(this.#user, slot, this.#locks, this.#closing.signal)) {
      await this.#reloadTime();
      if (this.#closing.signal.aborted) return;
      const moving = this.#takeOver(slot);
      this.#moving.add(moving);
      try {
        if (await moving) return;
      } finally {
        this.#moving.delete(moving);
      }
      // Somebody has it again.
    }
  }

  /** Whether it could be had. @param {string} slot */
  async #takeOver(slot) {
    const taken = await take(this.#user, slot, this.#locks);
    if (!taken) return false;
    try {
      // Before it is here: from then on others have to know.
      this.tell();
      const rows = await this.#estate.move(slot);
      if (rows.length > 0 && !this.#closing.signal.aborted) this.#heir?.(rows);
      return true;
    } finally {
      taken.release();
    }
  }

  /** @returns {Promise<void>} */
  #reloadTime() {
    return new Promise((resolve) => {
      const { signal } = this.#closing;
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, this.#reloadMs);
      signal.addEventListener('abort', done);
    });
  }
}
