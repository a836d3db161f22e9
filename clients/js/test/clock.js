// A clock that moves when a test says so.

export class FakeClock {
  #now = 1_800_000_000_000;
  #timers = new Map();
  #last = 0;

  /** To be spread into a client's options. */
  get options() {
    return {
      now: () => this.#now,
      setTimeout: (then, ms) => {
        this.#timers.set(++this.#last, { at: this.#now + ms, then });
        return this.#last;
      },
      clearTimeout: (timer) => void this.#timers.delete(timer),
    };
  }

  get now() {
    return this.#now;
  }

  /** The waits that are under way, shortest first. */
  get waits() {
    return [...this.#timers.values()].map(({ at }) => at - this.#now).sort((a, b) => a - b);
  }

  advance(ms) {
    const end = this.#now + ms;
    for (;;) {
      const due = [...this.#timers].filter(([, { at }]) => at <= end).sort(([, a], [, b]) => a.at - b.at)[0];
      if (!due) break;
      const [id, { at, then }] = due;
      this.#timers.delete(id);
      this.#now = at;
      then();
    }
    this.#now = end;
  }
}
