// The server's event stream of the demo. Asked with a pace, the server itself waits so long after each step while the
// stream is open: rows and phones move in slow motion together. Read with fetch, because EventSource sends no headers.

import { demoFetch, NoDemo } from '../lib/demo.js';

const RETRY_MS = 2000;

export class Stream {
  /** @param {{event: (event: object) => void, open: (isOpen: boolean) => void, refused: () => void}} told */
  constructor(told) {
    Object.assign(this, { told, source: null, users: [], pace: 0, opened: () => {} });
  }

  /** Follows these users at this pace, in place of those before. Resolves when the server has the stream. */
  follow(users, pace) {
    if (this.source && pace === this.pace && users.join() === this.users.join()) return this.ready;
    this.close();
    Object.assign(this, { users, pace });
    this.ready = new Promise((resolve) => { this.opened = resolve; });
    this.open();
    return this.ready;
  }

  /** Reads until the stream ends or is closed; one that ended is opened again. */
  async open() {
    const source = new AbortController();
    this.source = source;
    try {
      await this.read(source.signal);
    } catch (error) {
      if (error instanceof NoDemo && source === this.source) { this.told.refused(); return; }
    }
    if (source !== this.source) return;
    this.told.open(false);
    setTimeout(() => { if (source === this.source) this.open(); }, RETRY_MS);
  }

  async read(signal) {
    const names = this.users.map(encodeURIComponent).join();
    const answer = await demoFetch(`/demo/events?users=${names}${this.pace ? `&pace=${this.pace}` : ''}`, { signal });
    if (!answer.ok) throw new Error(`the steps: ${answer.status}`);
    this.opened();
    this.told.open(true);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) return;
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      for (const event of events) {
        const data = event.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5)).join('\n');
        if (data) this.told.event(JSON.parse(data));
      }
    }
  }

  close() {
    this.source?.abort();
    this.source = null;
    // Nobody should wait for what will not come.
    this.opened();
  }
}
