// A user's rows, as `bluetick inspect` shows them, without the column that repeats the user.

import { make, plural } from '../lib/dom.js';
import { exact, moment } from './format.js';

const KEPT = 8;

/** Both ends of a push address: it is long, and the device's secret. */
export function shortened(address) {
  const characters = [...address];
  if (characters.length > 3 * KEPT) return `${characters.slice(0, KEPT).join('')}…${characters.slice(-KEPT).join('')}`;
  return `${characters.slice(0, Math.floor(characters.length / 2)).join('')}…`;
}

function address({ registration }) {
  const whole = registration.token ?? registration.endpoint ?? registration.url ?? registration.subscription?.endpoint;
  return typeof whole === 'string' ? shortened(whole) : '–';
}

const text = (column) => ({ column, of: (row) => row[column] ?? '–' });
const number = (column) => ({ column, kind: 'number', of: (row) => exact(row[column]) });
const time = (column) => ({ column, kind: 'time', of: (row) => moment(row[column]) });
/** A seq with a link to the message's trace. */
const message = (column) => ({ column, kind: 'number', of: (row) => exact(row[column]), seq: (row) => row[column] });

export const KINDS = [
  {
    kind: 'pending', title: 'Pending deliveries', none: 'Everything is delivered.',
    columns: [text('conversation_id'), message('first_undelivered_seq')],
  },
  {
    kind: 'status', title: 'Message status', none: 'No receipts yet.',
    columns: [text('conversation_id'), message('last_delivered_seq'), message('last_read_seq')],
  },
  {
    kind: 'sessions', title: 'Sessions', none: 'Not connected.',
    columns: [text('device'), text('gateway'), time('connected_at'), { ...text('session_id'), kind: 'code' }],
  },
  {
    kind: 'conversations', title: 'Conversations', none: 'No conversations.',
    columns: [
      text('conversation_id'), message('last_seq'), number('unread_count'), text('last_sender'), text('last_message_preview'),
      time('last_message_ts'), text('peer_name'),
    ],
  },
  {
    kind: 'devices', title: 'Devices for push', none: 'No device is registered for notifications.',
    columns: [
      text('device'), { column: 'provider', of: (row) => row.registration.provider }, { column: 'address', kind: 'code', of: address },
      { column: 'content', of: (row) => row.registration.content ?? 'full' }, time('registered_at'),
    ],
  },
  {
    kind: 'push', title: 'Push outbox', none: 'No notification is waiting.',
    columns: [
      text('conversation_id'), message('seq'), { column: 'clear', of: (row) => String(row.clear) }, number('attempts'),
      { column: 'devices', of: (row) => (row.devices ?? []).join(', ') || '–' }, time('due_at'),
    ],
  },
];

/** @param {(conversation: string, seq: number) => string} href the address of a message's trace */
export function rowsTable({ kind, title, none, columns }, rows, href) {
  const id = `h-${kind}`;
  const count = make('span', { class: 'count' }, plural(rows.length, 'row'));
  const heading = make('div', { class: 'bar' }, make('h3', { id }, title), count);
  const body = rows.length === 0 ? make('p', { class: 'otherwise' }, none)
    : make('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-labelledby': id }, table(id, columns, rows, href));
  return make('section', { class: `rows rows-${kind}${rows.length ? '' : ' none'}`, 'data-kind': kind, 'aria-labelledby': id }, heading, body);
}

function table(id, columns, rows, href) {
  return make('table', { 'aria-labelledby': id },
    make('thead', {}, make('tr', {}, columns.map(({ column, kind }) => make('th', { scope: 'col', class: kind ?? null }, column)))),
    make('tbody', {}, rows.map((row) => make('tr', {}, columns.map((column) => cell(column, row, href))))));
}

function cell({ column, kind, of, seq }, row, href) {
  const words = of(row);
  const number = seq?.(row);
  const link = number > 0 && row.conversation_id;
  return make('td', { class: kind ?? null, 'data-column': column, title: String(words).length > 28 ? words : null },
    link ? make('a', { href: href(row.conversation_id, number), title: `Trace ${row.conversation_id} ${number}` }, words) : words);
}
