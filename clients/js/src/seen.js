// The seqs of one conversation that this device has, as a few ranges.

/** Beyond this many ranges, the lowest is dropped. A very old message may then be shown twice, but none is ever hidden. */
const RANGES_MAX = 256;

/**
 * The received seqs, and the seq up to which nothing more is expected (`settled`). The two differ: a new device expects
 * nothing before its first message, but has not received it either; and a void seq is settled without a message. Only
 * received seqs count as duplicates.
 *
 * @typedef {{settled: number | null, ranges: [number, number][]}} SavedSeen
 */
export class Seen {
  /** @type {number | null} */
  #settled;
  /** @type {[number, number][]} */
  #ranges;

  /** @param {SavedSeen} [saved] */
  constructor(saved) {
    this.#settled = saved?.settled ?? null;
    this.#ranges = (saved?.ranges ?? []).map(([start, end]) => [start, end]);
  }

  /** @param {number[]} [pending] received but not stored by the application yet: a restart must receive them again @returns {SavedSeen} */
  save(pending = []) {
    if (pending.length > 0) {
      const held = new Seen(this.save());
      for (const seq of pending) held.#remove(seq);
      return held.save();
    }
    return { settled: this.#settled, ranges: this.#ranges.map(([start, end]) => [start, end]) };
  }

  get settled() {
    return this.#settled ?? 0;
  }

  /** Settles up to `before`, if nothing is settled yet. @param {number} before */
  found(before) {
    if (this.#settled === null) this.settle(before);
  }

  /** Nothing more is expected up to `seq`. @param {number} seq */
  settle(seq) {
    this.#settled = Math.max(this.settled, seq);
    const next = this.#settled + 1;
    const range = this.#ranges[this.#firstEndingAt(next)];
    if (range && range[0] <= next) this.#settled = range[1];
  }

  /** @param {number} seq */
  contains(seq) {
    const range = this.#ranges[this.#firstEndingAt(seq)];
    return range !== undefined && range[0] <= seq;
  }

  /** Adds a received seq. Returns false if it was there already. @param {number} seq */
  insert(seq) {
    if (this.contains(seq)) return false;
    const ranges = this.#ranges;
    const at = this.#firstEndingAt(seq);
    const left = ranges[at - 1];
    const right = ranges[at];
    const joinsLeft = left !== undefined && left[1] + 1 === seq;
    const joinsRight = right !== undefined && seq + 1 === right[0];
    if (joinsLeft && joinsRight) {
      left[1] = right[1];
      ranges.splice(at, 1);
    } else if (joinsLeft) left[1] = seq;
    else if (joinsRight) right[0] = seq;
    else ranges.splice(at, 0, [seq, seq]);
    if (ranges.length > RANGES_MAX) {
      const [[, end]] = ranges.splice(0, 1);
      this.#settled = Math.max(this.settled, end);
    }
    if (this.#settled !== null) this.settle(this.#settled);
    return true;
  }

  /** Expects the seq again. @param {number} seq */
  #remove(seq) {
    if (this.#settled !== null) this.#settled = Math.min(this.#settled, seq - 1);
    if (!this.contains(seq)) return;
    const at = this.#firstEndingAt(seq);
    const [start, end] = this.#ranges[at];
    /** @type {[number, number][]} */
    const rest = [[start, seq - 1], [seq + 1, end]];
    this.#ranges.splice(at, 1, ...rest.filter(([from, to]) => from <= to));
  }

  /** Whether a message before `seq` is missing. @param {number} seq */
  lacksBefore(seq) {
    return this.#settled !== null && seq > this.#settled + 1;
  }

  /** @param {number} seq */
  #firstEndingAt(seq) {
    let low = 0;
    let high = this.#ranges.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#ranges[middle][1] < seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
