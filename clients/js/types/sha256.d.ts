/** @param {Blob} blob @param {AbortSignal} [signal] @returns {Promise<string>} */
export function sha256Of(blob: Blob, signal?: AbortSignal): Promise<string>;
export class Sha256 {
    /** @param {Uint8Array} bytes */
    update(bytes: Uint8Array): this;
    /** In hexadecimal. Nothing may be added after it. */
    digest(): string;
    #private;
}
