// Tabs never share a device. Each tab takes a slot, with a lock that is released when the tab closes.

/** Tabs of one user in one browser at most. A server allows ten sessions by default. */
const SLOTS_MAX = 64;
/** How long a reloaded page waits for the slot of the page before. */
const RELOAD_WAIT_MS = 500;

/** @typedef {{slot: string, shared: boolean, release: () => void}} Slot */

/** @param {string} user @param {string} slot */
export const nameOf = (user, slot) => `bluetick:${user}:${slot}`;

/** The browser's locks; missing on plain http. @returns {LockManager | undefined} */
export function browserLocks() {
  return globalThis.navigator?.locks;
}

/**
 * Takes the slot that this tab had before, or else the first free one.
 *
 * @param {string} user
 * @param {LockManager} locks
 * @returns {Promise<Slot>}
 */
export async function takeSlot(user, locks) {
  const before = remembered(user);
  const found = before === null ? null : await take(user, before, locks, RELOAD_WAIT_MS);
  if (found) return found;
  for (let n = 0; n < SLOTS_MAX; n += 1) {
    const slot = await take(user, String(n), locks);
    if (slot) {
      remember(user, slot.slot);
      return slot;
    }
  }
  throw new Error('too many tabs');
}

/**
 * Takes this slot if it is free.
 *
 * @param {string} user
 * @param {string} slot
 * @param {LockManager} locks
 * @param {number} [waitMs]
 * @returns {Promise<Slot | null>}
 */
export function take(user, slot, locks, waitMs = 0) {
  return new Promise((resolve, reject) => {
    const abort = new AbortController();
    const timer = waitMs > 0 ? setTimeout(() => abort.abort(), waitMs) : null;
    /** @type {LockOptions} */
    const options = waitMs > 0 ? { signal: abort.signal } : { ifAvailable: true };
    locks
      .request(nameOf(user, slot), options, (lock) => {
        if (timer !== null) clearTimeout(timer);
        if (!lock) return resolve(null);
        // The lock is held until this promise resolves.
        return new Promise((release) => resolve({ slot, shared: true, release: () => release(undefined) }));
      })
      .catch((error) => (error?.name === 'AbortError' ? resolve(null) : reject(error)));
  });
}

/**
 * Resolves as soon as this slot is free, without taking it.
 *
 * @param {string} user
 * @param {string} slot
 * @param {LockManager} locks
 * @param {AbortSignal} signal ends the wait
 * @returns {Promise<boolean>} false if the wait was ended
 */
export async function freed(user, slot, locks, signal) {
  if (signal.aborted) return false;
  try {
    return await locks.request(nameOf(user, slot), { signal }, () => true);
  } catch (error) {
    if (signal.aborted) return false;
    throw error;
  }
}

/** @param {string} user @returns {string | null} */
function remembered(user) {
  try {
    return sessionStorage.getItem(nameOf(user, 'slot'));
  } catch {
    return null;
  }
}

/** @param {string} user @param {string} slot */
function remember(user, slot) {
  try {
    sessionStorage.setItem(nameOf(user, 'slot'), slot);
  } catch {
    // Without it, a reload takes the first free slot, which is nearly always the same.
  }
}
