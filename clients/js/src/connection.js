// One WebSocket at a time: opens it, sends `hello`, notices when it is dead, and reconnects.

import { Backoff } from './backoff.js';
import { BluetickError, asError, isFinal } from './errors.js';

/** A connection without a `welcome` by then counts as dead. */
const WELCOME_TIMEOUT_MS = 15_000;
/** After a page becomes visible or the network returns, a connection must answer a ping within this time. */
const PROBE_TIMEOUT_MS = 5_000;
/** An attempt older than this is repeated when the network changes. */
const STUCK_MS = 5_000;

/** @typedef {import('./thread.js').Frame} Frame */
/** @typedef {'offline' | 'connecting' | 'online' | 'waiting' | 'closed'} ConnectionState */
/** @typedef {import('./environment.js').Environment} Environment */
/**
 * @typedef {object} Listener
 * @property {() => Promise<string>} token a token for this connection
 * @property {(token: string) => Frame} hello
 * @property {(frame: Frame) => void} frame
 * @property {() => void} down the connection ended
 * @property {() => void} changed `state`, `retryAt` or `reason` changed
 * @property {(direction: 'in' | 'out', frame: Frame) => void} trace
 */

export class Connection {
  /** @type {ConnectionState} */
  state = 'offline';
  /** @type {number | null} */
  retryAt = null;
  /** @type {BluetickError | null} */
  reason = null;

  #environment;
  #address;
  #listener;
  #canRefreshToken;
  #backoff = new Backoff();
  /** The current attempt or connection. Events of an older one are ignored. @type {SocketSession | null} */
  #session = null;
  /** Counts the decisions to connect or to stay offline. */
  #turn = 0;
  /** When the current attempt began. */
  #triedAt = 0;
  /** @type {unknown} */
  #timer = null;

  /** @param {Environment} environment @param {string} address @param {boolean} canRefreshToken @param {Listener} listener */
  constructor(environment, address, canRefreshToken, listener) {
    this.#environment = environment;
    this.#address = address;
    this.#canRefreshToken = canRefreshToken;
    this.#listener = listener;
  }

  /** Goes online. During the delay before the next attempt, connects at once. */
  connect() {
    if (this.state === 'offline' || this.state === 'waiting') void this.#open();
  }

  disconnect() {
    if (this.state !== 'closed') this.#end('offline', null);
  }

  close() {
    this.#end('closed', null);
  }

  /** The browser reports that the network is down: probes the connection. */
  doubt() {
    if (this.state === 'online') this.#session?.probe();
  }

  /** The network may have changed: connects at once, or probes the connection. */
  nudge() {
    if (this.state === 'waiting') this.connect();
    else if (this.state === 'online') this.#session?.probe();
    else if (this.state === 'connecting' && this.#environment.now() - this.#triedAt >= STUCK_MS) this.#again();
  }

  #again() {
    const turn = this.#turn;
    this.#drop();
    if (this.#turn === turn) void this.#open();
  }

  /** The session has caught up: resets the backoff. */
  settled() {
    this.#backoff.succeeded();
  }

  /** @param {Frame} frame */
  write(frame) {
    this.#session?.write(frame);
  }

  async #open() {
    this.#turn += 1;
    this.#cancelTimer();
    /** @type {SocketSession} */
    const session = new SocketSession(this.#environment, {
      frame: (frame) => this.#session === session && this.#hear(session, frame),
      trace: this.#listener.trace,
      gone: (error) => this.#session === session && this.#lost(error, 0),
    });
    this.#session = session;
    this.#triedAt = this.#environment.now();
    this.#become('connecting');
    try {
      const token = await this.#listener.token();
      if (this.#session === session) session.open(this.#address, () => this.#listener.hello(token));
    } catch (error) {
      // The application gave no token, or the browser refuses the address.
      if (this.#session === session) this.#lost(asError(error, 'offline'), 0);
    }
  }

  /** @param {SocketSession} session @param {Frame} frame */
  #hear(session, frame) {
    if (frame.type === 'welcome') {
      session.welcomed(frame.heartbeat_secs);
      this.reason = null;
    }
    this.#listener.frame(frame);
    if (this.#session !== session) return;
    if (frame.type === 'welcome') this.#become('online');
    if (frame.type === 'bye') this.#lost(new BluetickError(frame.code, frame.reason), frame.reconnect_after_ms ?? 0);
  }

  /** Ends the connection from this side and stays offline. @param {BluetickError} error */
  refuse(error) {
    this.#end('offline', error);
  }

  /** @param {BluetickError} error @param {number} hintMs */
  #lost(error, hintMs) {
    const isTokenOver = error.code === 'token_expired' || error.code === 'token_revoked';
    const hopeless = isFinal(error.code) || (isTokenOver && !this.#canRefreshToken);
    if (hopeless) return this.#end('offline', error);
    const turn = this.#turn;
    this.#drop();
    // A listener has already decided what comes next.
    if (this.#turn !== turn) return;
    const wait = this.#backoff.next(hintMs, this.#environment.random);
    this.retryAt = this.#environment.now() + wait;
    this.reason = error;
    this.#timer = this.#environment.setTimeout(() => void this.#open(), wait);
    this.#become('waiting');
  }

  /** @param {ConnectionState} state @param {BluetickError | null} reason */
  #end(state, reason) {
    this.#turn += 1;
    const turn = this.#turn;
    this.#cancelTimer();
    this.#drop();
    if (this.#turn !== turn) return;
    this.reason = reason;
    this.#become(state);
  }

  #drop() {
    const session = this.#session;
    this.#session = null;
    session?.close();
    if (session) this.#listener.down();
  }

  #cancelTimer() {
    if (this.#timer !== null) this.#environment.clearTimeout(this.#timer);
    this.#timer = null;
    this.retryAt = null;
  }

  /** @param {ConnectionState} state */
  #become(state) {
    this.state = state;
    this.#listener.changed();
  }
}

