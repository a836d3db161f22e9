// The ticks of a message: one drawing whose parts appear and vanish, so that a change is animated.

import { svg } from './icons.js';

const PATHS = [
  ['hands', 'M14.5 7a5 5 0 1 1-10 0a5 5 0 0 1 10 0M9.5 4v3.2l2 1.3'],
  ['first', 'M1.5 7.6l4 4L13 2.6'],
  ['second', 'M9.3 10.8l.9.8L17.9 2.6'],
  ['mark', 'M14.5 7a5 5 0 1 1-10 0a5 5 0 0 1 10 0M9.5 4.4v3M9.5 9.6v.01'],
];

export const TICK_WORDS = { waiting: 'waiting to be sent', sent: 'sent', delivered: 'delivered', read: 'read', failed: 'not sent' };

/** An <svg> that shows a tick: waiting, sent, delivered, read or failed. */
export function tickMark(tick = 'waiting') {
  const mark = svg('0 0 20 14', PATHS);
  mark.setAttribute('class', 'ticks');
  mark.setAttribute('role', 'img');
  setTick(mark, tick);
  return mark;
}

export function setTick(mark, tick) {
  if (mark.dataset.tick === tick) return;
  mark.dataset.tick = tick;
  mark.setAttribute('aria-label', TICK_WORDS[tick] ?? tick);
}
