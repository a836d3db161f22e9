// Samples the server every two seconds and keeps the samples.

import { parse } from './prometheus.js';
import { collect } from './panels.js';
import { History } from './history.js';

const EVERY_MS = 2_000;
/** A rate needs two samples; the second is taken sooner, so that the page is not empty for long. */
const SECOND_MS = 700;
const MINUTE_MS = 60_000;

export class Watch {
  history = new History();
  now = null;
  ready = null;
  info = null;
  trouble = null;
  #recent = [];
  #timer = 0;
  #running = false;

  /** @param {import('./api.js').Api} api @param {() => void} onLook after each sample, also a failed one */
  constructor(api, onLook) {
    this.api = api;
    this.onLook = onLook;
  }

  start() {
    if (this.#running) return;
    this.#running = true;
    this.#look();
  }

  stop() {
    this.#running = false;
    clearTimeout(this.#timer);
  }

  /** Drops all samples: a locked page shows no data. */
  clear() {
    this.stop();
    this.history = new History();
    this.now = this.ready = this.info = this.trouble = null;
    this.#recent = [];
  }

  /** The sample of a minute ago, or the oldest since. */
  get past() {
    return this.#recent[0] === this.now ? null : this.#recent[0] ?? null;
  }

  async #look() {
    const began = Date.now();
    try {
      const [text, info, ready] = await Promise.all([this.api.text('metrics'), this.api.get('info'), this.api.ready()]);
      if (!this.#running) return;
      this.#keep(parse(text, Date.now()), info, ready);
      this.trouble = null;
    } catch (error) {
      if (!this.#running) return;
      this.trouble = error;
    }
    this.onLook();
    if (this.#running) this.#timer = setTimeout(() => this.#look(), Math.max(200, this.#pause() - (Date.now() - began)));
  }

  #pause() {
    return this.history.times.length === 1 ? SECOND_MS : EVERY_MS;
  }

  #keep(sample, info, ready) {
    // Another process has its own counters: what it counted before the first sample is not a rate.
    const before = this.info && this.info.pid !== info.pid ? null : this.now;
    this.history.add(sample.at, collect(sample, before));
    if (!before) this.#recent = [];
    this.#recent.push(sample);
    while (this.#recent.length > 1 && this.#recent[1].at <= sample.at - MINUTE_MS) this.#recent.shift();
    Object.assign(this, { now: sample, info, ready });
  }
}
