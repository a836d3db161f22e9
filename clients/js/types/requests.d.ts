/** @typedef {{frame: Frame, resolve: (answer: Frame) => void, reject: (error: BluetickError) => void, tries: number, timer: unknown}} Asked */
export class Requests {
    /** @param {import('./environment.js').Environment} environment @param {{isUp: () => boolean, write: (frame: Frame) => void, nextRef: () => number}} line */
    constructor(environment: import("./environment.js").Environment, line: {
        isUp: () => boolean;
        write: (frame: Frame) => void;
        nextRef: () => number;
    });
    /** The answer; waits through any time offline. @param {Frame} frame @returns {Promise<Frame>} */
    ask(frame: Frame): Promise<Frame>;
    /** A connection is up: what is still open is asked on it. */
    up(): void;
    down(): void;
    /** @param {Frame} frame @returns {boolean} whether it answers one of these */
    answer(frame: Frame): boolean;
    close(): void;
    #private;
}
export type Frame = import("./thread.js").Frame;
export type Asked = {
    frame: Frame;
    resolve: (answer: Frame) => void;
    reject: (error: BluetickError) => void;
    tries: number;
    timer: unknown;
};
import { BluetickError } from './errors.js';
