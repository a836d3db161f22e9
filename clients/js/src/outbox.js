// Messages that the server has not confirmed, in the order in which they were written. Pure: no clock, no storage.

/** Messages that may wait. */
export const OUTBOX_MAX = 10_000;
/** Written and not yet confirmed: below what the server reads ahead, so that acks are never stuck behind. */
export const IN_FLIGHT_MAX = 32;
/** The wait after a refusal that names none: doubled with each, up to the cap. */
const RETRY_BASE_MS = 1_000;
const RETRY_CAP_MS = 30_000;
/** Discarded messages that are remembered: the server may have them all the same. */
const DISCARDED_MAX = 256;

/** @typedef {import('./errors.js').BluetickError} BluetickError */
/**
 * - `saving`: on its way into the device's storage, no byte has gone out
 * - `uploading`: its file is; it goes out when that is done, and holds up nobody
 * - `waiting`: may go out
 * - `inFlight`: written to the connection that is up now
 * - `held`: refused for now; goes out again when the retry timer fires
 * - `failed`: refused for good, until somebody retries or discards it
 *
 * @typedef {'saving' | 'uploading' | 'waiting' | 'inFlight' | 'held' | 'failed'} Progress
 */
/**
 * What a `send` frame carries, besides its type and ref.
 *
 * @typedef {object} WireSend
 * @property {string} client_msg_id
 * @property {string} to
 * @property {string} body
 * @property {number} seen_seq
 * @property {Record<string, unknown>} [meta]
 * @property {{s3_ref: string, blurhash?: string, thumbnail?: string, voice?: boolean}} [attachment]
 */
/**
 * `isStored`: a `message` or a page of history has shown that the server has it. It stays in the outbox, because only
 * `sent` says that the server has also delivered it.
 *
 * @template T
 * @typedef {{send: WireSend, progress: Progress, refusals: number, isStored: boolean, item: T}} Entry
 */

/** @template T what the caller keeps with each entry */
export class Outbox {
  /** @type {Entry<T>[]} */
  #entries = [];
  /** @type {Map<string, Entry<T>>} */
  #byId = new Map();
  /** Taken back when they may have been on their way. @type {Map<string, Entry<T>>} */
  #discarded = new Map();

  get size() {
    return this.#entries.length;
  }

  /** @returns {readonly Entry<T>[]} */
  get entries() {
    return this.#entries;
  }

  /** @param {string} id */
  get(id) {
    return this.#byId.get(id);
  }

  /** @param {WireSend} send @param {Progress} progress @param {T} item */
  push(send, progress, item) {
    const entry = { send, progress, refusals: 0, isStored: false, item };
    this.#entries.push(entry);
    this.#discarded.delete(send.client_msg_id);
    this.#byId.set(send.client_msg_id, entry);
    return entry;
  }

  /** What an earlier life left goes before what this one has written so far. @param {Entry<T>[]} entries */
  restore(entries) {
    this.#entries = [...entries, ...this.#entries];
    for (const entry of entries) this.#byId.set(entry.send.client_msg_id, entry);
  }

  /** @param {string} id */
  remove(id) {
    const entry = this.#byId.get(id);
    if (!entry) return undefined;
    this.#byId.delete(id);
    this.#entries.splice(this.#entries.indexOf(entry), 1);
    return entry;
  }

  /** Takes one back. It goes out no more; but should it be there already, it is known again. @param {string} id */
  discard(id) {
    const entry = this.remove(id);
    // Of one that still waits for its file nothing has gone out.
    if (!entry || entry.progress === 'uploading') return;
    this.#discarded.set(id, entry);
    const [oldest] = this.#discarded.keys();
    if (this.#discarded.size > DISCARDED_MAX) this.#discarded.delete(oldest);
  }

  /** The server has it: the entry, also of one that was discarded. @param {string} id */
  confirmed(id) {
    const entry = this.remove(id) ?? this.#discarded.get(id);
    this.#discarded.delete(id);
    return entry;
  }

  /**
   * The server has stored it, and will confirm it. The entry, if that is news. One that does not go out again by itself
   * gets no confirmation either: it leaves the outbox now.
   *
   * @param {string} id
   */
  stored(id) {
    const entry = this.#byId.get(id);
    if (!entry || entry.progress === 'failed' || entry.progress === 'uploading') return this.confirmed(id);
    if (entry.isStored) return undefined;
    entry.isStored = true;
    return entry;
  }

  /** The server does not have the discarded one. @param {string} id */
  forget(id) {
    this.#discarded.delete(id);
  }

  /** The next to write. One that is held stops those behind it, so that the order of writing is kept. */
  next() {
    let inFlight = 0;
    for (const entry of this.#entries) {
      if (entry.progress === 'inFlight') {
        if (++inFlight >= IN_FLIGHT_MAX) return undefined;
      } else if (entry.progress === 'waiting') {
        entry.progress = 'inFlight';
        return entry;
      } else if (entry.progress === 'held' || entry.progress === 'saving') return undefined;
    }
    return undefined;
  }

  /** How long to wait before it goes out again, or null if it never will by itself. @param {Entry<T>} entry @param {BluetickError} error */
  refused(entry, error) {
    if (!error.retryable) {
      entry.progress = 'failed';
      return null;
    }
    entry.progress = 'held';
    entry.refusals += 1;
    return error.retryAfterMs ?? Math.min(RETRY_BASE_MS * 2 ** Math.min(entry.refusals - 1, 16), RETRY_CAP_MS);
  }

  releaseHeld() {
    for (const entry of this.#entries) if (entry.progress === 'held') entry.progress = 'waiting';
  }

  /** Whatever was on its way may or may not have arrived: all of it goes out again, with the same ids. */
  disconnected() {
    for (const entry of this.#entries) {
      if (entry.progress === 'inFlight' || entry.progress === 'held') entry.progress = 'waiting';
    }
  }

  /** The longest that is on its way: the one to blame when the server found a frame too large. */
  longestInFlight() {
    /** @type {Entry<T> | undefined} */
    let longest;
    let most = -1;
    for (const entry of this.#entries) {
      const length = entry.progress === 'inFlight' ? JSON.stringify(entry.send).length : -1;
      if (length > most) [longest, most] = [entry, length];
    }
    return longest;
  }
}
