// Writes the state that survives a restart: outbox rows at once, the rest in batches.

import { soon } from './environment.js';

/** @typedef {import('./storage/memory.js').Saved} Saved */
/** @typedef {import('./storage/memory.js').Storage} Storage */

/** The key of the state that belongs to no conversation. */
const DEVICE = 'device';
/** How often the cursor is written while messages come faster than the application stores them. */
const BUSY_MS = 500;
/** The delay before a failed write is retried, doubled up to the cap. */
const RETRY_MS = 2_000;
const RETRY_CAP_MS = 60_000;

export class Persistence {
  #sync;
  #whole;
  #environment;
  #report;
  /** @type {Saved | null} */
  #saved = null;
  #scheduled = false;
  /** @type {unknown} */
  #timer = null;
  /** Consecutive failed writes. */
  #failures = 0;
  #closing = false;
  #cursor = '';
  /** Conversations that have a stored row. @type {Set<string>} */
  #stored = new Set();
  /** @type {Promise<unknown>} */
  #writing = Promise.resolve();
  /** @type {Promise<void>} */
  closed = Promise.resolve();

  /**
   * @param {import('./sync.js').Sync<any>} sync
   * @param {boolean} whole Whether the application stores what it receives. Only then a cursor may outlive the process:
   *   what it covers must be held. Otherwise the unsaid reads are all there is to keep.
   * @param {import('./environment.js').Environment} environment
   * @param {(error: unknown) => void} report
   */
  constructor(sync, whole, environment, report) {
    this.#sync = sync;
    this.#whole = whole;
    this.#environment = environment;
    this.#report = report;
  }

  /** @param {Storage} storage @param {string} user @param {string | undefined} device @returns {Promise<Saved>} */
  async open(storage, user, device) {
    const saved = await storage.open(user, device);
    const { [DEVICE]: own, ...rest } = saved.kept;
    const threads = new Map(Object.entries(rest).map(([id, thread]) => [id, this.#whole ? thread : { read: thread.read }]));
    this.#stored = new Set(threads.keys());
    const { cursor, knowsAll } = (this.#whole && own) || { cursor: null, knowsAll: false };
    this.#sync.restore({ cursor, knowsAll, threads });
    this.#saved = saved;
    return saved;
  }

  /** @param {import('./storage/memory.js').OutboxRow} row @returns {Promise<void>} */
  put(row) {
    if (!this.#saved) return Promise.reject(new Error('the storage is not open'));
    return this.#saved.put(row);
  }

  /** A row that stays by mistake is sent again with the same id, which the server recognises. @param {string} id */
  remove(id) {
    this.#saved?.remove(id).catch(this.#report);
  }

  soon() {
    // After a failure, the retry timer decides.
    if (this.#failures === 0) this.#schedule();
  }

  /** Writes within `BUSY_MS`, because more messages are coming. */
  later() {
    if (this.#failures === 0) this.#after(BUSY_MS);
  }

  #schedule() {
    if (this.#scheduled || !this.#saved || (this.#sync.dirty.size === 0 && this.#cursor === this.#device())) return;
    this.#scheduled = true;
    // One write at a time; later changes go with the next.
    this.#writing = this.#writing.then(() => new Promise((resolve) => soon(() => resolve(null)))).then(() => this.#write());
  }

  /** @param {number} ms */
  #after(ms) {
    if (this.#timer !== null || this.#closing) return;
    this.#timer = this.#environment.setTimeout(() => {
      this.#timer = null;
      this.#schedule();
    }, ms);
  }

  #cancelTimer() {
    if (this.#timer !== null) this.#environment.clearTimeout(this.#timer);
    this.#timer = null;
  }

  #device() {
    return JSON.stringify({ cursor: this.#sync.cursor, knowsAll: this.#sync.knowsAll });
  }

  async #write() {
    this.#scheduled = false;
    const changes = this.#changes();
    if (Object.keys(changes).length === 0) return;
    try {
      await this.#saved?.keep(changes);
      this.#failures = 0;
    } catch (error) {
      this.#failed(changes, error);
    }
  }

  /** Nothing was written: schedules all of it again. @param {Record<string, any>} changes @param {unknown} error */
  #failed({ [DEVICE]: own, ...threads }, error) {
    for (const id of Object.keys(threads)) {
      this.#sync.dirty.add(id);
      this.#stored.add(id);
    }
    this.#cursor = '';
    if (this.#failures === 0) this.#report(error);
    this.#cancelTimer();
    this.#after(Math.min(RETRY_MS * 2 ** Math.min(this.#failures, 16), RETRY_CAP_MS));
    this.#failures += 1;
  }

  /** Leaves out the messages that the application has not stored yet: after a crash they have to be delivered again. */
  #changes() {
    /** @type {Record<string, any>} */
    const changes = {};
    const pending = this.#sync.pending();
    for (const id of this.#sync.dirty) {
      const thread = this.#sync.thread(id);
      if (this.#whole) changes[id] = thread.save(pending.get(id));
      else if (thread.readPending) changes[id] = { read: thread.read };
      else if (this.#stored.has(id)) changes[id] = null;
      if (changes[id]) this.#stored.add(id);
      else this.#stored.delete(id);
    }
    this.#sync.dirty.clear();
    const device = this.#device();
    if (this.#whole && device !== this.#cursor) changes[DEVICE] = JSON.parse(device);
    this.#cursor = device;
    return changes;
  }

  close() {
    const saved = this.#saved;
    this.#closing = true;
    this.#cancelTimer();
    this.closed = this.#writing
      .then(() => this.#write())
      .then(() => saved?.close())
      .catch(this.#report);
    return this.closed;
  }
}
