// A TCP proxy that cuts connections at bad moments. It reads along: the text of the WebSocket's frames is not compressed,
// the server's is plain, and the client's masks are undone.

import { createServer, connect } from 'node:net';
import { once } from 'node:events';

export class CutProxy {
  /** Asked for each frame that passes: true cuts the connection, `before` without passing it on. @type {(direction: 'up' | 'down', frame: any) => false | 'before' | 'after'} */
  cutAt = () => false;
  cuts = 0;
  #server;
  #target;
  #pairs = new Set();

  static async start(target) {
    const proxy = new CutProxy();
    proxy.#target = new URL(target);
    proxy.#server = createServer((client) => proxy.#join(client));
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    proxy.url = `http://127.0.0.1:${proxy.#server.address().port}`;
    return proxy;
  }

  #join(client) {
    const server = connect(Number(this.#target.port), this.#target.hostname);
    const pair = { client, server };
    this.#pairs.add(pair);
    const end = () => this.#end(pair);
    for (const socket of [client, server]) socket.on('error', end).on('close', end);
    client.on('data', this.#through('up', pair, server));
    server.on('data', this.#through('down', pair, client));
  }

  /** Passes frames on one by one, so that a cut falls between two of them. */
  #through(direction, pair, to) {
    let rest = Buffer.alloc(0);
    let upgraded = false;
    return (data) => {
      rest = Buffer.concat([rest, data]);
      if (!upgraded) {
        const end = rest.indexOf('\r\n\r\n');
        // Requests that are no WebSocket pass as they are.
        if (end < 0 || !/upgrade: websocket/i.test(rest.subarray(0, end).toString())) return void (to.write(rest), (rest = Buffer.alloc(0)));
        to.write(rest.subarray(0, end + 4));
        rest = rest.subarray(end + 4);
        upgraded = true;
      }
      for (let frame = parse(rest); frame && this.#pairs.has(pair); frame = parse(rest)) {
        const bytes = rest.subarray(0, frame.length);
        rest = rest.subarray(frame.length);
        const cut = frame.json ? this.cutAt(direction, frame.json) : false;
        if (cut !== 'before') to.write(bytes);
        if (cut) this.#cut(pair, to);
      }
    };
  }

  #cut(pair, to) {
    this.cuts += 1;
    // What was passed on before still arrives: the cut is after it.
    to.end();
    this.#end(pair, to);
  }

  #end(pair, except) {
    if (!this.#pairs.delete(pair)) return;
    for (const socket of [pair.client, pair.server]) if (socket !== except) socket.destroy();
  }

  /** Cuts every connection there is. */
  cutAll() {
    for (const pair of [...this.#pairs]) {
      this.cuts += 1;
      this.#end(pair);
    }
  }

  close() {
    this.cutAll();
    this.#server.close();
  }
}

/** The first whole WebSocket frame in the bytes, if there is one. */
function parse(bytes) {
  if (bytes.length < 2) return null;
  const masked = (bytes[1] & 0x80) !== 0;
  let size = bytes[1] & 0x7f;
  let at = 2;
  if (size === 126) {
    if (bytes.length < 4) return null;
    size = bytes.readUInt16BE(2);
    at = 4;
  } else if (size === 127) {
    if (bytes.length < 10) return null;
    size = Number(bytes.readBigUInt64BE(2));
    at = 10;
  }
  const mask = masked ? bytes.subarray(at, at + 4) : null;
  if (masked) at += 4;
  if (bytes.length < at + size) return null;
  const payload = Buffer.from(bytes.subarray(at, at + size));
  if (mask) for (let n = 0; n < size; n += 1) payload[n] ^= mask[n & 3];
  // A long message may come in several frames: those pass unread.
  const whole = bytes[0] === 0x81;
  return { length: at + size, json: whole ? JSON.parse(payload.toString()) : null };
}
