// The switches of the page, in its head: slow motion, Carol, start over, light and dark.

import { make, setAttr } from '../lib/dom.js';
import { themeToggle } from '../lib/theme.js';

/** A switch with its words. `set` draws it, and does not press it. */
function labelled(words, title, pressed) {
  const knob = make('button', { type: 'button', class: 'switch', role: 'switch', 'aria-checked': 'false', 'aria-label': words, title });
  knob.addEventListener('click', () => pressed(knob.getAttribute('aria-checked') !== 'true'));
  const el = make('label', { class: 'labelled' }, words, knob);
  return { el, knob, set: (on) => setAttr(knob, 'aria-checked', String(on)) };
}

/** @param {{slow: (on: boolean) => void, carol: (on: boolean) => void, over: () => void}} page */
export function drawTools(root, page) {
  const slow = labelled('Slow motion', 'The server really waits 1.2 seconds after each step', page.slow);
  const carol = labelled('Carol', 'A third phone', page.carol);
  const over = make('button', { type: 'button', class: 'press over', title: 'New people, empty tables', onclick: page.over }, 'Start over');
  slow.knob.classList.add('slow');
  carol.knob.classList.add('carol');
  root.append(slow.el, carol.el, over, themeToggle());
  return { slow, carol };
}
