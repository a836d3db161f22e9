// One WebSocket at a time: opens it, says hello, notices when it is dead, and comes back after a while.

import { Backoff } from './backoff.js';
import { BluetickError, asError, isFinal } from './errors.js';

/** The server answers a hello much sooner; a connection without a welcome is of no use. */
const WELCOME_TIMEOUT_MS = 15_000;
/** When a page comes back to the front, or the network does, a dead connection is noticed this fast. */
const PROBE_TIMEOUT_MS = 5_000;
/** After as long a try has been stuck on what was the network before. */
const STUCK_MS = 5_000;

/** @typedef {import('./thread.js').Frame} Frame */
/** @typedef {'offline' | 'connecting' | 'online' | 'waiting' | 'closed'} ConnectionState */
/** @typedef {import('./environment.js').Environment} Environment */
/**
 * @typedef {object} Listener
 * @property {() => Promise<string>} token a token for this connection
 * @property {(token: string) => Frame} hello
 * @property {(frame: Frame) => void} frame
 * @property {() => void} down the connection is gone
 * @property {() => void} changed state, retryAt or reason are others now
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
  /** What the present try or connection is made of. Whatever comes from an older one is ignored. @type {Link | null} */
  #link = null;
  /** Grows whenever it is decided anew whether to be online. */
  #turn = 0;
  /** When the present try began. */
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

  /** Be online from now on. While waiting for the next try, it is made at once. */
  connect() {
    if (this.state === 'offline' || this.state === 'waiting') void this.#open();
  }

  disconnect() {
    if (this.state !== 'closed') this.#end('offline', null);
  }

  close() {
    this.#end('closed', null);
  }

  /** The network has gone, as far as the browser can tell: the connection has to show that it lives. */
  doubt() {
    if (this.state === 'online') this.#link?.probe();
  }

  /** The network may have changed: no use in waiting, or in trusting the connection. */
  nudge() {
    if (this.state === 'waiting') this.connect();
    else if (this.state === 'online') this.#link?.probe();
    else if (this.state === 'connecting' && this.#environment.now() - this.#triedAt >= STUCK_MS) this.#again();
  }

  #again() {
    const turn = this.#turn;
    this.#drop();
    if (this.#turn === turn) void this.#open();
  }

  /** All that was missed is here: the next loss is a first one again. */
  settled() {
    this.#backoff.succeeded();
  }

  /** @param {Frame} frame */
  write(frame) {
    this.#link?.write(frame);
  }

  async #open() {
    this.#turn += 1;
    this.#cancelTimer();
    /** @type {Link} */
    const link = new Link(this.#environment, {
      frame: (frame) => this.#link === link && this.#hear(link, frame),
      trace: this.#listener.trace,
      gone: (error) => this.#link === link && this.#lost(error, 0),
    });
    this.#link = link;
    this.#triedAt = this.#environment.now();
    this.#become('connecting');
    try {
      const token = await this.#listener.token();
      if (this.#link === link) link.open(this.#address, () => this.#listener.hello(token));
    } catch (error) {
      // The application could give no token, or the browser refuses the address.
      if (this.#link === link) this.#lost(asError(error, 'offline'), 0);
    }
  }

  /** @param {Link} link @param {Frame} frame */
  #hear(link, frame) {
    if (frame.type === 'welcome') {
      link.welcomed(frame.heartbeat_secs);
      this.reason = null;
    }
    this.#listener.frame(frame);
    if (this.#link !== link) return;
    if (frame.type === 'welcome') this.#become('online');
    if (frame.type === 'bye') this.#lost(new BluetickError(frame.code, frame.reason), frame.reconnect_after_ms ?? 0);
  }

  /** Ends the connection for good, from this side. @param {BluetickError} error */
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
    // Somebody who heard of the loss has already said what comes next.
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
    const link = this.#link;
    this.#link = null;
    link?.close();
    if (link) this.#listener.down();
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

/** A single WebSocket, from its opening to its end. */
class Link {
  #environment;
  #listener;
  /** @type {WebSocket | null} */
  #socket = null;
  #heartbeatMs = 0;
  #lastHeard = 0;
  /** When a ping was written that nothing has come after. @type {number | null} */
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
   * Pings of the server are not shown to a page, so it says `ping` itself. A timer may be late (a hidden tab, a laptop
   * asleep): what counts is whether a ping stayed without any answer, not how long it was silent.
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

  /** What was written before is still sent; nothing is heard any more. */
  close() {
    this.#closed = true;
    if (this.#timer !== null) this.#environment.clearTimeout(this.#timer);
    const socket = this.#socket;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    // Node's ws reports a connection that is closed while opening as an error, and throws one that nobody takes.
    socket.onerror = () => {};
    try {
      socket.close();
    } catch {
      // Closed already.
    }
  }
}
