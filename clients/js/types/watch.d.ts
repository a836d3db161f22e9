export class Watch {
    /** @param {import('./core.js').Core} core @param {boolean} enabled */
    constructor(core: import("./core.js").Core, enabled: boolean);
    connected(): void;
    /** What was known is not known any more. */
    disconnected(): void;
    soon(): void;
    /** @param {import('./thread.js').Frame} frame */
    told(frame: import("./thread.js").Frame): void;
    #private;
}
