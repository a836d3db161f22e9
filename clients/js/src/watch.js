// Presence: the users that the client watches.

const WATCHED_MAX = 256;
/** Batching delay: each `watch` is answered with the presence of all users. */
const DELAY_MS = 50;

export class Watch {
  #core;
  #enabled;
  /** The users that this session watches. @type {Set<string>} */
  #watched = new Set();
  /** Users who have written since, and may have become visible. @type {Set<string>} */
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

  /** Presence is unknown while offline. */
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
   * A message of a user without known presence: only users who have written are visible, so they are watched again.
   *
   * @param {string} user @returns {boolean} whether more may be visible of them now
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
    // Only users with a common conversation can be watched.
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
