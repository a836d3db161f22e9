// A device that a script drives: the JavaScript client with a fake socket, a fake clock and a storage that outlives it,
// and an application that remembers what it was told.

import { Client, memoryStorage } from '../../js/src/index.js';

const START_MS = 1_800_000_000_000;
/** A client that has not tried to connect by then does not want to. */
const CONNECT_WITHIN_MS = 120_000;
/** Turns of the event loop in which the client has written and stored everything that an event has led to. */
const TURNS = 12;

/** Timers and the time, which pass when the script says so. */
class Clock {
  now = START_MS;
  /** @type {Map<number, {at: number, then: () => void}>} */
  #timers = new Map();
  #last = 0;

  /** @param {() => void} then @param {number} ms */
  setTimeout(then, ms) {
    this.#timers.set(++this.#last, { at: this.now + ms, then });
    return this.#last;
  }

  /** @param {number} timer */
  clearTimeout(timer) {
    this.#timers.delete(timer);
  }

  clear() {
    this.#timers.clear();
  }

  /** Fires the next timer that is due by `end`; false if there is none. @param {number} end */
  fireNext(end) {
    const due = [...this.#timers].filter(([, { at }]) => at <= end).sort(([, a], [, b]) => a.at - b.at)[0];
    if (!due) return false;
    const [timer, { at, then }] = due;
    this.#timers.delete(timer);
    this.now = Math.max(this.now, at);
    then();
    return true;
  }
}

export class Device {
  #start;
  #clock = new Clock();
  #storage;
  /** What the client has stored, as a restart will find it. @type {{rows: Map<string, any>, cursor: string | null}} */
  #stored = { rows: new Map(), cursor: null };
  #tokensUsed = 0;
  /** The socket that the client has asked for last. @type {any} */
  #socket = null;
  /** @type {any[]} */
  #frames = [];
  /** @type {any[]} */
  #told = [];
  /** What the application keeps: its messages by conversation. @type {Map<string, {seq: number, own: boolean}[]>} */
  #messages = new Map();
  #client;

  /** @param {{user: string, device: string, tokens: string[]}} start */
  constructor(start) {
    this.#start = start;
    this.#storage = this.#watched(memoryStorage());
    this.#client = this.#begin();
  }

  close() {
    return this.#client.close();
  }

  /** A storage whose writes the adapter sees: outbox and cursor are what a restart would find. @param {import('../../js/src/index.js').Storage} storage */
  #watched(storage) {
    return {
      open: async (/** @type {string} */ user, /** @type {string | undefined} */ device) => {
        const saved = await storage.open(user, device);
        const { rows } = this.#stored;
        return {
          ...saved,
          put: async (/** @type {any} */ row) => (rows.set(row.id, row), saved.put(row)),
          remove: async (/** @type {string} */ id) => (rows.delete(id), saved.remove(id)),
          keep: async (/** @type {any} */ changes) => {
            if (changes.device) this.#stored.cursor = changes.device.cursor;
            return saved.keep(changes);
          },
        };
      },
    };
  }

