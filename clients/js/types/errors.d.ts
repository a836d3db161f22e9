


/**
 * What went wrong. `code` is one of the server's (see docs/protocol.md, "Error codes") or of the client's own:
 *
 * | code | meaning |
 * | --- | --- |
 * | `offline` | this needs a connection, and there is none |
 * | `closed` | the client was closed |
 * | `wrong_user` | the token is of another user than the client was made for |
 * | `aborted` | taken back, or its file was not kept |
 * | `upload_failed` | the bytes of an attachment did not get through |
 * | `timeout` | no answer came in time |
 * | `token_failed` | the token callback failed |
 * | `storage_failed` | the device's storage did not take it |
 * | `outbox_full` | too many messages wait to be sent |
 * | `handler_failed` | a handler of the application's threw; the `cause` is what it threw |
 * | `too_old` | it waited so long that the server may have forgotten whether it has it |
 */
export class BluetickError extends Error {
    /**
     * @param {string} code
     * @param {string} [message]
     * @param {{retryAfterMs?: number, status?: number, cause?: unknown}} [details]
     */
    constructor(code: string, message?: string, details?: {
        retryAfterMs?: number;
        status?: number;
        cause?: unknown;
    });
    /** What happened, for programs. */
    code: string;
    /** When to try again, if the server said so. @type {number | undefined} */
    retryAfterMs: number | undefined;
    /** The HTTP status, of errors of HTTP. @type {number | undefined} */
    status: number | undefined;
    /** Whether the same thing may pass later, unchanged. */
    get retryable(): boolean;
}
