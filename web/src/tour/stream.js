// The server's event stream of the demo. Asked with a pace, the server itself waits so long after each step while the
// stream is open: rows and phones move in slow motion together.

const RETRY_MS = 2000;

export class Stream {
  /** @param {{event: (event: object) => void, open: (isOpen: boolean) => void}} told */
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

  open() {
    const names = this.users.map(encodeURIComponent).join();
    const source = new EventSource(`/demo/events?users=${names}${this.pace ? `&pace=${this.pace}` : ''}`);
    this.source = source;
    source.addEventListener('open', () => { this.opened(); this.told.open(true); });
    source.addEventListener('message', ({ data }) => this.told.event(JSON.parse(data)));
    source.addEventListener('error', () => { this.told.open(false); this.retry(source); });
  }

  /** The browser comes back by itself after a loss, and not after a refusal. */
  retry(source) {
    if (source.readyState !== EventSource.CLOSED) return;
    setTimeout(() => { if (source === this.source) this.open(); }, RETRY_MS);
  }

  close() {
    this.source?.close();
    this.source = null;
    // Nobody should wait for what will not come.
    this.opened();
  }
}
