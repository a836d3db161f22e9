// The recent samples: one list of times, and for each series a list of values of the same length.

const KEPT_MS = 15 * 60_000;

export class History {
  times = [];
  #series = new Map();

  /** @param {Map<string, number|null>} values by series; a missing series gets null */
  add(at, values) {
    for (const name of values.keys()) {
      if (!this.#series.has(name)) this.#series.set(name, this.times.map(() => null));
    }
    this.times.push(at);
    for (const [name, list] of this.#series) list.push(values.get(name) ?? null);
    const old = this.times.findIndex((time) => time >= at - KEPT_MS);
    if (old > 0) for (const list of [this.times, ...this.#series.values()]) list.splice(0, old);
  }

  /** The values of a series, as long as `times`. */
  of(name) {
    return this.#series.get(name) ?? this.times.map(() => null);
  }

  names(prefix) {
    return [...this.#series.keys()].filter((name) => name.startsWith(prefix));
  }

  /** The newest value that is not null, if it is not older than `ms`. */
  last(name, ms = Infinity) {
    const values = this.of(name);
    const newest = this.times.at(-1);
    for (let i = values.length - 1; i >= 0 && this.times[i] >= newest - ms; i -= 1) {
      if (values[i] !== null) return values[i];
    }
    return null;
  }
}
