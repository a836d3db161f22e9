// The demo's event stream: the steps of delivery, each with the rows that it wrote. Read with fetch, because EventSource
// sends no headers.

import { demoFetch, NoDemo } from '../lib/demo.js';

const RETRY_MS = 2000;

export class Stream {
  /** @param {{event: (event: object) => void, open: (isOpen: boolean) => void, refused: () => void}} told */
  constructor(told) {
    Object.assign(this, { told, source: null, users: [], opened: () => {} });
  }

  /** Follows these users instead of those before. Resolves when the server has opened the stream. */
  follow(users) {
    this.close();
    this.users = users;
    const ready = new Promise((resolve) => { this.opened = resolve; });
    this.open();
    return ready;
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
    const answer = await demoFetch(`/demo/events?users=${this.users.map(encodeURIComponent).join()}`, { signal });
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
    // Nobody should wait for a stream that will not be opened.
    this.opened();
  }
}
