/** @param {Partial<Environment>} given @returns {Environment} */
export function environment(given: Partial<Environment>): Environment;
/** The longest delay of a timer. */
export const TIMER_MAX_MS: number;
/**
 * Runs a function after the events that are queued already. Not a timer: in hidden tabs those may be a minute late, and
 * acks must not be.
 *
 * @type {(then: () => void) => void}
 */
export const soon: (then: () => void) => void;
export type Environment = {
    WebSocket: new (url: string) => WebSocket;
    fetch: typeof fetch;
    random: () => number;
    now: () => number;
    setTimeout: (then: () => void, ms: number) => unknown;
    clearTimeout: (timer: any) => void;
};
