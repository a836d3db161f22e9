// Attachments: announce, upload, and only then the message that refers to them. An upload waits like text does: for the
// connection as long as it takes, for a server that says "later" for minutes. Addresses that have ended are asked for anew.

import { BluetickError, asError } from './errors.js';
import { errorOf } from './http.js';
import { sha256Of } from './sha256.js';
import { STALL_MS, attempt, takenBack, transfer } from './transfer.js';

/** From this size on a file is cut, where the server takes parts. */
const PARTS_FROM = 16 * 1024 * 1024;
const PART_BYTES = 8 * 1024 * 1024;
const PARTS_MAX = 1000;
/** Parts under way at the same time. */
const PARTS_AT_ONCE = 3;
/** How long one step is tried while there is a connection. */
const PATIENCE_MS = 5 * 60_000;
const RETRY_MS = 1_000;
const RETRY_CAP_MS = 20_000;
/** Addresses of one file that may be refused, or end before all of it is up. */
const ADDRESSES_MAX = 6;
/** An address that ends this soon is not used any more. */
const ADDRESS_MARGIN_MS = 30_000;
/** What a step may fail with before anybody has looked at it: the network, or the application's token. */
const NETWORK = new Set(['offline', 'upload_failed', 'timeout', 'token_failed']);

/** @typedef {import('./drafts.js').Item} Item */
/** @typedef {import('./transfer.js').UploadRequest} UploadRequest */
/** @typedef {{s3Ref: string, sha256: string}} Uploaded */
/** @typedef {{s3_ref: string, upload: UploadRequest, parts: UploadRequest[], isEnding: () => boolean}} Announced */
/** @typedef {(fraction: number) => void} Progress */

/** Its address has ended, or is refused for another reason: the next may be better. */
class AddressRefused extends BluetickError {}

export class Uploads {
  #environment;
  #http;
  #online;
  /** The server has said that it takes files whole. */
  #wholeOnly = false;

  /**
   * @param {import('./environment.js').Environment} environment
   * @param {import('./http.js').Http} http
   * @param {(signal: AbortSignal) => Promise<boolean>} online Done when there is a connection; tells whether there was none.
   */
  constructor(environment, http, online) {
    this.#environment = environment;
    this.#http = http;
    this.#online = online;
  }

