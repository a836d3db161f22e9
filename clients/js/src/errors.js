// One kind of error for everything that can go wrong, told apart by `code`.

/** Codes after which the same thing may pass later, unchanged. */
const RETRYABLE = new Set(['rate_limited', 'upload_too_slow', 'unavailable', 'storage_full', 'internal', 'shutting_down']);

/** After these the client stays offline: coming back by itself would not help, or would go on for ever. */
const FINAL = new Set(['replaced', 'too_many_sessions', 'unauthorized', 'erased', 'wrong_user', 'origin_refused', 'storage_failed']);

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
  constructor(code, message, details = {}) {
    super(message ?? code, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = 'BluetickError';
    /** What happened, for programs. */
    this.code = code;
    /** When to try again, if the server said so. @type {number | undefined} */
    this.retryAfterMs = details.retryAfterMs;
    /** The HTTP status, of errors of HTTP. @type {number | undefined} */
    this.status = details.status;
  }

  /** Whether the same thing may pass later, unchanged. */
  get retryable() {
    return RETRYABLE.has(this.code);
  }
}

/**
 * @internal
 * @param {{code?: unknown, message?: unknown, retry_after_ms?: unknown}} wire
 * @param {number} [status]
 */
export function fromWire(wire, status) {
  const { code, message, retry_after_ms: after } = wire;
  return new BluetickError(typeof code === 'string' ? code : 'internal', typeof message === 'string' ? message : undefined, {
    retryAfterMs: typeof after === 'number' ? after : undefined,
    status,
  });
}

/** @internal @param {string} code */
export function isFinal(code) {
  return FINAL.has(code);
}

/** @internal @param {unknown} thrown @param {string} code @returns {BluetickError} */
export function asError(thrown, code) {
  if (thrown instanceof BluetickError) return thrown;
  return new BluetickError(code, thrown instanceof Error ? thrown.message : String(thrown), { cause: thrown });
}