  /** A new process of the same device. */
  #begin() {
    const { user, device: id, tokens } = this.#start;
    const device = this;
    class Socket {
      readyState = 0;
      constructor() {
        device.#socket = this;
      }
      /** @param {string} text */
      send(text) {
        const frame = JSON.parse(text);
        // The transport keeps itself alive; scripts are about what goes over it.
        if (frame.type === 'ping') setImmediate(() => this.onmessage?.({ data: '{"type":"pong","server_time":0}' }));
        else device.#frames.push(frame);
      }
      /** @type {((event: {data: string}) => void) | null} */
      onmessage = null;
      close() {
        this.readyState = 3;
      }
    }
    const nextToken = () => tokens[Math.min(this.#tokensUsed++, tokens.length - 1)];
    this.#socket = null;
    const client = new Client({
      url: 'http://conformance.test',
      user,
      device: id,
      token: tokens.length > 1 ? nextToken : tokens[0],
      storage: this.#storage,
      // With it the client keeps its cursor across restarts: the application stores what it is given.
      receive: () => {},
      random: () => 0,
      now: () => this.#clock.now,
      setTimeout: (then, ms) => this.#clock.setTimeout(then, ms),
      clearTimeout: (timer) => this.#clock.clearTimeout(timer),
      WebSocket: /** @type {any} */ (Socket),
    });
    client.on('message', (message) => {
      this.#told.push({ message: message.conversationId, seq: message.seq });
      this.#keep(message);
    });
    client.on('sent', (message) => {
      this.#told.push({ sent: message.clientMsgId, seq: message.seq });
      this.#keep(message);
    });
    client.on('failed', (message, { code }) => this.#told.push({ failed: message.clientMsgId, code }));
    client.on('reset', () => this.#told.push({ reset: true }));
    client.on('error', () => {});
    client.connect();
    return client;
  }

  /** @param {import('../../js/src/index.js').Message} message */
  #keep({ conversationId, seq, own }) {
    const messages = this.#messages.get(conversationId) ?? [];
    this.#messages.set(conversationId, [...messages, { seq: Number(seq), own }]);
  }

  /** @param {any} event @returns {Promise<any>} */
  async apply(event) {
    const sent = await this.#happen(event);
    await settle();
    const report = { frames: this.#frames, told: this.#told, client_msg_id: sent?.clientMsgId, state: this.#state() };
    this.#frames = [];
    this.#told = [];
    return report;
  }

  /** @param {any} event */
  async #happen(event) {
    switch (event.event) {
      case 'start': return undefined;
      case 'connected': return void (await this.#connected());
      case 'frames': return event.frames.forEach((/** @type {any} */ frame) => this.#open.onmessage?.({ data: JSON.stringify(frame) }));
      case 'lost': return this.#open.onclose?.({ code: 1006, reason: '' });
      case 'restart': return void (await this.#restart());
      case 'wipe': return void (await this.#wipe());
      case 'wait': return void (await this.#wait(event.ms));
      case 'send': return this.#client.send(event.to, { body: event.body, ...(event.client_msg_id && { clientMsgId: event.client_msg_id }) });
      case 'read': return this.#conversation(event).read(event.seq);
      case 'load': return void this.#conversation(event).load().catch(() => {});
      default: throw new Error(`unknown event "${event.event}"`);
    }
  }

  /** @param {{conversation_id: string}} event */
  #conversation({ conversation_id: id }) {
    return this.#client.conversation(id.split('~').find((user) => user !== this.#start.user) ?? '');
  }

  get #open() {
    if (this.#socket?.readyState !== 1) throw new Error('the connection is not open');
    return this.#socket;
  }

  get #wantsConnection() {
    return this.#socket?.readyState === 0;
  }

  /** Lets time pass until the client opens a socket, and accepts it. */
  async #connected() {
    await settle();
    const end = this.#clock.now + CONNECT_WITHIN_MS;
    while (!this.#wantsConnection && this.#clock.fireNext(end)) await settle();
    if (!this.#wantsConnection) throw new Error('the client does not want to connect');
    this.#socket.readyState = 1;
    this.#socket.onopen?.();
  }

  /** The process ends at once; what it had stored is there for the next. */
  async #restart() {
    const old = this.#client;
    this.#socket?.close();
    this.#frames = [];
    await settle();
    await old.close();
    this.#clock.clear();
    this.#frames = [];
    this.#told = [];
    this.#client = this.#begin();
  }

  /** Everything that the device has stored is lost. */
  async #wipe() {
    this.#storage = this.#watched(memoryStorage());
    this.#messages.clear();
    await this.#restart();
    this.#stored.rows.clear();
    this.#stored.cursor = null;
  }

  /** @param {number} ms */
  async #wait(ms) {
    const end = this.#clock.now + ms;
    while (this.#clock.fireNext(end)) await settle();
    this.#clock.now = end;
  }

  #state() {
    const client = this.#client;
    const rows = [...this.#stored.rows.values()].sort((a, b) => a.n - b.n).map(({ id }) => id);
    const failed = client.conversations.flatMap(({ messages }) => messages.filter(({ tick }) => tick === 'failed'));
    const failedIds = failed.map(({ clientMsgId }) => clientMsgId);
    const conversations = [...this.#messages].map(([id, messages]) => [id, this.#visible(id, messages)]);
    return {
      connection: this.#connection(),
      cursor: this.#stored.cursor,
      outbox: rows.filter((id) => !failedIds.includes(id)),
      failed: failedIds,
      conversations: Object.fromEntries(conversations),
    };
  }

  #connection() {
    const { state, caughtUp } = this.#client;
    if (state === 'online') return caughtUp ? 'live' : 'draining';
    return state;
  }

  /** @param {string} id @param {{seq: number, own: boolean}[]} messages */
  #visible(id, messages) {
    const conversation = this.#conversation({ conversation_id: id });
    const { peerRead, peerDelivered, unread } = conversation;
    const tick = (/** @type {{seq: number, own: boolean}} */ { seq, own }) => {
      if (!own) return 'received';
      if (seq <= peerRead) return 'read';
      return seq <= peerDelivered ? 'delivered' : 'sent';
    };
    const sorted = [...messages].sort((a, b) => a.seq - b.seq);
    return { messages: sorted.map((message) => ({ seq: message.seq, tick: tick(message) })), unread };
  }
}

async function settle() {
  for (let turn = 0; turn < TURNS; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
