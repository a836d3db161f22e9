/** @internal @template {Record<string, unknown[]>} Events */
export class Emitter<Events extends Record<string, unknown[]>> {
    /**
     * @template {keyof Events} K
     * @param {K} event
     * @param {(...args: Events[K]) => void} handler
     * @returns {() => void} takes the handler away again
     */
    on<K extends keyof Events>(event: K, handler: (...args: Events[K]) => void): () => void;
    /** @param {keyof Events} event */
    has(event: keyof Events): boolean;
    /**
     * @template {keyof Events} K
     * @param {K} event
     * @param {Events[K]} args
     */
    emit<K extends keyof Events>(event: K, ...args: Events[K]): void;
    clear(): void;
    #private;
}
