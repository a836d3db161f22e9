/** Unconfirmed messages at most. */
export const OUTBOX_MAX: 10000;
/** Sends in flight at most: below the number of frames that the server reads ahead, so acks are not delayed. */
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
    /** Inserts the entries of an earlier process before those of this one. @param {Entry<T>[]} entries */
    restore(entries: Entry<T>[]): void;
    /** @param {string} id */
    remove(id: string): Entry<T> | undefined;
    /** Discards a message. It is not sent again; if the server has it already, it is recognised. @param {string} id */
    discard(id: string): void;
    /** The server has confirmed it. Returns the entry, also of a discarded message. @param {string} id */
    confirmed(id: string): Entry<T> | undefined;
    /**
     * The server has stored it, and `sent` will follow. Returns the entry if that is new. A message that is not sent again
     * gets no `sent`: it leaves the outbox now.
     *
     * @param {string} id
     */
    stored(id: string): Entry<T> | undefined;
    /** The server does not have the discarded message. @param {string} id */
    forget(id: string): void;
    /** The next message to write. A held message blocks those behind it, to keep their order. */
    next(): Entry<T> | undefined;
    /** The delay before it is sent again, or null if it is refused for good. @param {Entry<T>} entry @param {BluetickError} error */
    refused(entry: Entry<T>, error: BluetickError): number | null;
    releaseHeld(): void;
    /** Messages in flight may or may not have arrived: all are sent again with the same ids. */
    disconnected(): void;
    /** The longest message in flight: the likeliest cause when the server refuses a frame. */
    longestInFlight(): Entry<T> | undefined;
}
export type BluetickError = import("./errors.js").BluetickError;
/**
 * - `saving`: being written to the device's storage; nothing was sent yet
 * - `uploading`: its file is being uploaded; it blocks no other message
 * - `waiting`: ready to be sent
 * - `inFlight`: written to the current connection
 * - `held`: refused temporarily; sent again when the retry timer fires
 * - `failed`: refused for good, until the application retries or discards it
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
