/**
 * Keeps a device in a file. For one process at a time. Files that wait to be uploaded are not kept: after a restart such a
 * message has failed with `aborted`.
 *
 * @param {string} path
 * @returns {import('./memory.js').Storage}
 */
export function fileStorage(path: string): import("./memory.js").Storage;
export type OutboxRow = import("./memory.js").OutboxRow;
export type Contents = {
    device: string;
    outbox: Map<string, OutboxRow>;
    kept: Map<string, any>;
};
export type Line = {
    device: string;
    user: string;
} | {
    put: OutboxRow;
} | {
    remove: string;
} | {
    keep: Record<string, any>;
};
