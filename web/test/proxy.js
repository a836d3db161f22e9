// A proxy that simulates a bad network: it can hold bytes back, delay them, and cut every connection.

import net from 'node:net';

/**
 * Passes on to `port` of this machine.
 * `hold('up'|'down'|'both')` keeps what comes from now on (up: from the browser), `release()` lets it go in order;
 * `delay(ms)` slows each piece; `cut()` ends every connection and refuses new ones until `mend()`; `drop()` ends them
 * once.
 */
export async function startProxy(port) {
  const proxy = new Proxy(port);
  await proxy.start();
  return proxy;
}

class Proxy {
  constructor(target) {
    this.target = target;
    this.lines = new Set();
    this.held = { up: false, down: false };
    this.slow = 0;
    this.broken = false;
  }

  async start() {
    this.server = net.createServer((browser) => this.#join(browser));
    await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    this.port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.port}`;
  }

  #join(browser) {
    if (this.broken) return browser.resetAndDestroy();
    const server = net.connect(this.target, '127.0.0.1');
    const line = { sockets: [browser, server], up: [], down: [] };
    this.lines.add(line);
    for (const socket of line.sockets) {
      socket.setNoDelay(true);
      socket.on('error', () => this.#end(line));
      socket.on('close', () => this.#end(line));
    }
    browser.on('data', (bytes) => this.#pass(line, 'up', server, bytes));
    server.on('data', (bytes) => this.#pass(line, 'down', browser, bytes));
  }

  /** Bytes of one direction stay in order: held ones go first. */
  #pass(line, way, to, bytes) {
    line[way].push({ to, bytes, at: Date.now() + this.slow });
    this.#flush(line, way);
  }

  #flush(line, way) {
    while (line[way].length > 0 && !this.held[way]) {
      const wait = line[way][0].at - Date.now();
      if (wait > 0) {
        setTimeout(() => this.#flush(line, way), wait);
        return;
      }
      const { to, bytes } = line[way].shift();
      to.write(bytes);
    }
  }

  #end(line) {
    this.lines.delete(line);
    for (const socket of line.sockets) socket.destroy();
  }

  get connections() {
    return this.lines.size;
  }

  hold(way = 'both') {
    for (const one of way === 'both' ? ['up', 'down'] : [way]) this.held[one] = true;
  }

  release() {
    this.held = { up: false, down: false };
    for (const line of this.lines) for (const way of ['up', 'down']) this.#flush(line, way);
  }

  delay(ms) {
    this.slow = ms;
  }

  drop() {
    for (const line of [...this.lines]) {
      line.sockets[0].resetAndDestroy();
      this.#end(line);
    }
  }

  cut() {
    this.broken = true;
    this.drop();
  }

  mend() {
    this.broken = false;
  }

  async close() {
    this.cut();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
