/** @typedef {import('./drafts.js').Item} Item */
/** @typedef {{method: string, url: string, headers: Record<string, string>}} UploadRequest */
/** @typedef {{s3Ref: string, sha256: string}} Uploaded */
export class Uploads {
    /** @param {import('./environment.js').Environment} environment @param {import('./http.js').Http} http @param {(signal: AbortSignal) => Promise<void>} online */
    constructor(environment: import("./environment.js").Environment, http: import("./http.js").Http, online: (signal: AbortSignal) => Promise<void>);
    /** Uploads what an item has, and notes in its message where it is. @param {Item} item @param {AbortSignal} signal @param {() => void} changed */
    run(item: Item, signal: AbortSignal, changed: () => void): Promise<void>;
    #private;
}
export type Item = import("./drafts.js").Item;
export type UploadRequest = {
    method: string;
    url: string;
    headers: Record<string, string>;
};
export type Uploaded = {
    s3Ref: string;
    sha256: string;
};
