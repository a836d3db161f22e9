// What a client without a storage of its own uses.

import { indexedDbStorage } from './indexeddb.js';
import { memoryStorage } from './memory.js';

/** @returns {import('./memory.js').Storage} */
export function defaultStorage() {
  if (typeof indexedDB === 'undefined') return memoryStorage();
  const database = indexedDbStorage();
  return {
    async open(user, device) {
      try {
        return await database.open(user, device);
      } catch (error) {
        // Some private modes have it and refuse it. Chatting without an outbox that survives is better than none.
        console.warn('bluetick: this browser keeps nothing; what is unsent goes with the page', error);
        return memoryStorage().open(user, device);
      }
    },
  };
}
