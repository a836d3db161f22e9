// The rail: the steps of the server in two lanes. The newest run of each lane is lit as far as it has come; a press on a
// step tells what it is for.

import { make, setAttr, setText } from '../lib/dom.js';
import { LANES, STEPS, placeOf } from './steps.js';

const TITLES = { send: 'Send', receive: 'Receive' };

export class Rail {
  /** @param {(step: string) => void} asked somebody wants to read about a step */
  constructor(root, asked) {
    this.nodes = new Map();
    this.lanes = Object.entries(LANES).map(([lane, steps]) => this.lane(lane, steps, asked));
    this.away = make('p', { class: 'away', role: 'status', hidden: true }, 'The server does not tell its steps just now. Trying again …');
    root.append(this.away, ...this.lanes.map(({ el }) => el));
  }

  lane(lane, steps, asked) {
    const of = make('span', { class: 'of' });
    const nodes = steps.map((step) => this.node(step, asked));
    const el = make('section', { class: 'lane', 'data-lane': lane, 'aria-label': `Steps: ${TITLES[lane]}` },
      make('h3', {}, TITLES[lane], of), make('ol', {}, nodes));
    return { lane, el, of, run: null };
  }

  node(step, asked) {
    const times = make('span', { class: 'times' });
    const name = make('span', { class: 'name' }, STEPS[step].name);
    const node = { times, name, step };
    const button = make('button', { type: 'button', onclick: () => asked(node.step) }, make('span', { class: 'dot' }), name, times);
    node.el = make('li', { class: 'node', 'data-step': step, 'data-state': 'idle' }, button);
    this.nodes.set(step, node);
    return node.el;
  }

  /** A step of a run has just happened. */
  show(run, step) {
    const lane = this.lanes.find((one) => one.lane === run.lane);
    lane.run = run;
    setText(lane.of, title(run));
    const steps = LANES[run.lane];
    const reached = Math.max(...[...run.steps.keys()].map((name) => steps.indexOf(name)));
    const now = placeOf(step);
    for (const place of steps) this.set(place, run.named.get(place) ?? place, state(run, place, now, steps.indexOf(place) < reached), run.steps.get(place) ?? 0);
    // Only one step is happening; in the other lane the last one has happened.
    for (const [place, { el }] of this.nodes) if (place !== now && el.dataset.state === 'now') past(el);
  }

  set(place, step, value, count) {
    const node = this.nodes.get(place);
    node.step = step;
    node.el.dataset.step = step;
    node.el.dataset.state = value;
    setAttr(node.el, 'aria-current', value === 'now' ? 'step' : null);
    setText(node.name, STEPS[step].name);
    setText(node.times, count > 1 ? `×${count}` : '');
  }

  /** The stream of steps is lost, or back. */
  lost(isLost) { this.away.hidden = !isLost; }

  clear() {
    for (const place of this.nodes.keys()) this.set(place, place, 'idle', 0);
    for (const lane of this.lanes) setText(lane.of, '');
  }
}

function past(el) {
  el.dataset.state = 'done';
  el.removeAttribute('aria-current');
}

/** What a step is to a run: happening, done, passed by, or not there yet. */
function state(run, place, now, passed) {
  if (place === now) return 'now';
  if (run.steps.has(place)) return 'done';
  return passed && run.lane === 'send' ? 'skipped' : 'idle';
}

function title({ lane, from, to, seq }) {
  if (lane === 'receive') return to ?? '';
  return `${from ?? ''} →\n${to ?? ''}${seq == null ? '' : `, seq ${seq}`}`;
}
