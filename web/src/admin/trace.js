// The trace of one message, as a timeline.

import { make } from '../lib/dom.js';
import { tickMark } from '../lib/ticks.js';
import { after, exact, moment } from './format.js';
import { stepWords } from './steps.js';

/** From the report's names of ticks to those of the drawing. */
const TICKS = { single: 'sent', double: 'delivered', blue: 'read' };

const conversationPath = (id, seq) => `trace/${encodeURIComponent(id)}/${seq}`;

/** The admin path for an input: an id, or a conversation and a seq. Throws if it is neither. */
export function tracePath(written) {
  const words = written.trim().split(/[\s/]+/);
  if (words.length === 1 && /^\d+$/.test(words[0])) return `trace/${words[0]}`;
  if (words.length === 2 && words[0].includes('~') && /^[1-9]\d*$/.test(words[1])) return conversationPath(...words);
  throw new Error('Give a message id, or a conversation and a seq: alice~bob 7');
}

/** @param {(conversation: string, seq: number) => string} href @param {(user: string) => string} userHref */
export function traceReport(report, href, userHref) {
  const { conversation_id: id, seq, sender, receiver } = report;
  const person = (user) => make('a', { href: userHref(user) }, user);
  const facts = [
    ['Message', `${id} ${exact(seq)}`], ['Id', report.message_id], ['From', person(sender)], ['To', person(receiver)],
    ['Stored', moment(report.stored_at)], ['Tick', make('span', { class: 'tick' }, tickMark(TICKS[report.tick] ?? 'sent'), report.tick)],
    ['Pending', report.first_undelivered_seq === null ? 'no row waits for it' : `a row from seq ${report.first_undelivered_seq} on waits for ${receiver}`],
  ];
  if (report.withheld) facts.push(['Withheld', `${receiver} blocked ${sender} when it was sent`]);
  if (report.void) facts.push(['Void', 'only its seq is kept']);
  return make('div', { class: 'trace' },
    make('dl', { class: 'facts' }, facts.map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, value)))),
    timeline(report), neighbours(id, seq, href));
}

/**
 * Only the receiver's first receipt of each kind moved the tick: later ones cover the message too, and the sender's own
 * are about other messages.
 */
export function telling(events, sender) {
  const told = new Set();
  return events.filter(({ step, who }) => {
    if (step !== 'acked' && step !== 'read') return true;
    if (who === sender || told.has(step)) return false;
    told.add(step);
    return true;
  });
}

function timeline({ events, seq, sender, stored_at: stored }) {
  if (events.length === 0) {
    return make('p', { class: 'otherwise' }, 'No steps are kept: they are too old, or from before the server’s last start.');
  }
  return make('ol', { class: 'timeline', 'aria-label': 'Steps' }, telling(events, sender).map((event) => make('li', { class: `step-${event.step}` },
    make('span', { class: 'after' }, after(Math.max(0, event.at - stored))), make('b', {}, stepWords(event.step)),
    make('span', { class: 'who' }, event.seq === seq ? event.who : `${event.who}, by a receipt for ${exact(event.seq)}`),
    make('time', { datetime: moment(event.at) }, moment(event.at)))));
}

function neighbours(id, seq, href) {
  return make('p', { class: 'neighbours' },
    seq > 1 && make('a', { href: href(id, seq - 1) }, `← ${id} ${exact(seq - 1)}`), make('a', { href: href(id, seq + 1) }, `${id} ${exact(seq + 1)} →`));
}
