// The server's event stream of the demo. Asked with a pace, the server itself waits so long after each step while the
// stream is open: rows and phones move in slow motion together.

const RETRY_MS = 2000;

export class Stream {
  /** @param {{event: (event: object) => void, open: (isOpen: boolean) => void}} told */
  constructor(told) {
    Object.assign(this, { told, source: null, users: [], pace: 0 });
  }

  /** Opens the stream anew if anything about it is new. Resolves when the server has it. */
  follow(users, pace) {
    if (this.source && pace === this.pace && users.join() === this.users.join()) return this.ready;
    this.close();
    Object.assign(this, { users, pace });
    const address = `/demo/events?users=${users.map(encodeURIComponent).join()}${pace ? `&pace=${pace}` : ''}`;
    const source = new EventSource(address);
    this.source = source;
    this.ready = new Promise((resolve) => { source.addEventListener('open', () => resolve(), { once: true }); });
    source.addEventListener('open', () => this.told.open(true));
    source.addEventListener('error', () => { this.told.open(false); this.retry(source); });
    source.addEventListener('message', ({ data }) => this.told.event(JSON.parse(data)));
    return this.ready;
  }

  /** The browser comes back by itself after a loss, and not after a refusal. */
  retry(source) {
    if (source.readyState !== EventSource.CLOSED) return;
    setTimeout(() => {
      if (source !== this.source) return;
      this.source = null;
      this.follow(this.users, this.pace);
    }, RETRY_MS);
  }

  close() {
    this.source?.close();
    this.source = null;
  }
}
