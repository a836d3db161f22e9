// The outbox in IndexedDB. Every tab has a slot with a device id and an outbox of its own; what a closed tab left unsent
// is taken over by an open one, or by the next that opens.
//
// devices: [user, slot]      -> {user, slot, device}
// outbox:  [user, slot, id]  -> {user, slot, row}
// kept:    [user, slot, key] -> {user, slot, key, value}

import { OutboxTakeover } from '../takeover.js';
import { randomId } from '../ids.js';
import { browserLocks, take, takeSlot } from '../slots.js';
import { Database, done, result } from './database.js';

/** @typedef {import('./memory.js').Saved} Saved */
/** @typedef {import('./memory.js').OutboxRow} OutboxRow */

/** @param {IDBDatabase} database */
function makeStores(database) {
  database.createObjectStore('devices', { keyPath: ['user', 'slot'] });
  database.createObjectStore('outbox', { keyPath: ['user', 'slot', 'row.id'] });
  database.createObjectStore('kept', { keyPath: ['user', 'slot', 'key'] });
}

/** All keys that begin with these parts: an array sorts before every longer one, and [] after every string. @param {string[]} parts */
function within(...parts) {
  return IDBKeyRange.bound(parts, [...parts, []]);
}

/**
 * The outbox survives reloads and closed tabs.
 *
 * @param {{name?: string, indexedDB?: IDBFactory, locks?: LockManager | null, reloadMs?: number}} [options] `name` of the database,
 *   `bluetick` if absent; `reloadMs` is how long open tabs leave a closed one's outbox to its reload
 * @returns {import('./memory.js').Storage}
 */
export function indexedDbStorage(options = {}) {
  return {
    async open(user, device) {
      const database = new Database(options.indexedDB ?? indexedDB, options.name ?? 'bluetick', makeStores);
      try {
        const locks = options.locks === undefined ? browserLocks() : (options.locks ?? undefined);
        return await openSlot(database, user, device, locks, options.reloadMs);
      } catch (error) {
        database.close();
        throw error;
      }
    },
  };
}

/** @param {Database} storage @param {string} user @param {string | undefined} device @param {LockManager | undefined} locks @param {number | undefined} reloadMs @returns {Promise<Saved>} */
async function openSlot(storage, user, device, locks, reloadMs) {
  const database = await storage.open();
  // Without locks nobody knows which devices are in use: this page load is a new one.
  const unshared = { slot: device === undefined ? `page-${randomId()}` : `device-${device}`, release: () => {} };
  const { slot, release } = device === undefined && locks ? await takeSlot(user, locks) : unshared;
  try {
    if (device === undefined) await adopt(database, user, slot, locks);
    const own = await deviceOf(database, user, slot, device, locks !== undefined || device !== undefined);
    const reading = database.transaction(['outbox', 'kept']);
    const [rows, kept] = await Promise.all([
      result(reading.objectStore('outbox').getAll(within(user, slot))),
      result(reading.objectStore('kept').getAll(within(user, slot))),
    ]);
    const shared = { slots: async () => slotsIn(await storage.open(), user), move: async (/** @type {string} */ from) => move(await storage.open(), user, from, slot) };
    const takeover = device === undefined && locks ? new OutboxTakeover(user, slot, locks, shared, reloadMs) : null;
    return saved(storage, user, slot, own, rows, kept, release, takeover);
  } catch (error) {
    release();
    throw error;
  }
}

/** @param {Database} storage @param {string} user @param {string} slot @param {string} device @param {any[]} rows @param {any[]} kept @param {() => void} release @param {OutboxTakeover | null} takeover @returns {Saved} */
function saved(storage, user, slot, device, rows, kept, release, takeover) {
  return {
    device,
    outbox: rows.map(({ row }) => row),
    kept: Object.fromEntries(kept.map(({ key, value }) => [key, value])),
    put: (row) => {
      takeover?.tell();
      return storage.write('outbox', (store) => store.put({ user, slot, row }));
    },
    remove: (id) => storage.write('outbox', (store) => store.delete([user, slot, id])),
    keep: (changes) =>
      storage.write('kept', (store) => {
        for (const [key, value] of Object.entries(changes)) {
          if (value === null) store.delete([user, slot, key]);
          else store.put({ user, slot, key, value });
        }
      }),
    inherit: async (heir) => takeover?.start(heir),
    close: async () => {
      await takeover?.close();
      storage.close();
      release();
    },
  };
}

/** @param {IDBDatabase} database @param {string} user @param {string} slot @param {string | undefined} given @param {boolean} keep @returns {Promise<string>} */
async function deviceOf(database, user, slot, given, keep) {
  if (given !== undefined) return given;
  if (!keep) return `web-${randomId()}`;
  const transaction = database.transaction('devices', 'readwrite');
  const store = transaction.objectStore('devices');
  const known = await result(store.get([user, slot]));
  const device = known?.device ?? `web-${randomId()}`;
  if (!known) store.put({ user, slot, device });
  await done(transaction);
  return device;
}

/**
 * Takes over what other slots left, if nobody has them. Without locks that cannot be known: then two pages may send the
 * same message, and the server takes it once, because it has the same id.
 *
 * @param {IDBDatabase} database
 * @param {string} user
 * @param {string} slot
 * @param {LockManager | undefined} locks
 */
async function adopt(database, user, slot, locks) {
  for (const other of await slotsIn(database, user)) {
    if (other === slot || other.startsWith('device-')) continue;
    const taken = locks ? await take(user, other, locks) : { release: () => {} };
    if (!taken) continue;
    try {
      await move(database, user, other, slot);
    } finally {
      taken.release();
    }
  }
}

/** Those that have something unsent. @param {IDBDatabase} database @param {string} user */
async function slotsIn(database, user) {
  const keys = await result(database.transaction('outbox').objectStore('outbox').getAllKeys(within(user)));
  return new Set(/** @type {string[][]} */ (keys).map(([, slot]) => slot));
}

/** @param {IDBDatabase} database @param {string} user @param {string} from @param {string} to @returns {Promise<OutboxRow[]>} */
async function move(database, user, from, to) {
  const transaction = database.transaction('outbox', 'readwrite', { durability: 'strict' });
  const store = transaction.objectStore('outbox');
  const rows = await result(store.getAll(within(user, from)));
  for (const { row } of rows) store.put({ user, slot: to, row });
  store.delete(within(user, from));
  await done(transaction);
  return rows.map(({ row }) => row);
}
