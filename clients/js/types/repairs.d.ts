export class Repairs {
    /** After a refusal nothing is asked until the retry timer fires. */
    paused: boolean;
    get areDone(): boolean;
    /** @param {string} id */
    open(id: string): void;
    /** @param {string} id */
    again(id: string): void;
    /** @param {string} id */
    close(id: string): void;
    /** The conversation to ask for now, if any. @returns {string | null} */
    next(): string | null;
    answered(): void;
    #private;
}
