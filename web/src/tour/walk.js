// The walk through a story: Next does one step, Play goes on by itself, Stop ends it. The stories act with the real
// phones, so a step is over when the server has done it and the timeline has shown it.

import { make, setAttr, setText } from '../lib/dom.js';
import { prose } from './telling.js';
import { STORIES } from './stories.js';

/** Time to read a caption: a moment, and so much for each character. */
const readingMs = (text) => 1500 + 32 * text.length;

/** The visitor may have done by hand what a step waits for. If nothing happens for so long, the walk goes on. */
const GIVE_UP_MS = 5000;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Walk {
  /** @param {{stage: () => object, begin: (story: object) => void, end: () => void, settled: () => Promise<void>, quiet: (ms: number) => Promise<void>, point: (tables: string[]) => void}} page */
  constructor(root, page) {
    Object.assign(this, { root, page, story: null, at: -1, busy: false, playing: false, trip: 0 });
    this.choices = STORIES.map((story, n) => make('button', { type: 'button', class: n ? 'press' : 'press strong', 'data-story': story.id, onclick: () => this.start(story) }, n ? story.name : `Show me: ${story.name}`));
    this.menu = make('div', { class: 'menu' }, this.choices,
      make('p', { class: 'hint' }, 'Under a minute each, with the real phones. Or write on the phones yourself, and switch one off.'));
    this.title = make('strong');
    this.caption = make('span');
    this.where = make('span', { class: 'where' });
    this.text = make('p', { class: 'caption', role: 'status' }, this.title, ' ', this.caption);
    this.next = make('button', { type: 'button', class: 'press strong next', onclick: () => this.step() }, 'Next');
    this.play = make('button', { type: 'button', class: 'press play', onclick: () => this.togglePlay() }, 'Play');
    this.stop = make('button', { type: 'button', class: 'press stop', onclick: () => this.end() }, 'Stop');
    this.told = make('div', { class: 'told', hidden: true }, this.where, this.text, make('div', { class: 'keys' }, this.next, this.play, this.stop));
    root.append(this.menu, this.told);
    this.draw();
  }

  get last() { return this.story !== null && this.at === this.story.steps.length - 1; }

  async start(story) {
    this.trip += 1;
    Object.assign(this, { story, at: -1, playing: false, busy: false });
    this.draw();
    this.next.focus();
    this.page.begin(story);
    await this.step();
  }

  /** Does the next step; after the last one, ends the story. */
  async step() {
    if (this.busy || !this.story) return;
    if (this.last) { this.end(); return; }
    const { trip } = this;
    this.at += 1;
    this.busy = true;
    this.draw();
    const step = this.story.steps[this.at];
    this.page.point(step.watch ?? []);
    await Promise.race([this.act(step), this.page.quiet(GIVE_UP_MS)]);
    if (trip !== this.trip) return;
    this.busy = false;
    this.draw();
    if (this.playing) this.goOn(trip, step);
  }

  async act(step) {
    try {
      await step.act?.(this.page.stage());
    } catch { /* the phone says what is wrong; the walk goes on */ }
    await this.page.settled();
  }

  async goOn(trip, step) {
    const { at } = this;
    await sleep(readingMs(step.caption));
    if (trip !== this.trip || !this.playing || this.at !== at) return;
    if (this.last) { this.playing = false; this.draw(); return; }
    this.step();
  }

  togglePlay() {
    this.playing = !this.playing;
    this.draw();
    if (this.playing && !this.busy) this.step();
  }

  end() {
    if (!this.story) return;
    const { id } = this.story;
    this.trip += 1;
    Object.assign(this, { story: null, at: -1, busy: false, playing: false });
    this.page.end();
    this.draw();
    this.choices.find((button) => button.dataset.story === id).focus();
  }

  draw() {
    const step = this.story?.steps[this.at];
    this.root.dataset.walk = !this.story ? 'none' : this.busy ? 'busy' : this.last ? 'done' : 'ready';
    setAttr(this.root, 'data-at', this.story ? this.at : null);
    this.menu.hidden = this.story !== null;
    this.told.hidden = this.story === null;
    if (!this.story) return;
    setText(this.where, step ? `${this.at + 1}/${this.story.steps.length}` : '');
    if (this.drawn !== step) {
      this.drawn = step;
      setText(this.title, step?.title ?? this.story.name);
      this.caption.replaceChildren(...prose(step?.caption ?? ''));
    }
    setText(this.next, this.last ? 'Done' : 'Next');
    setAttr(this.next, 'aria-disabled', this.busy ? 'true' : null);
    setText(this.play, this.playing ? 'Pause' : 'Play');
    setAttr(this.play, 'hidden', this.last && !this.busy);
    setText(this.stop, 'Stop');
    setAttr(this.stop, 'hidden', this.last && !this.busy);
  }
}
