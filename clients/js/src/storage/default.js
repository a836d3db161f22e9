// What a client without a storage of its own uses.

import { BluetickError, asError } from '../errors.js';
import { indexedDbStorage } from './indexeddb.js';
import { memoryStorage } from './memory.js';

/** A browser that has not opened its database by then does not do it at all; nobody shall wait for it. */
const OPEN_TIMEOUT_MS = 5_000;

/**
 * The browser's, or memory where there is none. Some private modes have it and refuse it, or never answer. Chatting
 * without an outbox that survives is better than not at all; `report` is told.
 *
 * @param {(error: BluetickError) => void} report
 * @param {import('./memory.js').Storage | null} [browser]
 * @returns {import('./memory.js').Storage}
 */
export function defaultStorage(report, browser = typeof indexedDB === 'undefined' ? null : indexedDbStorage()) {
  if (!browser) return memoryStorage();
  return {
    async open(user, device) {
      try {
        return await inTime(browser.open(user, device));
      } catch (error) {
        const why = asError(error, 'storage_failed').message;
        report(new BluetickError('storage_failed', `this browser keeps nothing, what is unsent goes with the page: ${why}`, { cause: error }));
        return memoryStorage().open(user, device);
      }
    },
  };
}

/** @param {Promise<import('./memory.js').Saved>} opening @returns {Promise<import('./memory.js').Saved>} */
function inTime(opening) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(new Error('its database did not open in time'));
      // Should it open after all, others may have it.
      opening.then((saved) => saved.close()).catch(() => {});
    }, OPEN_TIMEOUT_MS);
    opening.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
