// The platform's clock, timers, randomness and sockets. All of it can be replaced, for tests and for old versions of Node.

import { BluetickError } from './errors.js';

/**
 * @typedef {object} Environment
 * @property {new (url: string) => WebSocket} WebSocket
 * @property {typeof fetch} fetch
 * @property {() => number} random
 * @property {() => number} now
 * @property {(then: () => void, ms: number) => unknown} setTimeout
 * @property {(timer: any) => void} clearTimeout
 */

/** @param {Partial<Environment>} given @returns {Environment} */
export function environment(given) {
  const socket = given.WebSocket ?? globalThis.WebSocket;
  if (!socket) {
    throw new BluetickError('unsupported', 'there is no WebSocket here: pass one as `WebSocket` (Node before 22: the package `ws`)');
  }
  return {
    WebSocket: socket,
    fetch: given.fetch ?? ((input, init) => globalThis.fetch(input, init)),
    random: given.random ?? Math.random,
    now: given.now ?? Date.now,
    setTimeout: given.setTimeout ?? ((then, ms) => globalThis.setTimeout(then, ms)),
    clearTimeout: given.clearTimeout ?? ((timer) => globalThis.clearTimeout(timer)),
  };
}

/** The longest delay of a timer. */
export const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * Runs a function after the events that are queued already. Not a timer: in hidden tabs those may be a minute late, and
 * acks must not be.
 *
 * @type {(then: () => void) => void}
 */
export const soon = (() => {
  const immediate = /** @type {any} */ (globalThis).setImmediate;
  if (typeof immediate === 'function') return (then) => void immediate(then);
  if (typeof MessageChannel !== 'function') return (then) => void setTimeout(then, 0);
  /** @type {(() => void)[]} */
  const waiting = [];
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => waiting.shift()?.();
  return (then) => {
    waiting.push(then);
    port2.postMessage(null);
  };
})();
