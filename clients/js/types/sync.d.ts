/** @typedef {import('./thread.js').Frame} Frame */
/**
 * What must be handled in order, one after the other.
 *
 * @typedef {{kind: 'message', frame: Frame, fresh: boolean, own: boolean, stream: boolean}
 *   | {kind: 'cursor', to: string}
 *   | {kind: 'caughtUp'}} Arrival
 */
/**
 * What the state tells its driver at once.
 *
 * @template T
 * @typedef {object} News
 * @property {(entry: import('./outbox.js').Entry<T>, sent: Frame) => void} sent
 * @property {(entry: import('./outbox.js').Entry<T>, error: BluetickError) => void} failed
 * @property {(conversationId: string, userId: string) => void} ticks
 * @property {(conversationId: string) => void} readConfirmed
 */
/** @typedef {{knowsAll: boolean, cursor: string | null, threads: Map<string, import('./thread.js').SavedThread>}} SavedSync */
/** @template T what the driver keeps with each message of the outbox */
export class Sync<T> {
    /** @param {string} user @param {News<T>} news */
    constructor(user: string, news: News<T>);
    /** @type {'down' | 'greeting' | 'draining' | 'live'} */
    link: "down" | "greeting" | "draining" | "live";
    /** @type {string | null} */
    cursor: string | null;
    maxBodyBytes: number;
    /** @type {Outbox<T>} */
    outbox: Outbox<T>;
    /** @type {Arrival[]} */
    arrivals: Arrival[];
    /** Conversations whose saved part has changed. @type {Set<string>} */
    dirty: Set<string>;
    /** Every conversation that the user had when this device last caught up is known here. */
    knowsAll: boolean;
    /** What an earlier life of the device has kept. @param {SavedSync} saved */
    restore(saved: SavedSync): void;
    /** @param {string} id @returns {Thread} */
    thread(id: string): Thread;
    get isUp(): boolean;
    nextRef(): number;
    /** A connection is open: the hello to say on it. @param {string} token @param {string} device @returns {Frame} */
    connected(token: string, device: string): Frame;
    /** The connection is gone. What was under way is unknown; what must be said again will be. */
    disconnected(): void;
    /** How long to wait before calling `retry`; told once for each new wait. */
    takeRetryMs(): number | null;
    /** The wait is over: what the server refused for the moment is tried again. */
    retry(): void;
    /** The user has read the conversation up to here. Made offline, it is kept and said later. @param {string} id @param {number} seq */
    read(id: string, seq: number): void;
    /** History was loaded up to `seq`: what comes later must not leave anything out. @param {string} id @param {number} seq */
    loaded(id: string, seq: number): void;
    /** The frames to write now: receipts first, then what waits to be sent. */
    takeFrames(): Record<string, any>[];
    bodyTooLarge(): BluetickError;
    /** Takes one frame of the server's; false if it is an answer to somebody else's question. @param {Frame} frame @returns {boolean} */
    frame(frame: Frame): boolean;
    /** One's own message that came back before its `sent` did: it is sent. @param {Frame} message */
    settleOwn(message: Frame): void;
    /** The device holds it: now it may be acked, or the cursor moved. @param {Arrival} arrival */
    handled(arrival: Arrival): void;
    #private;
}
export type Frame = import("./thread.js").Frame;
/**
 * What must be handled in order, one after the other.
 */
export type Arrival = {
    kind: "message";
    frame: Frame;
    fresh: boolean;
    own: boolean;
    stream: boolean;
} | {
    kind: "cursor";
    to: string;
} | {
    kind: "caughtUp";
};
/**
 * What the state tells its driver at once.
 */
export type News<T> = {
    sent: (entry: import("./outbox.js").Entry<T>, sent: Frame) => void;
    failed: (entry: import("./outbox.js").Entry<T>, error: BluetickError) => void;
    ticks: (conversationId: string, userId: string) => void;
    readConfirmed: (conversationId: string) => void;
};
export type SavedSync = {
    knowsAll: boolean;
    cursor: string | null;
    threads: Map<string, import("./thread.js").SavedThread>;
};
import { Outbox } from './outbox.js';
import { Thread } from './thread.js';
import { BluetickError } from './errors.js';
