/**
 * Keeps everything in memory. A second client with the same object finds what the first one stored, so a test can
 * restart a client.
 *
 * @returns {Storage}
 */
export function memoryStorage(): Storage;
/**
 * A stored outbox entry.
 */
export type OutboxRow = {
    /**
     * its clientMsgId
     */
    id: string;
    /**
     * grows in the order of writing
     */
    n: number;
    /**
     * when it was written
     */
    ts: number;
    send: import("../outbox.js").WireSend;
    /**
     * the file to upload first
     */
    file?: Blob | undefined;
    thumbnail?: Blob | undefined;
    attachment?: import("../message.js").Attachment | undefined;
    failed?: {
        code: string;
        message: string;
    } | undefined;
};
/**
 * The stored state of a device, and how to write it. Every promise resolves when the write is durable.
 */
export type Saved = {
    /**
     * the id of this device
     */
    device: string;
    /**
     * in any order
     */
    outbox: OutboxRow[];
    /**
     * small values by key, for the client's own use
     */
    kept: Record<string, any>;
    /**
     * writes a row of the outbox, or replaces it
     */
    put: (row: OutboxRow) => Promise<void>;
    remove: (id: string) => Promise<void>;
    /**
     * writes all of them, or none; null removes a key
     */
    keep: (changes: Record<string, any>) => Promise<void>;
    /**
     * for a storage that several tabs share: from now on `heir`
     * receives the unsent rows of closed tabs, once they belong to this device
     */
    inherit?: ((heir: (rows: OutboxRow[]) => void) => Promise<void>) | undefined;
    /**
     * releases the device for others
     */
    close: () => Promise<void>;
};
/**
 * Where a client stores its state. Pass one to the client, or write your own.
 */
export type Storage = {
    open: (user: string, device?: string) => Promise<Saved>;
};
