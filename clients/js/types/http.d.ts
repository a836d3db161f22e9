/** @param {Response} response */
export function errorOf(response: Response): Promise<BluetickError>;
export class Http {
    /** @param {string} base @param {typeof fetch} fetch @param {Tokens} tokens */
    constructor(base: string, fetch: typeof globalThis.fetch, tokens: Tokens);
    /** @param {string} method @param {string} path below `/v1` @param {unknown} [body] @returns {Promise<any>} */
    call(method: string, path: string, body?: unknown): Promise<any>;
    #private;
}
import { BluetickError } from './errors.js';
import { Tokens } from './tokens.js';