  /** Uploads what an item has, and notes in its message where it is. @param {Item} item @param {AbortSignal} signal @param {() => void} changed */
  async run(item, signal, changed) {
    const { message, file, thumbnail } = item;
    const attachment = /** @type {import('./message.js').Attachment} */ (message.attachment);
    if (!file) throw new BluetickError('aborted', 'the file was not kept');
    message.progress = 0;
    const small = thumbnail && (await this.#file(thumbnail, 'thumbnail', thumbnail.type || 'image/jpeg', signal, () => {}));
    const done = await this.#file(file, attachment.name, attachment.mime, signal, (fraction) => {
      message.progress = Math.min(fraction, 1);
      changed();
    });
    message.attachment = { ...attachment, ...done, ...(small && { thumbnail: small.s3Ref }) };
    message.progress = 1;
    changed();
  }

  /** @param {Blob} file @param {string} name @param {string} mime @param {AbortSignal} signal @param {Progress} progress @returns {Promise<Uploaded>} */
  async #file(file, name, mime, signal, progress) {
    const sha256 = await sha256Of(file, signal);
    const announcement = { name, mime, bytes: file.size, sha256 };
    if (file.size >= PARTS_FROM && !this.#wholeOnly) {
      try {
        return await this.#inParts(file, announcement, signal, progress);
      } catch (error) {
        if (!(error instanceof BluetickError && error.code === 'unsupported')) throw error;
        this.#wholeOnly = true;
      }
    }
    return this.#whole(file, announcement, signal, progress);
  }

  /** @param {Blob} file @param {{sha256: string}} announcement @param {AbortSignal} signal @param {Progress} progress */
  #whole(file, announcement, signal, progress) {
    return this.#announced(announcement, signal, async (announced) => {
      await this.#put(announced, announced.upload, file, signal, (loaded) => progress(file.size === 0 ? 1 : loaded / file.size));
      return { s3Ref: announced.s3_ref, sha256: announcement.sha256 };
    });
  }

  /** @param {Blob} file @param {{sha256: string}} announcement @param {AbortSignal} signal @param {Progress} progress */
  async #inParts(file, announcement, signal, progress) {
    const bytes = Math.max(PART_BYTES, Math.ceil(file.size / PARTS_MAX));
    const parts = Array.from({ length: Math.ceil(file.size / bytes) }, (_, n) => file.slice(n * bytes, (n + 1) * bytes));
    /** @type {string[]} */
    const sha256 = [];
    for (const part of parts) sha256.push(await sha256Of(part, signal));
    // A new announcement is a new upload: the parts of the one before are none of it.
    return this.#announced({ ...announcement, parts: { bytes, sha256 } }, signal, async (announced) => {
      const etags = await this.#putParts(announced, parts, signal, progress);
      await this.#call(signal, `/attachments/${announced.s3_ref}/complete`, { etags, sha256 });
      return { s3Ref: announced.s3_ref, sha256: announcement.sha256 };
    });
  }

  /** Several at once; the first that fails for good ends the others. @param {Announced} announced @param {Blob[]} parts @param {AbortSignal} signal @param {Progress} progress */
  async #putParts(announced, parts, signal, progress) {
    const total = parts.reduce((sum, { size }) => sum + size, 0);
    const loaded = parts.map(() => 0);
    /** @type {string[]} */
    const etags = [];
    const all = new AbortController();
    const stop = () => all.abort();
    const rest = parts.keys();
    const worker = async () => {
      for (const n of rest) {
        etags[n] = await this.#put(announced, announced.parts[n], parts[n], all.signal, (done) => {
          loaded[n] = done;
          progress(loaded.reduce((sum, one) => sum + one, 0) / total);
        });
        if (etags[n] === '') throw hiddenEtag();
      }
    };
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    try {
      await Promise.all(Array.from({ length: PARTS_AT_ONCE }, worker));
    } finally {
      signal.removeEventListener('abort', stop);
      stop();
    }
    return etags;
  }

  /** Announces a file and has it uploaded; with a new address when the one before has ended. @template T @param {object} announcement @param {AbortSignal} signal @param {(announced: Announced) => Promise<T>} upload @returns {Promise<T>} */
  async #announced(announcement, signal, upload) {
    for (let n = 1; ; n += 1) {
      const { expires_at: end, ...announced } = await this.#call(signal, '/attachments', announcement);
      const { now } = this.#environment;
      // An address that ends before it was used: the clock of this device is wrong, and tells nothing.
      const tells = end - now() > 2 * ADDRESS_MARGIN_MS;
      try {
        return await upload({ ...announced, isEnding: () => tells && end - now() < ADDRESS_MARGIN_MS });
      } catch (error) {
        if (!(error instanceof AddressRefused) || n >= ADDRESSES_MAX) throw error;
        await this.#wait(this.#backoff(n), signal);
      }
    }
  }

  /** @param {AbortSignal} signal @param {string} path @param {object} body */
  #call(signal, path, body) {
    return this.#persist(signal, () => attempt(this.#environment, signal, STALL_MS, (own) => this.#http.call('POST', path, body, own)));
  }

  /** @param {Announced} announced @param {UploadRequest} request @param {Blob} body @param {AbortSignal} signal @param {(loaded: number) => void} progress @returns {Promise<string>} the ETag */
  #put(announced, request, body, signal, progress) {
    return this.#persist(signal, async () => {
      if (announced.isEnding()) throw new AddressRefused('upload_failed', 'the address of the upload has ended');
      const answer = await transfer(this.#environment, request, body, signal, progress);
      // They are there already: from a try whose answer was lost.
      if (answer.ok || answer.status === 409 || answer.status === 412) {
        progress(body.size);
        return answer.headers.get('etag') ?? '';
      }
      const { status } = answer;
      const error = await errorOf(answer);
      if (status === 403) throw new AddressRefused('upload_failed', `the address of the upload is refused: ${error.message}`, { status });
      if (status === 400 || status === 422) throw new BluetickError('upload_mismatch', error.message, { status });
      throw error;
    });
  }

  /** Tries until it passes, or there is no hope. Time without a connection does not count. @template T @param {AbortSignal} signal @param {() => Promise<T>} act @returns {Promise<T>} */
  async #persist(signal, act) {
    let spent = 0;
    for (let tries = 1; ; tries += 1) {
      if (await this.#online(signal)) [spent, tries] = [0, 1];
      const began = this.#environment.now();
      try {
        return await act();
      } catch (thrown) {
        if (signal.aborted) throw takenBack();
        const error = asError(thrown, 'upload_failed');
        if (!mayPass(error) || spent >= PATIENCE_MS) throw error;
        const wait = error.retryAfterMs ?? this.#backoff(tries);
        // No try takes much longer without moving: the rest is a device that slept.
        spent += wait + Math.min(this.#environment.now() - began, STALL_MS);
        await this.#wait(wait, signal);
      }
    }
  }

  /** @param {number} tries */
  #backoff(tries) {
    return Math.min(RETRY_MS * 2 ** (tries - 1), RETRY_CAP_MS) * (0.5 + this.#environment.random() / 2);
  }

  /** @param {number} ms @param {AbortSignal} signal @returns {Promise<void>} */
  #wait(ms, signal) {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(takenBack());
      const stop = () => {
        this.#environment.clearTimeout(timer);
        reject(takenBack());
      };
      const timer = this.#environment.setTimeout(() => {
        signal.removeEventListener('abort', stop);
        resolve();
      }, ms);
      signal.addEventListener('abort', stop, { once: true });
    });
  }
}

/** Whether the same step may pass later. @param {BluetickError} error */
function mayPass(error) {
  if (error instanceof AddressRefused) return false;
  const { status } = error;
  if (status === undefined) return error.retryable || NETWORK.has(error.code);
  return error.retryable && (status >= 500 || status === 408 || status === 429);
}

function hiddenEtag() {
  const why = 'the bucket does not show the ETag of a part: its CORS rules must name ETag among the headers that they expose';
  return new BluetickError('upload_failed', why, { status: 200 });
}
