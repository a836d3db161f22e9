// A connection to IndexedDB that comes back. Browsers take it away when they clear data, when the disk is short, when a
// page was asleep for long, and when another tab wants to delete or upgrade the database.

import { BluetickError } from '../errors.js';

/** Longer than any disk takes: the browser does not answer. */
const OPEN_TIMEOUT_MS = 15_000;
/** What a write on a connection that is gone ends with; Safari says `UnknownError`. */
const LOST = new Set(['InvalidStateError', 'AbortError', 'UnknownError']);

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
export function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** An error of one request ends as an abort, and only the transaction knows of a disk that is full. @param {IDBTransaction} transaction @returns {Promise<void>} */
export function done(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new DOMException('the write was taken back', 'AbortError'));
  });
}

export class Database {
  #factory;
  #name;
  #upgrade;
  /** @type {Promise<IDBDatabase> | null} */
  #opening = null;
  /** @type {IDBDatabase | null} */
  #current = null;
  #closed = false;

  /** @param {IDBFactory} factory @param {string} name @param {(database: IDBDatabase) => void} upgrade makes the stores of a new one */
  constructor(factory, name, upgrade) {
    this.#factory = factory;
    this.#name = name;
    this.#upgrade = upgrade;
  }

  /** The connection, opened if there is none. @returns {Promise<IDBDatabase>} */
  open() {
    if (this.#closed) return Promise.reject(new Error('the storage is closed'));
    this.#opening ??= this.#open().catch((error) => {
      this.#opening = null;
      throw error;
    });
    return this.#opening;
  }

  async #open() {
    const database = await request(this.#factory, this.#name, this.#upgrade);
    // Another tab wants to delete or upgrade it, and waits for this one.
    database.onversionchange = () => this.#forget(database);
    database.onclose = () => this.#forget(database);
    if (this.#closed) database.close();
    this.#current = database;
    return database;
  }

  /** @param {IDBDatabase} database */
  #forget(database) {
    database.close();
    if (this.#current !== database) return;
    this.#current = null;
    this.#opening = null;
  }

  /**
   * Done when it is durable. On a connection that turns out to be gone it is repeated once, on a new one.
   *
   * @param {string} store
   * @param {(store: IDBObjectStore) => void} act the same each time
   * @returns {Promise<void>}
   */
  async write(store, act) {
    try {
      const database = await this.open();
      try {
        await attempt(database, store, act);
      } catch (error) {
        if (!LOST.has(nameOf(error)) || this.#closed) throw error;
        this.#forget(database);
        await attempt(await this.open(), store, act);
      }
    } catch (error) {
      throw told(error);
    }
  }

  close() {
    this.#closed = true;
    this.#current?.close();
  }
}

/** @param {IDBFactory} factory @param {string} name @param {(database: IDBDatabase) => void} upgrade @returns {Promise<IDBDatabase>} */
function request(factory, name, upgrade) {
  return new Promise((resolve, reject) => {
    const opening = factory.open(name, 1);
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      reject(new Error('the browser does not open its database'));
    }, OPEN_TIMEOUT_MS);
    opening.onupgradeneeded = () => upgrade(opening.result);
    opening.onsuccess = () => {
      clearTimeout(timer);
      if (late) opening.result.close();
      else resolve(opening.result);
    };
    opening.onerror = () => {
      clearTimeout(timer);
      reject(opening.error);
    };
  });
}

/** @param {IDBDatabase} database @param {string} store @param {(store: IDBObjectStore) => void} act */
async function attempt(database, store, act) {
  // Strict: what is told as stored has left the browser's own memory.
  const transaction = database.transaction(store, 'readwrite', { durability: 'strict' });
  const end = done(transaction);
  try {
    act(transaction.objectStore(store));
  } catch (error) {
    // All of it, or none.
    end.catch(() => {});
    transaction.abort();
    throw error;
  }
  await end;
}

/** @param {unknown} error */
function nameOf(error) {
  return error instanceof Object && 'name' in error ? String(error.name) : '';
}

/** The browser's own texts are often empty; the name always says what it is. @param {unknown} error */
function told(error) {
  const name = nameOf(error);
  const why = name === 'QuotaExceededError' ? 'the browser has no more room for this site' : error instanceof Object && 'message' in error ? error.message : error;
  return new BluetickError('storage_failed', `${why} (${name || 'unknown'})`, { cause: error });
}
