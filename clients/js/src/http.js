// The HTTP half of the API: profiles, blocks, mutes, push, attachments.

import { BluetickError, asError, fromWire } from './errors.js';
import { Tokens } from './tokens.js';

export class Http {
  #base;
  #fetch;
  #tokens;

  /** @param {string} base @param {typeof fetch} fetch @param {Tokens} tokens */
  constructor(base, fetch, tokens) {
    this.#base = base;
    this.#fetch = fetch;
    this.#tokens = tokens;
  }

  /** @param {string} method @param {string} path below `/v1` @param {unknown} [body] @param {AbortSignal} [signal] @returns {Promise<any>} */
  async call(method, path, body, signal) {
    const token = await this.#tokens.current();
    try {
      return await this.#once(method, path, body, token, signal);
    } catch (error) {
      // A token may have ended before its time: one more try with a fresh one.
      if (!Tokens.isTokenError(error) || !this.#tokens.canRefresh) throw error;
      return this.#once(method, path, body, await this.#tokens.other(token), signal);
    }
  }

  /** A whole list, page by page. @param {string} path @param {string} name of the list in a page @returns {Promise<any[]>} */
  async list(path, name) {
    const entries = [];
    for (let after = null; ; ) {
      const page = await this.call('GET', after === null ? path : `${path}?after=${encodeURIComponent(after)}`);
      entries.push(...page[name]);
      after = page.next ?? null;
      if (after === null) return entries;
    }
  }

  /** @param {string} method @param {string} path @param {unknown} body @param {string} token @param {AbortSignal} [signal] */
  async #once(method, path, body, token, signal) {
    /** @type {Record<string, string>} */
    const headers = { Authorization: `Bearer ${token}` };
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    let response;
    try {
      response = await this.#fetch(`${this.#base}/v1${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal });
    } catch (error) {
      throw asError(error, 'offline');
    }
    if (response.ok) return response.status === 204 ? undefined : response.json();
    throw await errorOf(response);
  }
}

/** @param {Response} response */
export async function errorOf(response) {
  try {
    const { error } = await response.json();
    return fromWire(error, response.status);
  } catch {
    return new BluetickError(response.status >= 500 ? 'unavailable' : 'internal', `the server answered ${response.status}`, { status: response.status });
  }
}
