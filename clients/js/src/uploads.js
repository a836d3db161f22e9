// Attachments: announce, upload, and only then the message that refers to them.

import { BluetickError, asError } from './errors.js';
import { errorOf } from './http.js';
import { sha256Of } from './sha256.js';

/** From this size on a file is cut, where the server takes parts. */
const PARTS_FROM = 16 * 1024 * 1024;
const PART_BYTES = 8 * 1024 * 1024;
const PARTS_MAX = 1000;
/** Parts under way at the same time. */
const PARTS_AT_ONCE = 3;
const TRIES_MAX = 6;
const RETRY_MS = 1_000;
const RETRY_CAP_MS = 30_000;

/** @typedef {import('./drafts.js').Item} Item */
/** @typedef {{method: string, url: string, headers: Record<string, string>}} UploadRequest */
/** @typedef {{s3Ref: string, sha256: string}} Uploaded */

export class Uploads {
  #environment;
  #http;
  #online;
  /** The server has said that it takes files whole. */
  #wholeOnly = false;

  /** @param {import('./environment.js').Environment} environment @param {import('./http.js').Http} http @param {(signal: AbortSignal) => Promise<void>} online */
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

  /** @param {Blob} file @param {string} name @param {string} mime @param {AbortSignal} signal @param {(fraction: number) => void} progress @returns {Promise<Uploaded>} */
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

  /** @param {Blob} file @param {{sha256: string}} announcement @param {AbortSignal} signal @param {(fraction: number) => void} progress */
  #whole(file, announcement, signal, progress) {
    /** @type {{s3_ref: string, upload: UploadRequest} | null} */
    let announced = null;
    return this.#persist(signal, async () => {
      announced ??= await this.#http.call('POST', '/attachments', announcement);
      const { s3_ref: s3Ref, upload } = /** @type {NonNullable<typeof announced>} */ (announced);
      try {
        await this.#put(upload, file, signal, (loaded) => progress(file.size === 0 ? 1 : loaded / file.size));
      } catch (error) {
        // The address has ended, or is refused for another reason: the next try has a new one.
        if (error instanceof BluetickError && error.status === 403) announced = null;
        throw error;
      }
      return { s3Ref, sha256: announcement.sha256 };
    });
  }

  /** @param {Blob} file @param {{sha256: string}} announcement @param {AbortSignal} signal @param {(fraction: number) => void} progress */
  async #inParts(file, announcement, signal, progress) {
    const bytes = Math.max(PART_BYTES, Math.ceil(file.size / PARTS_MAX));
    const parts = Array.from({ length: Math.ceil(file.size / bytes) }, (_, n) => file.slice(n * bytes, (n + 1) * bytes));
    /** @type {string[]} */
    const sha256 = [];
    for (const part of parts) sha256.push(await sha256Of(part, signal));
    const announced = await this.#persist(signal, () => this.#http.call('POST', '/attachments', { ...announcement, parts: { bytes, sha256 } }));
    const loaded = parts.map(() => 0);
    /** @type {string[]} */
    const etags = [];
    const rest = parts.keys();
    const worker = async () => {
      for (const n of rest) {
        etags[n] = await this.#persist(signal, () =>
          this.#put(announced.parts[n], parts[n], signal, (done) => {
            loaded[n] = done;
            progress(loaded.reduce((sum, one) => sum + one, 0) / file.size);
          }),
        );
      }
    };
    await Promise.all(Array.from({ length: PARTS_AT_ONCE }, worker));
    await this.#persist(signal, () => this.#http.call('POST', `/attachments/${announced.s3_ref}/complete`, { etags, sha256 }));
    return { s3Ref: announced.s3_ref, sha256: announcement.sha256 };
  }

  /** Tries until it passes, or there is no hope. @template T @param {AbortSignal} signal @param {() => Promise<T>} act @returns {Promise<T>} */
  async #persist(signal, act) {
    for (let tries = 1; ; tries += 1) {
      await this.#online(signal);
      try {
        return await act();
      } catch (thrown) {
        const error = asError(thrown, 'upload_failed');
        if (signal.aborted) throw new BluetickError('aborted', 'the upload was taken back');
        const again = error.retryable || error.code === 'offline' || error.code === 'upload_failed' || error.status === 403;
        if (!again || tries >= TRIES_MAX) throw error;
        const wait = error.retryAfterMs ?? Math.min(RETRY_MS * 2 ** (tries - 1), RETRY_CAP_MS) * (0.5 + this.#environment.random() / 2);
        await new Promise((resolve) => this.#environment.setTimeout(() => resolve(null), wait));
      }
    }
  }

  /** Makes the request that was announced. @param {UploadRequest} request @param {Blob} body @param {AbortSignal} signal @param {(loaded: number) => void} progress @returns {Promise<string>} the ETag */
  async #put(request, body, signal, progress) {
    const headers = Object.fromEntries(Object.entries(request.headers).filter(([name]) => name.toLowerCase() !== 'content-length'));
    const send = typeof XMLHttpRequest === 'function' ? byXhr : byFetch(this.#environment.fetch);
    const answer = await send({ ...request, headers }, body, signal, progress);
    // They are there already: from a try whose answer was lost.
    if (answer.ok || answer.status === 409 || answer.status === 412) {
      progress(body.size);
      return answer.headers.get('etag') ?? '';
    }
    const error = await errorOf(answer);
    if (answer.status === 400 || answer.status === 422) throw new BluetickError('upload_mismatch', error.message, { status: answer.status });
    throw error;
  }
}

/** @param {typeof fetch} fetch */
function byFetch(fetch) {
  return async (/** @type {UploadRequest} */ { method, url, headers }, /** @type {Blob} */ body, /** @type {AbortSignal} */ signal) => {
    try {
      return await fetch(url, { method, headers, body, signal });
    } catch (error) {
      throw asError(error, 'upload_failed');
    }
  };
}

/** Only XMLHttpRequest tells how far an upload is. @param {UploadRequest} request @param {Blob} body @param {AbortSignal} signal @param {(loaded: number) => void} progress @returns {Promise<Response>} */
function byXhr({ method, url, headers }, body, signal, progress) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    const fail = (/** @type {string} */ why) => () => reject(new BluetickError('upload_failed', why));
    xhr.open(method, url);
    for (const [name, value] of Object.entries(headers)) xhr.setRequestHeader(name, value);
    xhr.upload.onprogress = ({ loaded }) => progress(loaded);
    xhr.onload = () => {
      const etag = xhr.getResponseHeader('etag');
      resolve(new Response(xhr.status === 204 ? null : xhr.responseText, { status: xhr.status, headers: etag ? { etag } : {} }));
    };
    xhr.onerror = fail('the connection failed');
    xhr.onabort = fail('the upload was taken back');
    signal.addEventListener('abort', () => xhr.abort(), { once: true });
    // The type is signed with the rest or not wanted at all: a Blob's own must not be added.
    xhr.send(headers['content-type'] || headers['Content-Type'] ? body : body.slice(0, body.size, ''));
  });
}
