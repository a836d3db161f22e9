// The steps of the server's event stream: their order on the rail, the tables they touch, and what to say about each.
//
// A text has two parts: what happened, with the names and numbers of this very event, and why the server does it so,
// with the rule of the design it follows. Words in backquotes are names of rows and columns.

/** The two lanes of the rail, in the order in which the server takes the steps. Acks come while the drain still runs. */
export const LANES = {
  send: ['looked_up', 'stored', 'pending_row', 'looked_again', 'handed_over', 'sent', 'pushed'],
  receive: ['unregistered', 'registered', 'drained', 'acked', 'caught_up', 'row_gone', 'read'],
};

/** The place of a step on the rail. A message goes to a phone in the drain or later, never both: one place for the two. */
export const placeOf = (step) => STEPS[step]?.place ?? step;

/** Which lane a step is on. */
export const laneOf = (step) => Object.keys(LANES).find((lane) => LANES[lane].includes(placeOf(step))) ?? null;

/** The other member of a conversation: its id is both names, joined by a tilde. */
export function peerOf(conversation, user) {
  return conversation?.split('~').find((name) => name !== user) ?? null;
}

const sessions = (count) => `${count} live ${count === 1 ? 'session' : 'sessions'}`;
const message = (event) => (event?.seq == null ? 'the message' : `message ${event.seq}`);
const upTo = (event) => (event?.seq == null ? 'what it was sent' : event.seq);

/**
 * What is known of an event when its text is made.
 * @typedef {{event: object|null, from: string, to: string, row: object|null}} Scene
 *   event: null if somebody only asks what the step is; row: the receiver's pending row, if there is one
 */

/** name: on the rail; place: where, if another step has a place there too; tables: what it reads or writes; what and why: its text; rule: of DESIGN.md. */
export const STEPS = {
  looked_up: {
    name: 'looked up',
    tables: ['ws'],
    rule: 'R2',
    what: ({ event, to }) => (event?.count == null ? `Is anybody there? The server reads \`ws:${to}\`.` : `Read \`ws:${to}\`: found ${sessions(event.count)} of ${to}.`),
    why: ({ event, to }) => (event?.count > 0
      ? 'So no pending row is written for now. Whom the message goes to is decided by a second look, after it is stored.'
      : `So a pending row for ${to} will be stored together with the message, in one write. Nothing can come between the two.`),
  },
  stored: {
    name: 'stored',
    tables: ['messages', 'conversations', 'inbox'],
    rule: 'R15',
    what: ({ event, from }) => `On disk: ${message(event)} from ${from}, and with it both \`conversations\` rows.`,
    why: () => 'First durable, then visible: nobody is told of a message that a power cut could take back.',
  },
  pending_row: {
    name: 'pending row',
    tables: ['pending_deliveries'],
    rule: 'R3',
    what: ({ event, to, row }) => (event && row && row.first_undelivered_seq < event.seq
      ? `${to} already has a row. It says ${row.first_undelivered_seq}, and stays as it is.`
      : `${to} is owed everything from ${message(event)} on: one row, stored along with it.`),
    why: () => 'The row keeps the lowest seq. One row for a conversation, however many messages wait in it.',
  },
  looked_again: {
    name: 'looked again',
    tables: ['ws'],
    rule: 'R2',
    what: ({ event, to }) => (event?.count == null ? `After the write, \`ws:${to}\` is read once more.` : `Read \`ws:${to}\` once more: found ${sessions(event.count)}.`),
    why: ({ event, to }) => (event?.count > 0
      ? 'Only this look, after the write, decides who gets it: whoever connected in between is found here.'
      : `${to} may have connected in between. Without this look the message would wait for the next connection.`),
  },
  handed_over: {
    name: 'handed over',
    tables: ['ws'],
    rule: 'R12',
    what: ({ event, to }) => `A live session of ${to} took ${message(event)}${event?.device ? ` (device ${short(event.device)})` : ''}.`,
    why: () => 'A session that turns out to be gone counts as a miss, and the message takes the offline path instead.',
  },
  sent: {
    name: 'sent',
    tables: [],
    rule: 'the promise',
    what: ({ event, from }) => `${from} is told that ${message(event)} is sent: one tick.`,
    why: () => 'Only now. It is durable, and its pending row is written or a live session has taken it.',
  },
  pushed: {
    name: 'push',
    tables: [],
    rule: 'R14',
    what: ({ event, to }) => (event ? `A push provider took a notification for ${to}.` : `Where a push provider is set up, it is asked to notify ${to}.`),
    why: () => 'One decision a message, after the row is written. A later one replaces the earlier on the phone.',
  },
  registered: {
    name: 'registered',
    tables: ['ws'],
    rule: 'R1',
    what: ({ event, to }) => `${to} is connected: \`ws:${to}\` has ${event?.device ? `device ${short(event.device)}` : 'an entry'}.`,
    why: () => 'Register first, then read what is pending. The other way round loses what arrives in between.',
  },
  drained: {
    name: 'drained',
    tables: ['pending_deliveries', 'messages'],
    rule: 'R7',
    what: ({ event, to }) => `Down the wire to ${to}: ${message(event)}.`,
    why: () => 'From the first undelivered seq on, all conversations merged into one stream, each in its order.',
  },
  written: {
    name: 'written',
    place: 'drained',
    tables: [],
    rule: 'R7',
    what: ({ event, to }) => `Down the wire to ${to}: ${message(event)}, live.`,
    why: () => 'The same stream as a drain, already caught up. If a seq were missing before it, it would be read first.',
  },
  caught_up: {
    name: 'caught up',
    tables: [],
    rule: 'R6',
    what: ({ to }) => `${to} has been sent all that was there when the drain began, and gets a cursor.`,
    why: () => 'The phone gives the cursor back next time, so that even a crash of the server costs it nothing.',
  },
  acked: {
    name: 'acked',
    tables: ['message_status'],
    rule: 'R10',
    what: ({ event, to }) => `${to}'s phone holds everything up to ${upTo(event)}: \`last_delivered_seq\` moves. Two ticks.`,
    why: () => 'One number for all messages. It only grows, so acks that come late or twice do no harm.',
  },
  row_gone: {
    name: 'row gone',
    tables: ['pending_deliveries'],
    rule: 'R4',
    what: ({ to }) => `${to} is owed nothing more: the pending row is deleted.`,
    why: () => 'Ack, then delete, and only if the row still says what was read. Then look for what came meanwhile.',
  },
  read: {
    name: 'read',
    tables: ['message_status', 'conversations'],
    rule: 'R11',
    what: ({ event, to }) => `${to} has seen everything up to ${upTo(event)}: \`last_read_seq\` moves. Blue ticks.`,
    why: () => '`unread_count` is counted, never added up: exactly the messages after that seq.',
  },
  unregistered: {
    name: 'left',
    tables: ['ws'],
    rule: 'R5',
    what: ({ to }) => `${to} is off the network: the entry in \`ws:${to}\` is gone.`,
    why: () => 'A session that closes pays its debts first: what was not acked gets its pending row.',
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
