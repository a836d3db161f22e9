export class Inbox {
    /** @param {import('./core.js').Core} core */
    constructor(core: import("./core.js").Core);
    loaded: boolean;
    /** A connection is up: what is in the list may have changed meanwhile. */
    connected(): void;
    /** One page more. @returns {Promise<{more: boolean}>} */
    loadMore(): Promise<{
        more: boolean;
    }>;
    /** Somebody wrote for the first time: their name is in the inbox. */
    refreshSoon(): void;
    #private;
}
