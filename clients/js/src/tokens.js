// Where tokens come from, and when a fresh one is due.

import { BluetickError, asError } from './errors.js';

/** A token that ends this soon is not used for anything new. */
const MARGIN_MS = 10_000;

/** When a JWT ends, in milliseconds since 1970; null if it does not say. @param {string} token @returns {number | null} */
export function expiryOf(token) {
  try {
    const payload = token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/');
    const { exp } = JSON.parse(atob(payload));
    return typeof exp === 'number' ? exp * 1000 : null;
  } catch {
    return null;
  }
}

export class Tokens {
  #given;
  #now;
  /** @type {string | null} */
  #last = null;

  /** @param {string | (() => string | Promise<string>)} given @param {() => number} now */
  constructor(given, now) {
    this.#given = given;
    this.#now = now;
  }

  get canRefresh() {
    return typeof this.#given === 'function';
  }

  /** A new one, straight from the application. @returns {Promise<string>} */
  async fresh() {
    try {
      const token = typeof this.#given === 'function' ? await this.#given() : this.#given;
      if (typeof token !== 'string' || token === '') throw new Error('the token callback gave no token');
      return (this.#last = token);
    } catch (error) {
      throw asError(error, 'token_failed');
    }
  }

  /** One that is good for a request now. @returns {Promise<string>} */
  async current() {
    if (this.#last === null) return this.fresh();
    const expiry = expiryOf(this.#last);
    return expiry !== null && expiry - this.#now() < MARGIN_MS ? this.fresh() : this.#last;
  }

  /** How long until a running session wants a new one; null if it never does. @param {string} token @returns {number | null} */
  refreshInMs(token) {
    const expiry = expiryOf(token);
    if (expiry === null || !this.canRefresh) return null;
    const left = expiry - this.#now();
    return Math.max(0, left - Math.max(2_000, Math.min(60_000, left / 5)));
  }

  /** @param {unknown} error */
  static isTokenError(error) {
    return error instanceof BluetickError && (error.code === 'token_expired' || error.code === 'unauthorized');
  }
}
