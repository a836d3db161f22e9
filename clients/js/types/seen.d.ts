export class Seen {
    /** @param {SavedSeen} [saved] */
    constructor(saved?: SavedSeen);
    /** @param {number[]} [pending] received but not stored by the application yet: a restart must receive them again @returns {SavedSeen} */
    save(pending?: number[]): SavedSeen;
    get settled(): number;
    /** Settles up to `before`, if nothing is settled yet. @param {number} before */
    found(before: number): void;
    /** Nothing more is expected up to `seq`. @param {number} seq */
    settle(seq: number): void;
    /** @param {number} seq */
    contains(seq: number): boolean;
    /** Adds a received seq. Returns false if it was there already. @param {number} seq */
    insert(seq: number): boolean;
    /** Whether a message before `seq` is missing. @param {number} seq */
    lacksBefore(seq: number): boolean;
}
/**
 * The received seqs, and the seq up to which nothing more is expected (`settled`). The two differ: a new device expects
 * nothing before its first message, but has not received it either; and a void seq is settled without a message. Only
 * received seqs count as duplicates.
 */
export type SavedSeen = {
    settled: number | null;
    ranges: [number, number][];
};
