// The WebSocket of a phone on this page. Frames that change what the phone shows wait in the timeline, so that the phone
// and the steps are replayed together. The phone holds a message as soon as its frame is here, so the ack goes out at once;
// the client's own ack, when the message is shown, changes nothing any more.

/** The connection itself depends on these: they do not wait. */
const AT_ONCE = new Set(['welcome', 'pong', 'bye', 'error']);

/**
 * A class that the SDK takes in place of WebSocket.
 * @param {import('./timeline.js').Timeline} timeline
 * @param {string} user whose phone it is
 * @param {object} owner of the frames, for the timeline's `flush`
 */
export function replayedSocket(timeline, user, owner, Socket = globalThis.WebSocket) {
  return class ReplayedSocket {
    constructor(url) {
      this.socket = new Socket(url);
      this.socket.onopen = (event) => this.onopen?.(event);
      this.socket.onclose = (event) => this.onclose?.(event);
      this.socket.onerror = (event) => this.onerror?.(event);
      this.socket.onmessage = (event) => this.received(event);
    }

    get readyState() { return this.socket.readyState; }
    send(data) { this.socket.send(data); }
    close() { this.socket.close(); }

    received(event) {
      const frame = JSON.parse(event.data);
      if (frame.type === 'message' && frame.sender !== user) {
        this.send(JSON.stringify({ type: 'ack', conversation_id: frame.conversation_id, seq: frame.seq }));
      }
      if (AT_ONCE.has(frame.type)) this.onmessage?.(event);
      else timeline.addFrame(owner, () => this.onmessage?.(event));
    }
  };
}
