// The legend of the page's marks.

import { withDemoKey } from '../lib/demo.js';
import { make } from '../lib/dom.js';
import { tickMark } from '../lib/ticks.js';

const TICKS = [['sent', 'stored on the server'], ['delivered', 'on the other phone'], ['read', 'read']];
const MARKS = [['new', 'new row'], ['changed', 'changed'], ['gone', 'gone']];

export function drawLegend(root) {
  const ticks = TICKS.map(([tick, words]) => make('li', {}, decoration(tickMark(tick)), words));
  const marks = MARKS.map(([mark, words]) => make('li', {}, make('i', { class: mark, 'aria-hidden': 'true' }), words));
  root.append(make('ul', { 'aria-label': 'Legend' }, ticks, marks), make('p', {}, 'Ids are shortened; point at one to see the whole.'),
    make('p', { class: 'links' }, make('a', { href: withDemoKey('/') }, 'The chat'), ' · ', make('a', { href: '/v1/docs' }, 'API')));
}

/** Screen readers read the words beside it. */
function decoration(el) {
  el.removeAttribute('role');
  el.removeAttribute('aria-label');
  el.setAttribute('aria-hidden', 'true');
  return el;
}
