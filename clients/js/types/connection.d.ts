export class Connection {
    /** @param {Environment} environment @param {string} address @param {boolean} canRefreshToken @param {Listener} listener */
    constructor(environment: Environment, address: string, canRefreshToken: boolean, listener: Listener);
    /** @type {ConnectionState} */
    state: ConnectionState;
    /** @type {number | null} */
    retryAt: number | null;
    /** @type {BluetickError | null} */
    reason: BluetickError | null;
    /** Goes online. During the delay before the next attempt, connects at once. */
    connect(): void;
    disconnect(): void;
    close(): void;
    /** The browser reports that the network is down: probes the connection. */
    doubt(): void;
    /** The network may have changed: connects at once, or probes the connection. */
    nudge(): void;
    /** The session has caught up: resets the backoff. */
    settled(): void;
    /** @param {Frame} frame */
    write(frame: Frame): void;
    /** Ends the connection from this side and stays offline. @param {BluetickError} error */
    refuse(error: BluetickError): void;
}
export type Frame = import("./thread.js").Frame;
export type ConnectionState = "offline" | "connecting" | "online" | "waiting" | "closed";
export type Environment = import("./environment.js").Environment;
export type Listener = {
    /**
     * a token for this connection
     */
    token: () => Promise<string>;
    hello: (token: string) => Frame;
    frame: (frame: Frame) => void;
    /**
     * the connection ended
     */
    down: () => void;
    /**
     * `state`, `retryAt` or `reason` changed
     */
    changed: () => void;
    trace: (direction: "in" | "out", frame: Frame) => void;
};
import { BluetickError } from './errors.js';
