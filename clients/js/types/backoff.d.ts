/** Doubling with full jitter: clients that were cut off together do not come back together. */
export class Backoff {
    succeeded(): void;
    /** The wait before the next try, no shorter than the server asked for. @param {number} hintMs @param {() => number} random */
    next(hintMs: number, random: () => number): number;
    #private;
}
