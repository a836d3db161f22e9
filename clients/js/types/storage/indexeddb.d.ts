/**
 * The outbox survives reloads and closed tabs.
 *
 * @param {{name?: string, indexedDB?: IDBFactory, locks?: LockManager | null}} [options] `name` of the database, `bluetick` if absent
 * @returns {import('./memory.js').Storage}
 */
export function indexedDbStorage(options?: {
    name?: string;
    indexedDB?: IDBFactory;
    locks?: LockManager | null;
}): import("./memory.js").Storage;
