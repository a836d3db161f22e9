// The messages that the server has not confirmed, in the order in which they were written. No clock, no storage.

/** Unconfirmed messages at most. */
export const OUTBOX_MAX = 10_000;
/** Sends in flight at most: below the number of frames that the server reads ahead, so acks are not delayed. */
export const IN_FLIGHT_MAX = 32;
/** The delay after a refusal without `retry_after_ms`, doubled with each up to the cap. */
const RETRY_BASE_MS = 1_000;
const RETRY_CAP_MS = 30_000;
/** Discarded messages that are remembered, because the server may have stored them. */
const DISCARDED_MAX = 256;

/** @typedef {import('./errors.js').BluetickError} BluetickError */
/**
 * - `saving`: being written to the device's storage; nothing was sent yet
 * - `uploading`: its file is being uploaded; it blocks no other message
 * - `waiting`: ready to be sent
 * - `inFlight`: written to the current connection
 * - `held`: refused temporarily; sent again when the retry timer fires
 * - `failed`: refused for good, until the application retries or discards it
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
  /** Discarded messages that may have been in flight. @type {Map<string, Entry<T>>} */
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

  /** Inserts the entries of an earlier process before those of this one. @param {Entry<T>[]} entries */
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

  /** Discards a message. It is not sent again; if the server has it already, it is recognised. @param {string} id */
  discard(id) {
    const entry = this.remove(id);
    // Nothing was sent of a message whose file is being uploaded.
    if (!entry || entry.progress === 'uploading') return;
    this.#discarded.set(id, entry);
    const [oldest] = this.#discarded.keys();
    if (this.#discarded.size > DISCARDED_MAX) this.#discarded.delete(oldest);
  }

  /** The server has confirmed it. Returns the entry, also of a discarded message. @param {string} id */
  confirmed(id) {
    const entry = this.remove(id) ?? this.#discarded.get(id);
    this.#discarded.delete(id);
    return entry;
  }

  /**
   * The server has stored it, and `sent` will follow. Returns the entry if that is new. A message that is not sent again
   * gets no `sent`: it leaves the outbox now.
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

  /** The server does not have the discarded message. @param {string} id */
  forget(id) {
    this.#discarded.delete(id);
  }

  /** The next message to write. A held message blocks those behind it, to keep their order. */
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

  /** The delay before it is sent again, or null if it is refused for good. @param {Entry<T>} entry @param {BluetickError} error */
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

  /** Messages in flight may or may not have arrived: all are sent again with the same ids. */
  disconnected() {
    for (const entry of this.#entries) {
      if (entry.progress === 'inFlight' || entry.progress === 'held') entry.progress = 'waiting';
    }
  }

  /** The longest message in flight: the likeliest cause when the server refuses a frame. */
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