/** A single WebSocket, from opening to closing. */
class SocketSession {
  #environment;
  #listener;
  /** @type {WebSocket | null} */
  #socket = null;
  #heartbeatMs = 0;
  #lastHeard = 0;
  /** When a ping was written that is still unanswered. @type {number | null} */
  #pingedAt = null;
  /** @type {unknown} */
  #timer = null;
  #closed = false;

  /** @param {Environment} environment @param {{frame: (frame: Frame) => void, trace: Listener['trace'], gone: (error: BluetickError) => void}} listener */
  constructor(environment, listener) {
    this.#environment = environment;
    this.#listener = listener;
  }

  /** @param {string} address @param {() => Frame} hello */
  open(address, hello) {
    const socket = new this.#environment.WebSocket(address);
    this.#socket = socket;
    this.#after(WELCOME_TIMEOUT_MS, () => this.#gone('the server did not answer in time'));
    socket.onopen = () => this.write(hello());
    socket.onmessage = (/** @type {{data: unknown}} */ event) => this.#onData(event.data);
    socket.onclose = (/** @type {{code: number, reason: string}} */ event) => this.#gone(`the connection ended (${event.code})`);
    socket.onerror = () => this.#gone('the connection failed');
  }

  /** @param {Frame} frame */
  write(frame) {
    if (this.#socket?.readyState !== 1) return;
    this.#listener.trace('out', frame);
    this.#socket.send(JSON.stringify(frame));
  }

  /** @param {unknown} data */
  #onData(data) {
    this.#lastHeard = this.#environment.now();
    this.#pingedAt = null;
    let frame;
    try {
      frame = JSON.parse(String(data));
    } catch {
      return;
    }
    if (typeof frame?.type !== 'string') return;
    this.#listener.trace('in', frame);
    this.#listener.frame(frame);
  }

  /** @param {number} heartbeatSecs */
  welcomed(heartbeatSecs) {
    this.#heartbeatMs = Math.min(Math.max(heartbeatSecs, 1), 3600) * 1000;
    this.#after(this.#heartbeatMs, () => this.#beat());
  }

  /**
   * A page does not see the server's pings, so it sends `ping` itself. Timers may be late (a hidden tab, a sleeping
   * laptop), so the connection counts as dead only if a ping stays unanswered.
   */
  #beat() {
    const now = this.#environment.now();
    if (this.#pingedAt !== null && now - this.#pingedAt >= this.#heartbeatMs) return this.#gone('the connection went silent');
    if (now - this.#lastHeard >= this.#heartbeatMs / 2) this.#ping(now);
    this.#after(this.#heartbeatMs, () => this.#beat());
  }

  probe() {
    if (this.#heartbeatMs === 0) return;
    const now = this.#environment.now();
    this.#ping(now);
    this.#after(Math.min(PROBE_TIMEOUT_MS, this.#heartbeatMs), () => {
      if (this.#pingedAt !== null) return this.#gone('the connection went silent');
      this.#after(this.#heartbeatMs, () => this.#beat());
    });
  }

  /** @param {number} now */
  #ping(now) {
    this.#pingedAt ??= now;
    this.write({ type: 'ping' });
  }

  /** @param {number} ms @param {() => void} then */
  #after(ms, then) {
    if (this.#timer !== null) this.#environment.clearTimeout(this.#timer);
    this.#timer = this.#environment.setTimeout(then, ms);
  }

  /** @param {string} why */
  #gone(why) {
    if (!this.#closed) this.#listener.gone(new BluetickError('offline', why));
  }

  /** Frames that were written before are still sent; nothing is read any more. */
  close() {
    this.#closed = true;
    if (this.#timer !== null) this.#environment.clearTimeout(this.#timer);
    const socket = this.#socket;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    // `ws` for Node throws an unhandled error for a connection that is closed while it opens.
    socket.onerror = () => {};
    try {
      socket.close();
    } catch {
      // Closed already.
    }
  }
}
