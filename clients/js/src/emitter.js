// Handlers by event name. A handler that throws disturbs neither the others nor the client.

import { BluetickError } from './errors.js';

/** @internal @template {Record<string, unknown[]>} Events */
export class Emitter {
  /** @type {Map<keyof Events, Set<Function>>} */
  #handlers = new Map();

  /**
   * @template {keyof Events} K
   * @param {K} event
   * @param {(...args: Events[K]) => void} handler
   * @returns {() => void} takes the handler away again
   */
  on(event, handler) {
    const handlers = this.#handlers.get(event) ?? new Set();
    this.#handlers.set(event, handlers);
    // The same function may be given twice: each time it is a handler of its own.
    const own = (/** @type {Events[K]} */ ...args) => handler(...args);
    handlers.add(own);
    return () => void handlers.delete(own);
  }

  /** @param {keyof Events} event */
  has(event) {
    return (this.#handlers.get(event)?.size ?? 0) > 0;
  }

  /**
   * @template {keyof Events} K
   * @param {K} event
   * @param {Events[K]} args
   */
  emit(event, ...args) {
    for (const handler of [...(this.#handlers.get(event) ?? [])]) {
      try {
        const result = handler(...args);
        if (typeof result?.then === 'function') result.then(undefined, (/** @type {unknown} */ e) => this.#thrown(event, e));
      } catch (error) {
        this.#thrown(event, error);
      }
    }
  }

  /** @param {keyof Events} event @param {unknown} cause */
  #thrown(event, cause) {
    const what = `a handler of '${String(event)}' threw`;
    if (event === 'error' || !this.has('error')) return console.error(`bluetick: ${what}`, cause);
    const why = cause instanceof Error ? cause.message : String(cause);
    this.emit('error', .../** @type {any} */ ([new BluetickError('handler_failed', `${what}: ${why}`, { cause })]));
  }

  clear() {
    this.#handlers.clear();
  }
}
