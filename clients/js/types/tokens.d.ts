/** When a JWT ends, in milliseconds since 1970; null if it does not say. @param {string} token @returns {number | null} */
export function expiryOf(token: string): number | null;
export class Tokens {
    /** @param {unknown} error */
    static isTokenError(error: unknown): boolean;
    /** @param {string | (() => string | Promise<string>)} given @param {() => number} now */
    constructor(given: string | (() => string | Promise<string>), now: () => number);
    get canRefresh(): boolean;
    /** A new one, straight from the application. @returns {Promise<string>} */
    fresh(): Promise<string>;
    /** One that is good for a request now. @returns {Promise<string>} */
    current(): Promise<string>;
    /** How long until a running session wants a new one; null if it never does. @param {string} token @returns {number | null} */
    refreshInMs(token: string): number | null;
    #private;
}
