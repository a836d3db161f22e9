// The controls in the head of the page: the replay, Carol, start over, light and dark.

import { make, setAttr, setText } from '../lib/dom.js';
import { themeToggle } from '../lib/theme.js';

/** By the value of the option: milliseconds between two steps. */
const SPEEDS = [['live', 'Live'], ['1000', '1 s a step'], ['2000', '2 s a step'], ['4000', '4 s a step']];

/** A switch with its words. `set` draws it, and does not press it. */
function labelled(words, title, pressed) {
  const knob = make('button', { type: 'button', class: 'switch', role: 'switch', 'aria-checked': 'false', 'aria-label': words, title });
  knob.addEventListener('click', () => pressed(knob.getAttribute('aria-checked') !== 'true'));
  const el = make('label', { class: 'labelled' }, words, knob);
  return { el, knob, set: (on) => setAttr(knob, 'aria-checked', String(on)) };
}

/** Pause or play, one step, and the speed. `draw` shows the state of the timeline. */
function replayControls(page) {
  const pause = make('button', { type: 'button', class: 'press pause', onclick: page.pause }, 'Pause');
  const step = make('button', { type: 'button', class: 'press step', title: 'Show the next step', onclick: page.step }, 'Step');
  const speed = make('select', { class: 'speed', 'aria-label': 'Speed of the replay', title: 'How fast steps are shown. The server is not slowed down.', onchange: () => page.speed(speed.value === 'live' ? null : Number(speed.value)) },
    SPEEDS.map(([value, words]) => make('option', { value }, words)));
  const el = make('div', { class: 'replay', role: 'group', 'aria-label': 'Replay' }, pause, step, speed);
  const draw = ({ isPaused, waiting }) => {
    setText(pause, isPaused ? 'Resume' : 'Pause');
    setAttr(pause, 'title', isPaused ? 'Go on showing steps' : 'Hold the picture. The server goes on.');
    setText(step, waiting ? `Step (${waiting})` : 'Step');
    setAttr(step, 'aria-disabled', isPaused && waiting ? null : 'true');
    setAttr(el, 'data-paused', isPaused);
  };
  return { el, draw };
}

/** @param {{pause: () => void, step: () => void, speed: (gapMs: number|null) => void, carol: (on: boolean) => void, over: () => void}} page */
export function drawTools(root, page) {
  const replay = replayControls(page);
  const carol = labelled('Carol', 'A third phone', page.carol);
  const over = make('button', { type: 'button', class: 'press over', title: 'New people, empty tables', onclick: page.over }, 'Start over');
  carol.knob.classList.add('carol');
  root.append(replay.el, carol.el, over, themeToggle());
  return { replay, carol };
}
