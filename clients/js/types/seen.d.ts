export class Seen {
    /** @param {SavedSeen} [saved] */
    constructor(saved?: SavedSeen);
    /** @param {number[]} [pending] received, and not held yet: a next life shall not know of them @returns {SavedSeen} */
    save(pending?: number[]): SavedSeen;
    get settled(): number;
    /** Nothing up to `before` is expected, if nothing was known of that so far. @param {number} before */
    found(before: number): void;
    /** Nothing up to `seq` is expected any more. @param {number} seq */
    settle(seq: number): void;
    /** @param {number} seq */
    contains(seq: number): boolean;
    /** Notes a received seq; false if it was there already. @param {number} seq */
    insert(seq: number): boolean;
    /** Whether something expected before `seq` has not come. @param {number} seq */
    lacksBefore(seq: number): boolean;
}
/**
 * What was received, and up to where nothing more is expected. The two differ: a new device expects nothing below
 * the first message it hears of, yet has not received it; and a void seq is settled without ever arriving. Only what
 * was received counts as a duplicate.
 */
export type SavedSeen = {
    settled: number | null;
    ranges: [number, number][];
};
