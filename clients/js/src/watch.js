// Presence: whose coming and going the client hears of.

const WATCHED_MAX = 256;
/** Changes of the list come in bursts; each watch is answered with everybody's presence. */
const DELAY_MS = 50;

export class Watch {
  #core;
  #enabled;
  /** Whom this session watches. @type {Set<string>} */
  #watched = new Set();
  /** Of whom a message has come since, which may let them be seen. @type {Set<string>} */
  #heard = new Set();
  /** @type {unknown} */
  #timer = null;

  /** @param {import('./core.js').Core} core @param {boolean} enabled */
  constructor(core, enabled) {
    this.#core = core;
    this.#enabled = enabled;
  }

  connected() {
    this.soon();
  }

  /** What was known is not known any more. */
  disconnected() {
    if (this.#timer !== null) this.#core.environment.clearTimeout(this.#timer);
    this.#timer = null;
    this.#watched = new Set();
    this.#heard = new Set();
    for (const conversation of this.#core.conversations.values()) if (conversation.presence) conversation._present(null);
  }

  soon() {
    if (!this.#enabled || this.#timer !== null || !this.#core.sync.isUp) return;
    this.#timer = this.#core.environment.setTimeout(() => {
      this.#timer = null;
      this.#say();
    }, DELAY_MS);
  }

  /**
   * A message of somebody who looks as if they had never been there: only who has written can be seen, so they are watched
   * once more.
   * @param {string} user @returns {boolean} whether more may be known of them now
   */
  heard(user) {
    const { presence } = this.#core.conversation(user);
    if (!presence || presence.online || presence.lastSeen !== null || this.#heard.has(user)) return false;
    this.#heard.add(user);
    this.#watched.delete(user);
    this.soon();
    return true;
  }

  #say() {
    if (!this.#core.sync.isUp) return;
    // Only who has written can be watched: of a conversation without a message nobody has.
    const known = [...this.#core.conversations.values()].filter(({ lastSeq }) => lastSeq > 0);
    known.sort((a, b) => Number(b.loaded) - Number(a.loaded) || b.lastTs - a.lastTs);
    const users = known.slice(0, WATCHED_MAX).map(({ peer }) => peer.userId);
    if (users.length === this.#watched.size && users.every((user) => this.#watched.has(user))) return;
    this.#watched = new Set(users);
    this.#core.write({ type: 'watch', users });
  }

  /** @param {import('./thread.js').Frame} frame */
  told(frame) {
    if (frame.user_id === this.#core.user) return;
    this.#core.conversation(frame.user_id)._present({ online: frame.online, lastSeen: frame.last_seen ?? null });
  }
}
