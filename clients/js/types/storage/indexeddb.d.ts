/**
 * The outbox survives reloads and closed tabs.
 *
 * @param {{name?: string, indexedDB?: IDBFactory, locks?: LockManager | null, reloadMs?: number}} [options] `name` of the database,
 *   `bluetick` if absent; `reloadMs` is how long open tabs leave a closed one's outbox to its reload
 * @returns {import('./memory.js').Storage}
 */
export function indexedDbStorage(options?: {
    name?: string;
    indexedDB?: IDBFactory;
    locks?: LockManager | null;
    reloadMs?: number;
}): import("./memory.js").Storage;
