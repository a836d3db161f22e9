// The source of tokens, and their renewal.

import { TIMER_MAX_MS } from './environment.js';
import { BluetickError, asError } from './errors.js';

/** A token that expires this soon is not used for a new request. */
const MARGIN_MS = 10_000;
/** The timeout of the token callback. */
const DEADLINE_MS = 30_000;
/** A running callback is shared for this long; then a new call is made. */
const SHARED_MS = 5_000;
/** The shortest and the longest delay between two renewals of a session. */
const PAUSE_MS = 2_000;
const PAUSE_CAP_MS = 30_000;

/** When a JWT expires, in milliseconds since 1970; null if it has no `exp`. @param {string} token @returns {number | null} */
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
  #environment;
  /** @type {string | null} */
  #last = null;
  /** The running call. @type {{since: number, token: Promise<string>} | null} */
  #pending = null;

  /** @param {string | (() => string | Promise<string>)} given @param {import('./environment.js').Environment} environment */
  constructor(given, environment) {
    this.#given = given;
    this.#environment = environment;
  }

  get canRefresh() {
    return typeof this.#given === 'function';
  }

  /** A new token from the application. Concurrent callers share one call. @returns {Promise<string>} */
  fresh() {
    const since = this.#environment.now();
    if (this.#pending && since - this.#pending.since < SHARED_MS) return this.#pending.token;
    const pending = { since, token: this.#ask() };
    this.#pending = pending;
    const done = () => {
      if (this.#pending === pending) this.#pending = null;
    };
    pending.token.then(done, done);
    return pending.token;
  }

  /** Another token than the refused one. @param {string} refused @returns {Promise<string>} */
  async other(refused) {
    return this.#last !== null && this.#last !== refused ? this.#last : this.fresh();
  }

  /** @returns {Promise<string>} */
  async #ask() {
    try {
      const token = typeof this.#given === 'function' ? await this.#inTime(this.#given) : this.#given;
      if (typeof token !== 'string' || token === '') throw new Error('the token callback gave no token');
      return (this.#last = token);
    } catch (error) {
      throw asError(error, 'token_failed');
    }
  }

  /** @param {() => string | Promise<string>} call @returns {Promise<string>} */
  #inTime(call) {
    const { setTimeout, clearTimeout } = this.#environment;
    return new Promise((resolve, reject) => {
      const late = new BluetickError('token_failed', 'the token callback did not answer in time');
      const timer = setTimeout(() => reject(late), DEADLINE_MS);
      new Promise((given) => given(call())).then(/** @type {(token: any) => void} */ (resolve), reject).finally(() => clearTimeout(timer));
    });
  }

  /** A token that is valid for a request now. @returns {Promise<string>} */
  async current() {
    if (this.#last === null) return this.fresh();
    const expiry = expiryOf(this.#last);
    return expiry !== null && expiry - this.#environment.now() < MARGIN_MS ? this.fresh() : this.#last;
  }

  /** @param {unknown} error */
  static isTokenError(error) {
    return error instanceof BluetickError && ['token_expired', 'token_revoked', 'unauthorized'].includes(error.code);
  }
}

/** Gives the running session a fresh token before its token expires. */
export class Renewal {
  #tokens;
  #environment;
  #session;
  /** @type {unknown} */
  #timer = null;
  /** Counts sessions and their tokens; a renewal for an older one is dropped. */
  #turn = 0;

  /** @param {Tokens} tokens @param {import('./environment.js').Environment} environment @param {{isUp: () => boolean, auth: (token: string) => Promise<unknown>, report: (error: unknown) => void}} session */
  constructor(tokens, environment, session) {
    this.#tokens = tokens;
    this.#environment = environment;
    this.#session = session;
  }

  /** The session uses this token from now on. @param {string} token */
  began(token) {
    this.ended();
    const expiry = expiryOf(token);
    if (expiry === null || !this.#tokens.canRefresh) return;
    const left = expiry - this.#environment.now();
    this.#after(left - Math.max(2_000, Math.min(60_000, left / 5)), expiry);
  }

  ended() {
    this.#turn += 1;
    if (this.#timer !== null) this.#environment.clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** @param {number} ms @param {number} expiry */
  #after(ms, expiry) {
    this.#timer = this.#environment.setTimeout(() => void this.#renew(expiry), Math.min(Math.max(ms, PAUSE_MS), TIMER_MAX_MS));
  }

  /** @param {number} expiry of the session's token */
  async #renew(expiry) {
    this.#timer = null;
    const turn = this.#turn;
    try {
      const token = await this.#tokens.fresh();
      if (this.#turn !== turn || !this.#session.isUp()) return;
      const next = expiryOf(token);
      if (next === null || next > expiry) {
        await this.#session.auth(token);
        // Only a token that the server has accepted counts.
        if (this.#turn === turn) this.began(token);
        return;
      }
      // The application still returns the old token; it may have a new one before that expires.
    } catch (error) {
      if (this.#turn !== turn) return;
      this.#session.report(error);
    }
    const left = expiry - this.#environment.now();
    // After the expiry the server ends the session, and the next one begins with a fresh token.
    if (left > 0) this.#after(Math.min(left / 2, PAUSE_CAP_MS), expiry);
  }
}
