export class Keeper {
    /**
     * @param {import('./sync.js').Sync<any>} sync
     * @param {boolean} whole Whether the application stores what it receives. Only then a cursor may outlive the process:
     *   what it covers must be held. Otherwise the unsaid reads are all there is to keep.
     * @param {(error: unknown) => void} report
     */
    constructor(sync: import("./sync.js").Sync<any>, whole: boolean, report: (error: unknown) => void);
    /** @type {Promise<void>} */
    closed: Promise<void>;
    /** @param {Storage} storage @param {string} user @param {string | undefined} device @returns {Promise<Saved>} */
    open(storage: Storage, user: string, device: string | undefined): Promise<Saved>;
    /** @param {import('./storage/memory.js').OutboxRow} row @returns {Promise<void>} */
    put(row: import("./storage/memory.js").OutboxRow): Promise<void>;
    /** One that stays by mistake is sent again with the same id, and the server knows it. @param {string} id */
    remove(id: string): void;
    soon(): void;
    close(): Promise<void>;
    #private;
}
export type Saved = import("./storage/memory.js").Saved;
export type Storage = import("./storage/memory.js").Storage;
