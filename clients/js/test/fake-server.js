// A server that does what a test tells it to. Without being told anything it greets, stores and confirms; every frame of
// the client's is on record, and any kind of frame can be given another answer.

import { createServer } from 'node:http';
import { once } from 'node:events';
import { WebSocketServer } from 'ws';

/** Longer than anything takes here, shorter than patience. */
const PATIENCE_MS = 15_000;

export class FakeServer {
  /** Everything that clients said, oldest first: {session, frame}. */
  heard = [];
  /** Sessions in the order in which they came. */
  sessions = [];
  /** What `welcome` says besides the usual. */
  welcome = {};
  /** What `caught_up` says. */
  cursor = '1000';
  heads = [];
  user = 'bob';
  /** Answers by the type of frame, in place of the usual ones. @type {Record<string, (frame: any, session: Session) => void>} */
  on = {};
  /** Answers to HTTP requests. @type {(request: {method: string, url: string, body: Buffer, headers: any}) => {status: number, body?: any, headers?: any} | Promise<any>} */
  http = () => ({ status: 404, body: { error: { code: 'not_found', message: 'nothing here' } } });
  stored = [];
  /** Whether hellos are answered. */
  greets = true;
  #waiting = new Set();
  #http;

  static async start() {
    const server = new FakeServer();
    server.#http = createServer((request, response) => void server.#answerHttp(request, response));
    const sockets = new WebSocketServer({ server: server.#http });
    sockets.on('connection', (socket) => server.sessions.push(new Session(server, socket)));
    server.#http.listen(0, '127.0.0.1');
    await once(server.#http, 'listening');
    server.url = `http://127.0.0.1:${server.#http.address().port}`;
    return server;
  }

  async #answerHttp(request, response) {
    const chunks = [];
    try {
      for await (const chunk of request) chunks.push(chunk);
    } catch {
      return; // The client has taken it back.
    }
    const { method, url, headers } = request;
    const { status, body, headers: given = {} } = await this.http({ method, url, headers, body: Buffer.concat(chunks) });
    response.writeHead(status, given);
    response.end(body === undefined ? undefined : JSON.stringify(body));
  }

  get session() {
    return this.sessions[this.sessions.length - 1];
  }

  frames(type) {
    return this.heard.map(({ frame }) => frame).filter((frame) => frame.type === type);
  }

  record(session, frame) {
    this.heard.push({ session, frame });
    for (const wake of [...this.#waiting]) wake();
  }

  /** Waits until the clients have said this many frames of a type; gives the last of them. */
  async until(type, count = 1) {
    await this.when(() => this.frames(type).length >= count, `${count} of '${type}'`);
    return this.frames(type)[count - 1];
  }

  async when(holds, what) {
    const end = Date.now() + PATIENCE_MS;
    while (!holds()) {
      if (Date.now() > end) throw new Error(`waited in vain for ${what}; heard ${JSON.stringify(this.heard.map(({ frame }) => frame))}`);
      await new Promise((resolve) => {
        const wake = () => (this.#waiting.delete(wake), resolve());
        this.#waiting.add(wake);
        setTimeout(wake, 20);
      });
    }
  }

  async close() {
    for (const session of this.sessions) session.cut();
    this.#http.closeAllConnections();
    this.#http.close();
  }
}

class Session {
  #server;
  #socket;

  constructor(server, socket) {
    this.#server = server;
    this.#socket = socket;
    this.id = `session-${server.sessions.length + 1}`;
    socket.on('message', (data) => this.#hear(JSON.parse(String(data))));
    socket.on('error', () => {});
  }

  #hear(frame) {
    this.#server.record(this, frame);
    const answer = this.#server.on[frame.type] ?? usual[frame.type];
    answer?.(frame, this, this.#server);
  }

  send(frame) {
    this.#socket.send(JSON.stringify(frame));
  }

  /** A message of somebody's; in `alice~bob` by alice, if not told otherwise. */
  message(seq, more = {}) {
    const sender = more.sender ?? 'alice';
    this.send({ type: 'message', ...message(seq, { ...more, sender }) });
  }

  error(ref, code, more = {}) {
    this.send({ type: 'error', ref, code, message: code, ...more });
  }

  bye(code, reconnect_after_ms = 0) {
    this.send({ type: 'bye', code, reason: `because of ${code}`, reconnect_after_ms });
    this.#socket.close(4000);
  }

  /** The connection breaks without a word. */
  cut() {
    this.#socket.terminate();
  }

  greet() {
    const { user, welcome } = this.#server;
    const base = { user_id: user, device: 'd', session_id: this.id, server_time: 1, heartbeat_secs: 20, max_body_bytes: 16384 };
    this.send({ type: 'welcome', ...base, ...welcome });
  }

  caughtUp(cursor = this.#server.cursor, heads = this.#server.heads) {
    this.send({ type: 'caught_up', cursor, heads });
  }
}

/** A message as it is in `message` and `history`. */
export function message(seq, { sender = 'alice', conversation_id = 'alice~bob', ...more } = {}) {
  const [one, other] = conversation_id.split('~');
  const receiver = sender === one ? other : one;
  const base = { conversation_id, seq, message_id: String(1000 + seq), client_msg_id: `${sender}-${seq}`, sender, receiver };
  return { ...base, body: `m${seq}`, ts: 1_700_000_000_000 + seq, ...more };
}

export function inboxEntry(peer, more = {}) {
  const [one, other] = [peer, 'bob'].sort();
  return {
    conversation_id: `${one}~${other}`,
    peer: { user_id: peer, name: peer.toUpperCase(), avatar_url: null },
    last_message_preview: 'last',
    last_message_ts: 5,
    last_seq: 1,
    last_sender: peer,
    unread_count: 0,
    peer_status: { last_delivered_seq: 0, last_read_seq: 0 },
    ...more,
  };
}

const usual = {
  hello: (frame, session, server) => {
    if (!server.greets) return;
    session.greet();
    session.caughtUp();
  },
  inbox: ({ ref }, session) => session.send({ type: 'inbox', ref, conversations: [], next: null }),
  history: ({ ref }, session) => session.error(ref, 'not_found'),
  status: ({ ref }, session) => session.error(ref, 'not_found'),
  read: ({ ref }, session) => session.send({ type: 'done', ref }),
  auth: ({ ref }, session) => session.send({ type: 'done', ref }),
  ping: (frame, session) => session.send({ type: 'pong', server_time: 1 }),
  send: (frame, session, server) => {
    const known = server.stored.find(({ client_msg_id }) => client_msg_id === frame.client_msg_id);
    if (!known) server.stored.push(frame);
    const seq = server.stored.indexOf(known ?? frame) + 1;
    const conversation_id = ['bob', frame.to].sort().join('~');
    const { ref, client_msg_id } = frame;
    session.send({ type: 'sent', ref, client_msg_id, conversation_id, seq, message_id: String(2000 + seq), ts: 7, duplicate: Boolean(known) });
  },
};
