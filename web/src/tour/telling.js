// The text of the current step with its rule, and a log of the last steps with their times.

import { make, setText } from '../lib/dom.js';
import { line, tell } from './steps.js';

const KEPT = 40;
/** Between two announcements to a screen reader. Of the five steps of a send the last is enough. */
const QUIET_MS = 4000;

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3, hour12: false });

/** Words in backquotes become code. */
export function prose(text) {
  return text.split('`').map((part, at) => (at % 2 ? make('code', {}, part) : part));
}

export class Telling {
  constructor(root) {
    this.name = make('h3');
    this.rule = make('span', { class: 'rule', title: 'The delivery rule that asks for it' });
    this.what = make('p', { class: 'what' });
    this.why = make('p', { class: 'why' });
    this.list = make('ol');
    this.said = make('p', { class: 'quiet', role: 'status' });
    this.card = make('section', { class: 'card', 'aria-label': 'The current step' }, make('header', {}, this.name, this.rule), this.what, this.why);
    const log = make('section', { class: 'steplog', 'aria-label': 'The last steps' }, make('h3', {}, 'Last steps'), make('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'The last steps, newest first' }, this.list));
    root.append(this.card, log, this.said);
    this.clear();
  }

  clear() {
    clearTimeout(this.later);
    this.later = null;
    this.list.replaceChildren(make('li', { class: 'none' }, 'nothing yet'));
    this.show({
      name: 'What you see',
      rule: '',
      what: 'Two phones, and the server between them: each of its steps lights up, and its rows change.',
      why: 'Click a step to read about it.',
    }, 'idle');
  }

  show({ name, rule, what, why }, kind) {
    this.card.dataset.kind = kind;
    setText(this.name, name);
    setText(this.rule, rule);
    this.rule.hidden = !rule;
    this.what.replaceChildren(...prose(what));
    this.why.replaceChildren(...prose(why));
  }

  /** Describes a step in general. */
  about(step) {
    const told = tell(step, { event: null, from: 'the sender', to: 'the receiver', row: null });
    this.show(told, 'about');
    this.say(`${told.name}: ${told.what} ${told.why}`, true);
  }

  /** A step has happened. */
  happened(event, scene) {
    const told = tell(event.step, scene);
    this.show(told, 'event');
    this.card.dataset.step = event.step;
    this.write(event);
    this.say(`${told.name}: ${told.what}`);
  }

  write(event) {
    const { name, user, detail } = line(event);
    this.list.querySelector('.none')?.remove();
    this.list.prepend(make('li', { 'data-step': event.step }, make('time', {}, clock.format(event.at)), make('b', {}, name), make('span', {}, [user, detail].filter(Boolean).join(' · '))));
    while (this.list.children.length > KEPT) this.list.lastElementChild.remove();
  }

  /** Announces the newest text, but not more often than a screen reader can follow. */
  say(text, now = false) {
    this.next = text.replaceAll('`', '');
    if (now) { clearTimeout(this.later); this.later = null; }
    if (this.later) return;
    setText(this.said, this.next);
    const said = this.next;
    this.later = setTimeout(() => { this.later = null; if (this.next !== said) this.say(this.next); }, QUIET_MS);
  }
}
