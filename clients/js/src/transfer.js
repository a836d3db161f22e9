// One request that carries bytes: it can be taken back at any time, and ends by itself when nothing moves any more.

import { BluetickError, asError } from './errors.js';

/** A try in which nothing has moved for so long is given up. */
export const STALL_MS = 60_000;
/** Where nobody tells how far it is, a try has time for this speed. */
const SLOWEST_BYTES_PER_SECOND = 16 * 1024;

/** @typedef {{method: string, url: string, headers: Record<string, string>}} UploadRequest */
/** @typedef {(request: UploadRequest, body: Blob, signal: AbortSignal, progress: (loaded: number) => void) => Promise<Response>} Transfer */

export function takenBack() {
  return new BluetickError('aborted', 'the upload was taken back');
}

/**
 * One try of something. What it is given ends it when it is taken back from outside, and when it has not said for too
 * long that it moves.
 *
 * @template T
 * @param {import('./environment.js').Environment} environment
 * @param {AbortSignal} outer
 * @param {number} stallMs
 * @param {(signal: AbortSignal, moves: () => void) => Promise<T>} act
 * @returns {Promise<T>}
 */
export async function attempt(environment, outer, stallMs, act) {
  if (outer.aborted) throw takenBack();
  const own = new AbortController();
  /** @type {(error: BluetickError) => void} */
  let giveUp = () => {};
  const ended = new Promise((_, reject) => {
    giveUp = (error) => {
      reject(error);
      own.abort();
    };
  });
  const back = () => giveUp(takenBack());
  const stalled = () => giveUp(new BluetickError('upload_failed', `nothing has moved for ${Math.round(stallMs / 1000)} seconds`));
  let timer = environment.setTimeout(stalled, stallMs);
  const moves = () => {
    environment.clearTimeout(timer);
    timer = environment.setTimeout(stalled, stallMs);
  };
  outer.addEventListener('abort', back, { once: true });
  try {
    return await /** @type {Promise<T>} */ (Promise.race([ended, act(own.signal, moves)]));
  } finally {
    environment.clearTimeout(timer);
    outer.removeEventListener('abort', back);
  }
}

/**
 * Makes the request that was announced.
 *
 * @param {import('./environment.js').Environment} environment
 * @param {UploadRequest} request
 * @param {Blob} body
 * @param {AbortSignal} signal
 * @param {(loaded: number) => void} progress
 * @returns {Promise<Response>}
 */
export function transfer(environment, { method, url, headers: given }, body, signal, progress) {
  // The platform sets it, and allows nobody else to.
  const headers = Object.fromEntries(Object.entries(given).filter(([name]) => name.toLowerCase() !== 'content-length'));
  const tells = typeof XMLHttpRequest === 'function';
  const send = tells ? byXhr : byFetch(environment.fetch);
  const patience = tells ? STALL_MS : STALL_MS + (body.size / SLOWEST_BYTES_PER_SECOND) * 1000;
  return attempt(environment, signal, patience, (own, moves) =>
    send({ method, url, headers }, body, own, (loaded) => {
      moves();
      if (!own.aborted) progress(loaded);
    }),
  );
}

/** @param {typeof fetch} fetch @returns {Transfer} */
function byFetch(fetch) {
  return async ({ method, url, headers }, body, signal) => {
    try {
      return await fetch(url, { method, headers, body, signal });
    } catch (error) {
      throw asError(error, 'upload_failed');
    }
  };
}

/** Only XMLHttpRequest tells how far an upload is. @type {Transfer} */
function byXhr({ method, url, headers }, body, signal, progress) {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(takenBack());
    const xhr = new XMLHttpRequest();
    const stop = () => xhr.abort();
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
    xhr.onloadend = () => signal.removeEventListener('abort', stop);
    signal.addEventListener('abort', stop, { once: true });
    // The type is signed with the rest or not wanted at all: a Blob's own must not be added.
    xhr.send(headers['content-type'] || headers['Content-Type'] ? body : body.slice(0, body.size, ''));
  });
}
