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
    /** @param {number[]} [pending] seqs that have arrived but are not stored by the application yet @returns {SavedThread} */
    save(pending?: number[]): SavedThread;
    disconnected(): void;
    /** The received seqs. A conversation that is new to the device expects nothing up to `before`. @param {number} before */
    seenSince(before: number): Seen;
    get settled(): number;
    /** The conversation has at least this many messages. @param {number} seq */
    named(seq: number): void;
    /** The newest seq that is known without its message. */
    get head(): number;
    /** The newest known seq. */
    get newest(): number;
    /**
     * The server has stored an own message. If it is the first and was stored just now, everything after it is still to
     * come; a repeated first message does not say that. Returns whether it is new.
     *
     * @param {number} seq @param {string} id @param {boolean} [justNow]
     */
    ownSent(seq: number, id: string, justNow?: boolean): boolean;
    /** @param {number} seq @param {string} id */
    noteOwn(seq: number, id: string): void;
    /** The application has stored a message of the peer that the stream brought. @param {number} seq @param {string} id */
    stored(seq: number, id: string): void;
    /** The ack to write now, and the cursor's value after it. */
    takeAck(): {
        seq: number;
        messageId: string | null;
    } | null;
    get owesAck(): boolean;
    /** Schedules the last ack once more if the server has not confirmed it by `ticks`. */
    ackAgain(): boolean;
    get owesRead(): boolean;
    /** Whether the server has not confirmed how far the user has read. */
    get readPending(): boolean;
    /** The read to write now. */
    takeRead(): number | null;
    /** The read was refused temporarily and has to be written again. */
    readLost(): void;
    /** The read was refused for good. */
    readRefused(): void;
    /** How far the user has read, confirmed or not. */
    get readUpTo(): number;
    /** @param {'own' | 'peer'} whose @param {Boundaries} theirs @returns {boolean} whether they grew */
    merge(whose: "own" | "peer", theirs: Boundaries): boolean;
    /** @param {number} seq @returns {'sent' | 'delivered' | 'read'} */
    tickOf(seq: number): "sent" | "delivered" | "read";
    /** The newest own message, if its tick may have changed while the device was offline. */
    get unfinishedTick(): string | null;
    /** Holds back a message that came after a gap. @param {Frame} message */
    hold(message: Frame): void;
    /** The next held message that has no gap before it any more. */
    nextHeld(): Record<string, any> | null;
    /** Begins a repair up to `seq`, or extends the one in progress. Returns whether it is new. @param {number} seq */
    beginRepair(seq: number): boolean;
    missing(): {
        after: number;
        upto: number;
    };
    get isRepaired(): boolean;
    endRepair(): void;
    /** Gives up on the gap before the next held message. Returns false if none is held. */
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
 * The stored state of a conversation.
 */
export type SavedThread = {
    /**
     * null while the conversation is known only from ticks
     */
    seen: import("./seen.js").SavedSeen | null;
    /**
     * the newest message of the peer that the stream brought: the value of acks and of `seen_seq`
     */
    heard: number;
    /**
     * how far the user has read; the server may not have confirmed it yet
     */
    read: number;
    /**
     * the user's boundaries as the server knows them
     */
    own: Boundaries;
    /**
     * the other member's boundaries, which give the ticks
     */
    peer: Boundaries;
    /**
     * seq and id of the newest own message. Its tick is requested after a reconnect while it is not blue
     */
    lastOwn: [number, string] | null;
};
import { Seen } from './seen.js';
