// The rail: the server's steps in two lanes. Each lane lights up the newest run as far as it has come; a click on a step
// explains it.

import { make, setAttr, setText } from '../lib/dom.js';
import { LANES, STEPS, placeOf } from './steps.js';

const TITLES = { send: 'Send', receive: 'Receive' };

export class Rail {
  /** @param {(step: string) => void} asked called when a step is clicked */
  constructor(root, asked) {
    this.nodes = new Map();
    this.lanes = Object.entries(LANES).map(([lane, steps]) => this.lane(lane, steps, asked));
    this.away = make('p', { class: 'away', role: 'status', hidden: true }, 'The event stream is lost. Trying again …');
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
    // Only one step is current; the last one of the other lane is done.
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

  /** The event stream is lost, or open again. */
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

/** The state of a step in a run: current, done, skipped, or not reached. */
function state(run, place, now, passed) {
  if (place === now) return 'now';
  if (run.steps.has(place)) return 'done';
  return passed && run.lane === 'send' ? 'skipped' : 'idle';
}

function title({ lane, from, to, seq }) {
  if (lane === 'receive') return to ?? '';
  return `${from ?? ''} →\n${to ?? ''}${seq == null ? '' : `, seq ${seq}`}`;
}
