// An open tab takes over the outbox of a closed one. Each tab waits for the locks of the other slots with unsent rows.

import { freed, nameOf, take } from './slots.js';

/** A reloading page takes its slot and its outbox back within this time. */
const RELOAD_MS = 5_000;

/** @typedef {import('./storage/memory.js').OutboxRow} OutboxRow */
/**
 * @typedef {object} SharedOutbox
 * @property {() => Promise<Iterable<string>>} slots the slots with unsent rows
 * @property {(from: string) => Promise<OutboxRow[]>} move moves all rows to this slot, atomically
 */

export class OutboxTakeover {
  #user;
  #slot;
  #locks;
  #shared;
  #reloadMs;
  #channel;
  #closing = new AbortController();
  /** Slots whose lock is awaited. @type {Set<string>} */
  #awaited = new Set();
  /** Takeovers in progress. @type {Set<Promise<unknown>>} */
  #moving = new Set();
  /** @type {((rows: OutboxRow[]) => void) | null} */
  #onTakenOver = null;

  /** @param {string} user @param {string} slot its lock is held until after `close` @param {LockManager} locks @param {SharedOutbox} shared @param {number} [reloadMs] */
  constructor(user, slot, locks, shared, reloadMs = RELOAD_MS) {
    this.#user = user;
    this.#slot = slot;
    this.#locks = locks;
    this.#shared = shared;
    this.#reloadMs = reloadMs;
    this.#channel = typeof BroadcastChannel === 'function' ? new BroadcastChannel(nameOf(user, 'unsent')) : null;
    // In Node it would keep the process alive.
    /** @type {any} */ (this.#channel)?.unref?.();
  }

  /** From now on; `heir` is given what is taken over, when it is stored. @param {(rows: OutboxRow[]) => void} onTakenOver */
  async start(onTakenOver) {
    this.#onTakenOver = onTakenOver;
    if (this.#channel) this.#channel.onmessage = ({ data }) => this.#await(String(data));
    for (const slot of await this.#shared.slots()) this.#await(slot);
  }

  /** Announces that this slot gets unsent rows, so that the others wait for its lock. */
  tell() {
    if (!this.#closing.signal.aborted) this.#channel?.postMessage(this.#slot);
  }

  /** Ends all waits. No takeover begins after it. */
  async close() {
    this.#closing.abort();
    this.#channel?.close();
    await Promise.allSettled(this.#moving);
  }

  /** @param {string} slot */
  #await(slot) {
    // A device id of the application is not shared between tabs.
    if (slot === this.#slot || slot.startsWith('device-') || this.#awaited.has(slot)) return;
    this.#awaited.add(slot);
    this.#inherit(slot)
      // The next tab that opens finds the rows where they are.
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
      // Another tab has the slot again.
    }
  }

  /** Returns whether the slot was free. @param {string} slot */
  async #takeOver(slot) {
    const taken = await take(this.#user, slot, this.#locks);
    if (!taken) return false;
    try {
      // Announced before the rows are here: the others have to wait for this slot then.
      this.tell();
      const rows = await this.#shared.move(slot);
      if (rows.length > 0 && !this.#closing.signal.aborted) this.#onTakenOver?.(rows);
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
