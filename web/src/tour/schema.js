// The tables: which rows they show, the key of a row, and the columns. A column's kind says how a value is formatted: ids
// are shortened, times are clock times; the tooltip has the full value.

const column = (name, kind = 'text', more = {}) => ({ name, kind, ...more });
/** A column that is shown while a row has a value in it. */
const seldom = (name, kind) => column(name, kind, { seldom: true });
/** A column that is shown if there is room. */
const roomy = (name, kind) => column(name, kind, { roomy: true });

/** The lists by user as one list, each row with the key that it has in the store. */
const byUser = (lists, prefix, row) => Object.entries(lists).flatMap(([user, list]) => list.map((entry) => row(`${prefix}:${user}`, entry)));

export const TABLES = [
  {
    id: 'messages', name: 'messages', says: 'every message, for good', empty: 'no message yet',
    rows: (all) => all.messages,
    key: (row) => `${row.conversation_id} ${row.seq}`,
    columns: [
      column('conversation_id', 'key'), column('seq', 'number'), roomy('message_id', 'id'), column('sender'), column('receiver'),
      column('body', 'long'), seldom('s3_ref', 'id'), column('ts', 'time'),
    ],
  },
  {
    id: 'pending_deliveries', name: 'pending_deliveries', says: 'what a receiver lacks', empty: 'nothing is pending',
    rows: (all) => all.pending_deliveries,
    key: (row) => `${row.receiver_id} ${row.conversation_id}`,
    columns: [column('receiver_id', 'key'), column('conversation_id', 'key'), column('first_undelivered_seq', 'number')],
  },
  {
    id: 'message_status', name: 'message_status', says: 'the ticks', empty: 'begins with the first ack',
    rows: (all) => all.message_status,
    key: (row) => `${row.user_id} ${row.conversation_id}`,
    columns: [column('user_id', 'key'), column('conversation_id', 'key'), column('last_delivered_seq', 'number'), column('last_read_seq', 'number')],
  },
  {
    id: 'conversations', name: 'conversations', says: 'the chat lists', empty: 'begins with the first message',
    rows: (all) => all.conversations,
    key: (row) => `${row.user_id} ${row.conversation_id}`,
    columns: [
      column('user_id', 'key'), column('conversation_id', 'key'), roomy('peer_id'), seldom('peer_name'), seldom('avatar_url', 'long'),
      column('last_message_preview', 'long'), column('last_message_ts', 'time'), column('last_seq', 'number'), column('last_sender'), column('unread_count', 'number'),
    ],
  },
  {
    id: 'inbox', name: 'inbox:', says: 'their order', empty: 'no chat yet',
    rows: (all) => byUser(all.inbox, 'inbox', (key, entry) => ({ key, member: entry.conversation_id, score: entry.last_message_ts })),
    key: (row) => `${row.key} ${row.member}`,
    columns: [column('key', 'key'), column('member'), column('score', 'time')],
  },
  {
    id: 'ws', name: 'ws:', says: 'who is connected', empty: 'nobody is connected',
    rows: (all) => byUser(all.ws, 'ws', (key, entry) => ({ key, ...entry })),
    key: (row) => `${row.key} ${row.session_id}`,
    columns: [column('key', 'key'), column('device', 'id'), column('session_id', 'id'), roomy('gateway', 'id'), column('connected_at', 'time')],
  },
];

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });

/** Ids made one after another differ at the end; short ones stay whole. */
const shortened = (id) => (id.length > 10 ? `…${id.slice(-6)}` : id);

/** The text of a cell, and its tooltip if the text is not the full value. */
export function written(value, kind) {
  if (value == null) return { text: '–', whole: null };
  if (kind === 'time') return { text: clock.format(value), whole: `${value} = ${new Date(value).toISOString()}` };
  if (kind === 'id') return { text: shortened(String(value)), whole: String(value) };
  return { text: String(value), whole: kind === 'long' ? String(value) : null };
}
