export class Thread {
    /** @param {Partial<SavedThread>} [saved] */
    constructor(saved?: Partial<SavedThread>);
    heard: number;
    read: number;
    /** @type {Boundaries} */
    own: Boundaries;
    /** @type {Boundaries} */
    peer: Boundaries;
    /** @type {[number, string] | null} */
    lastOwn: [number, string] | null;
    /** @param {number[]} [pending] what has arrived and is not held yet @returns {SavedThread} */
    save(pending?: number[]): SavedThread;
    disconnected(): void;
    /** What was received here; a conversation not heard of before expects nothing up to `before`. @param {number} before */
    seenSince(before: number): Seen;
    get settled(): number;
    /** The conversation goes up to here, at least. @param {number} seq */
    named(seq: number): void;
    /** The newest seq that was named without its message. */
    get head(): number;
    /** The newest seq that is known at all. */
    get newest(): number;
    /** The server has stored a message of one's own; whether that is news. @param {number} seq @param {string} id @param {boolean} [justNow] and not long ago */
    ownSent(seq: number, id: string, justNow?: boolean): boolean;
    /** @param {number} seq @param {string} id */
    noteOwn(seq: number, id: string): void;
    /** The device holds a message of the peer's that the stream brought. @param {number} seq @param {string} id */
    stored(seq: number, id: string): void;
    /** The ack to write now, and the message_id to which it moves the cursor. */
    takeAck(): {
        seq: number;
        messageId: string | null;
    } | null;
    get owesAck(): boolean;
    /** Whether the server has not said that it has the last ack: then it is owed once more. */
    ackAgain(): boolean;
    get owesRead(): boolean;
    /** Whether the server does not know yet how far the user has read. */
    get readPending(): boolean;
    /** The read to write now. */
    takeRead(): number | null;
    /** The read did not arrive and shall be written again. */
    readLost(): void;
    /** The server will not take this read, now or later. */
    readRefused(): void;
    /** How far the user has read, said or not. */
    get readUpTo(): number;
    /** @param {'own' | 'peer'} whose @param {Boundaries} theirs @returns {boolean} whether they grew */
    merge(whose: "own" | "peer", theirs: Boundaries): boolean;
    /** @param {number} seq @returns {'sent' | 'delivered' | 'read'} */
    tickOf(seq: number): "sent" | "delivered" | "read";
    /** The newest own message, if its tick may have changed while nobody was listening. */
    get unfinishedTick(): string | null;
    /** Keeps a message that came after a gap. @param {Frame} message */
    hold(message: Frame): void;
    /** The next held message that no longer waits for anything. */
    nextHeld(): Record<string, any> | null;
    /** Waits for history up to `seq`; false if a repair was under way already. @param {number} seq */
    beginRepair(seq: number): boolean;
    missing(): {
        after: number;
        upto: number;
    };
    get isRepaired(): boolean;
    endRepair(): void;
    /** Gives up on the gap before the next held message; false if none is held. */
    settleToNextHeld(): boolean;
}
/**
 * a frame, or a part of one, as it is on the wire
 */
export type Frame = Record<string, any>;
export type Boundaries = {
    delivered: number;
    read: number;
};
/**
 * What is remembered of a conversation across restarts.
 */
export type SavedThread = {
    /**
     * null while it is known only from ticks
     */
    seen: import("./seen.js").SavedSeen | null;
    /**
     * the newest message of the peer's that the stream brought: what is acked, and what a reply has seen
     */
    heard: number;
    /**
     * how far the user has read; the server may not know yet
     */
    read: number;
    /**
     * the user's own boundaries as the server knows them
     */
    own: Boundaries;
    /**
     * the other member's: these make the ticks
     */
    peer: Boundaries;
    /**
     * seq and id of the newest own message: while it is not blue, its tick is worth asking for
     */
    lastOwn: [number, string] | null;
};
import { Seen } from './seen.js';
