// The text of each step, and a user's live steps.

import { make, setText } from '../lib/dom.js';
import { timeToTheMs } from './format.js';

const KEPT = 200;
const AGAIN_MS = 3_000;

/** The text of each step. A step that is not listed is shown by its name. */
export const STEPS = {
  looked_up: 'receiver looked up',
  stored: 'stored',
  pending_row: 'pending row written',
  looked_again: 'looked up again',
  handed_over: 'handed to a live session',
  sent: 'sender told: one tick',
  pushed: 'notified',
  notified: 'notified',
  registered: 'session registered',
  drained: 'drained to the device',
  written: 'written to the device',
  caught_up: 'device caught up',
  acked: 'acked: two ticks',
  read: 'read: blue ticks',
  row_gone: 'pending row deleted',
  unregistered: 'session gone',
};

export const stepWords = (step) => STEPS[step] ?? step.replaceAll('_', ' ');

/** Reads server-sent events: calls `take` with each one's JSON until the stream ends. */
export async function readEvents(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split('\n\n');
    text = events.pop();
    for (const event of events) {
      const data = event.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trim()).join('\n');
      if (data) take(JSON.parse(data));
    }
  }
}

export class LiveSteps {
  #stop = null;

  /** @param {(conversation: string, seq: number) => string} href the address of a message's trace */
  constructor(api, href) {
    this.api = api;
    this.href = href;
    this.said = make('span', { class: 'state idle', role: 'status' });
    this.list = make('ol', { class: 'live', tabindex: '0', 'aria-label': 'Steps, newest first' });
    this.element = make('section', { class: 'block', 'aria-labelledby': 'h-live' },
      make('div', { class: 'bar' }, make('h2', { id: 'h-live' }, 'Live steps'), this.said), this.list);
  }

  watch(user) {
    this.stop();
    this.list.replaceChildren(make('li', { class: 'empty' }, `Nothing yet. What the server does for ${user} from now on appears here.`));
    const stop = new AbortController();
    this.#stop = stop;
    this.#follow(user, stop.signal);
  }

  stop() {
    this.#stop?.abort(new DOMException('stopped', 'AbortError'));
    this.#stop = null;
    this.#say('idle', 'off');
  }

  async #follow(user, signal) {
    while (!signal.aborted) {
      try {
        const answer = await this.api.stream(`events?users=${encodeURIComponent(user)}`, signal);
        this.#say('good', 'watching');
        await readEvents(answer.body, (step) => this.#add(step));
      } catch (error) {
        if (signal.aborted) return;
        this.#say('warn', error.message || 'the stream broke off');
        if (error.status >= 400 && error.status < 500) return;
      }
      if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  #say(level, words) {
    this.said.className = `state ${level}`;
    setText(this.said, words);
  }

  #add({ at, step, conversation_id: id, seq, user, device, count }) {
    this.list.querySelector('.empty')?.remove();
    const who = [user, device && `on ${device}`].filter(Boolean).join(' ');
    const found = count === null || count === undefined ? null : `${count} live`;
    const message = id && seq ? make('a', { href: this.href(id, seq) }, `${id} ${seq}`) : id ?? '';
    this.list.prepend(make('li', { class: `step-${step}` },
      make('time', { datetime: new Date(at).toISOString() }, timeToTheMs(at)), make('b', {}, stepWords(step)),
      make('span', { class: 'who' }, [who, found].filter(Boolean).join(' · ')), make('span', { class: 'what' }, message)));
    while (this.list.children.length > KEPT) this.list.lastElementChild.remove();
  }
}
