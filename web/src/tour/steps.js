// The steps of the server's event stream: their order on the rail, the tables they read or write, and their texts.
//
// A text has two parts: what happened, with the names and numbers of the event, and why, with the delivery rule that
// asks for it. Words in backquotes are names of tables and columns.

/** The two lanes of the rail, in the order in which the server takes the steps. Acks come while the drain still runs. */
export const LANES = {
  send: ['looked_up', 'stored', 'pending_row', 'looked_again', 'handed_over', 'sent', 'pushed'],
  receive: ['unregistered', 'registered', 'drained', 'acked', 'caught_up', 'row_gone', 'read'],
};

/** The place of a step on the rail. `drained` and `written` share one: a message is sent to a phone in either way, never in both. */
export const placeOf = (step) => STEPS[step]?.place ?? step;

/** Which lane a step is on. */
export const laneOf = (step) => Object.keys(LANES).find((lane) => LANES[lane].includes(placeOf(step))) ?? null;

/** The other member of a conversation: its id is both names, joined by a tilde. */
export function peerOf(conversation, user) {
  return conversation?.split('~').find((name) => name !== user) ?? null;
}

const sessions = (count) => `${count} live ${count === 1 ? 'session' : 'sessions'}`;
const message = (event) => (event?.seq == null ? 'the message' : `message ${event.seq}`);
const capital = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;
const upTo = (event) => (event?.seq == null ? 'what it was sent' : event.seq);

/**
 * What a text is made from.
 * @typedef {{event: object|null, from: string, to: string, row: object|null}} Scene
 *   event: null for a description of the step in general; row: the receiver's pending row, if there is one
 */

/** name: on the rail; place: the step whose place it shares; tables: what it reads or writes; rule: the delivery rule; what and why: its text. */
export const STEPS = {
  looked_up: {
    name: 'looked up',
    tables: ['ws'],
    rule: 'R2',
    what: ({ event, to }) => (event?.count == null ? `The server reads \`ws:${to}\`: is ${to} connected?` : `Read \`ws:${to}\`: found ${sessions(event.count)} of ${to}.`),
    why: ({ event, to }) => (event?.count > 0
      ? 'So no pending row is written for now. A second lookup, after the message is stored, decides which sessions get it.'
      : `So a pending row for ${to} is stored with the message, in one write.`),
  },
  stored: {
    name: 'stored',
    tables: ['messages', 'conversations', 'inbox'],
    rule: 'R15',
    what: ({ event, from }) => `${capital(message(event))} from ${from} is on disk, with both \`conversations\` rows.`,
    why: () => 'Durable before visible: nobody sees a message that a power cut could take back.',
  },
  pending_row: {
    name: 'pending row',
    tables: ['pending_deliveries'],
    rule: 'R3',
    what: ({ event, to, row }) => (event && row && row.first_undelivered_seq < event.seq
      ? `${to} already has a row. It says ${row.first_undelivered_seq} and does not change.`
      : `One row says that ${to} lacks everything from ${message(event)} on.`),
    why: () => 'The row keeps the lowest seq: one row a conversation, however many messages wait.',
  },
  looked_again: {
    name: 'looked again',
    tables: ['ws'],
    rule: 'R2',
    what: ({ event, to }) => (event?.count == null ? `After the write the server reads \`ws:${to}\` again.` : `Read \`ws:${to}\` again: found ${sessions(event.count)}.`),
    why: ({ event, to }) => (event?.count > 0
      ? 'This lookup, after the write, decides which sessions get the message. It finds one that connected in between.'
      : `${to} may have connected in between. Without this lookup the message would wait for the next connection.`),
  },
  handed_over: {
    name: 'handed over',
    tables: ['ws'],
    rule: 'R12',
    what: ({ event, to }) => `A live session of ${to} accepted ${message(event)}${event?.device ? ` (device ${short(event.device)})` : ''}.`,
    why: () => 'A session that is gone counts as a miss, and the message takes the offline path.',
  },
  sent: {
    name: 'sent',
    tables: [],
    rule: 'the promise',
    what: ({ event, from }) => `${from} gets the answer \`sent\` for ${message(event)}: one tick.`,
    why: () => 'Not earlier: the message is durable, and its pending row is written or a live session has accepted it.',
  },
  pushed: {
    name: 'push',
    tables: [],
    rule: 'R14',
    what: ({ event, to }) => (event ? `A push provider accepted a notification for ${to}.` : `If a push provider is configured, it notifies ${to}.`),
    why: () => 'One decision a message, after the row is written. A later notification replaces an earlier one on the phone.',
  },
  registered: {
    name: 'registered',
    tables: ['ws'],
    rule: 'R1',
    what: ({ event, to }) => `${to} is connected: \`ws:${to}\` holds ${event?.device ? `device ${short(event.device)}` : 'an entry'}.`,
    why: () => 'Register, then read what is pending. The other order loses what arrives in between.',
  },
  drained: {
    name: 'drained',
    tables: ['pending_deliveries', 'messages'],
    rule: 'R7',
    what: ({ event, to }) => `${capital(message(event))} is sent to ${to}.`,
    why: () => 'From the first undelivered seq on; all conversations in one stream, each in its order.',
  },
  written: {
    name: 'written',
    place: 'drained',
    tables: [],
    rule: 'R7',
    what: ({ event, to }) => `${capital(message(event))} is sent to ${to}, live.`,
    why: () => 'The same stream as the drain. A missing seq before it would be read first.',
  },
  caught_up: {
    name: 'caught up',
    tables: [],
    rule: 'R6',
    what: ({ to }) => `${to} has been sent everything that was pending when the drain began, and gets a cursor.`,
    why: () => 'The phone resumes from the cursor next time, so it loses nothing even if the server crashes.',
  },
  acked: {
    name: 'acked',
    tables: ['message_status'],
    rule: 'R10',
    what: ({ event, to }) => `${to}'s phone has everything up to ${upTo(event)}: \`last_delivered_seq\` moves. Two ticks.`,
    why: () => 'One number for all messages. It only grows, so late or repeated acks do no harm.',
  },
  row_gone: {
    name: 'row gone',
    tables: ['pending_deliveries'],
    rule: 'R4',
    what: ({ to }) => `${to} lacks nothing any more: the pending row is deleted.`,
    why: () => 'Deleted after the ack, and only if the row has not changed. Then the server reads what arrived meanwhile.',
  },
  read: {
    name: 'read',
    tables: ['message_status', 'conversations'],
    rule: 'R11',
    what: ({ event, to }) => `${to} has seen everything up to ${upTo(event)}: \`last_read_seq\` moves. Blue ticks.`,
    why: () => '`unread_count` is counted, not incremented: exactly the messages after that seq.',
  },
  unregistered: {
    name: 'left',
    tables: ['ws'],
    rule: 'R5',
    what: ({ to }) => `${to} is off the network: the entry in \`ws:${to}\` is gone.`,
    why: () => 'A closing session first writes a pending row for what was not acked.',
  },
};

/** The beginning of an id that is too long to read. */
export function short(id, most = 12) {
  return id.length > most ? `${id.slice(0, most - 4)}…${id.slice(-3)}` : id;
}

/** The text of an event, or of a step in general if there is none. */
export function tell(step, scene) {
  const { name, rule, what, why } = STEPS[step];
  return { name, rule, what: what(scene), why: why(scene) };
}

/** One line for the log. */
export function line({ step, seq, count, user }) {
  const detail = [count != null && `${count} live`, seq != null && `seq ${seq}`].filter(Boolean).join(', ');
  return { name: STEPS[step].name, user: user ?? '', detail };
}
