export class Connection {
    /** @param {Environment} environment @param {string} address @param {boolean} canRefreshToken @param {Listener} listener */
    constructor(environment: Environment, address: string, canRefreshToken: boolean, listener: Listener);
    /** @type {ConnectionState} */
    state: ConnectionState;
    /** @type {number | null} */
    retryAt: number | null;
    /** @type {BluetickError | null} */
    reason: BluetickError | null;
    /** Be online from now on. While waiting for the next try, it is made at once. */
    connect(): void;
    disconnect(): void;
    close(): void;
    /** The network has gone, as far as the browser can tell: the connection has to show that it lives. */
    doubt(): void;
    /** The network may have changed: no use in waiting, or in trusting the connection. */
    nudge(): void;
    /** All that was missed is here: the next loss is a first one again. */
    settled(): void;
    /** @param {Frame} frame */
    write(frame: Frame): void;
    /** Ends the connection for good, from this side. @param {BluetickError} error */
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
     * the connection is gone
     */
    down: () => void;
    /**
     * state, retryAt or reason are others now
     */
    changed: () => void;
    trace: (direction: "in" | "out", frame: Frame) => void;
};
import { BluetickError } from './errors.js';
