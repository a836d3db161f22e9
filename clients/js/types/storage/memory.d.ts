/**
 * Keeps everything in memory. The same object given to a second client hands it what the first one left, so a test
 * can restart a client.
 *
 * @returns {Storage}
 */
export function memoryStorage(): Storage;
/**
 * A message that waits in the outbox, as it is stored.
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
     * what has to be uploaded first
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
 * What a device has kept, and how it keeps more. Every promise is done when the write is durable.
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
     * writes all of them, or none; null takes a key away
     */
    keep: (changes: Record<string, any>) => Promise<void>;
    /**
     * where several share a storage: from now on `heir` is
     * given what others have left unsent, as soon as it is this device's
     */
    inherit?: ((heir: (rows: OutboxRow[]) => void) => Promise<void>) | undefined;
    /**
     * others may have the device from now on
     */
    close: () => Promise<void>;
};
/**
 * Where a client keeps its outbox. Give one to the client, or write your own.
 */
export type Storage = {
    open: (user: string, device?: string) => Promise<Saved>;
};
