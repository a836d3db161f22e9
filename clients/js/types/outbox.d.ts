/** Messages that may wait. */
export const OUTBOX_MAX: 10000;
/** Written and not yet confirmed: below what the server reads ahead, so that acks are never stuck behind. */
export const IN_FLIGHT_MAX: 32;
/** @template T what the caller keeps with each entry */
export class Outbox<T> {
    get size(): number;
    /** @returns {readonly Entry<T>[]} */
    get entries(): readonly Entry<T>[];
    /** @param {string} id */
    get(id: string): Entry<T> | undefined;
    /** @param {WireSend} send @param {Progress} progress @param {T} item */
    push(send: WireSend, progress: Progress, item: T): {
        send: WireSend;
        progress: Progress;
        refusals: number;
        isStored: boolean;
        item: T;
    };
    /** What an earlier life left goes before what this one has written so far. @param {Entry<T>[]} entries */
    restore(entries: Entry<T>[]): void;
    /** @param {string} id */
    remove(id: string): Entry<T> | undefined;
    /** Takes one back. It goes out no more; but should it be there already, it is known again. @param {string} id */
    discard(id: string): void;
    /** The server has it: the entry, also of one that was discarded. @param {string} id */
    confirmed(id: string): Entry<T> | undefined;
    /**
     * The server has stored it, and will confirm it. The entry, if that is news. One that does not go out again by itself
     * gets no confirmation either: it leaves the outbox now.
     *
     * @param {string} id
     */
    stored(id: string): Entry<T> | undefined;
    /** The server does not have the discarded one. @param {string} id */
    forget(id: string): void;
    /** The next to write. One that is held stops those behind it, so that the order of writing is kept. */
    next(): Entry<T> | undefined;
    /** How long to wait before it goes out again, or null if it never will by itself. @param {Entry<T>} entry @param {BluetickError} error */
    refused(entry: Entry<T>, error: BluetickError): number | null;
    releaseHeld(): void;
    /** Whatever was on its way may or may not have arrived: all of it goes out again, with the same ids. */
    disconnected(): void;
    /** The longest that is on its way: the one to blame when the server found a frame too large. */
    longestInFlight(): Entry<T> | undefined;
}
export type BluetickError = import("./errors.js").BluetickError;
/**
 * - `saving`: on its way into the device's storage, no byte has gone out
 * - `uploading`: its file is; it goes out when that is done, and holds up nobody
 * - `waiting`: may go out
 * - `inFlight`: written to the connection that is up now
 * - `held`: refused for now; goes out again when the retry timer fires
 * - `failed`: refused for good, until somebody retries or discards it
 */
export type Progress = "saving" | "uploading" | "waiting" | "inFlight" | "held" | "failed";
/**
 * What a `send` frame carries, besides its type and ref.
 */
export type WireSend = {
    client_msg_id: string;
    to: string;
    body: string;
    seen_seq: number;
    meta?: Record<string, unknown> | undefined;
    attachment?: {
        s3_ref: string;
        blurhash?: string;
        thumbnail?: string;
        voice?: boolean;
    } | undefined;
};
/**
 * `isStored`: a `message` or a page of history has shown that the server has it. It stays in the outbox, because only
 * `sent` says that the server has also delivered it.
 */
export type Entry<T> = {
    send: WireSend;
    progress: Progress;
    refusals: number;
    isStored: boolean;
    item: T;
};
