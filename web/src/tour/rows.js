// The rows of the users on this page. They are read once; from then on each step brings the rows that it wrote, and they
// are shown when the timeline shows the step. Not every change is a step, so all rows are read again from time to time,
// while no step waits to be shown.

import { demoFetch, NoDemo } from '../lib/demo.js';

const SOONEST_MS = 200;
const RECONCILE_MS = 3000;

export const rowsAddress = (users) => `/demo/rows?users=${users.map(encodeURIComponent).join()}`;

/** The rows now; null if this server does not show them to this page: it is no demo, or the page lacks its key. */
export async function fetchRows(users) {
  try {
    const response = await demoFetch(rowsAddress(users));
    if (!response.ok) throw new Error(`the rows: ${response.status}`);
    return await response.json();
  } catch (error) {
    if (error instanceof NoDemo) return null;
    throw error;
  }
}

/** Whether nobody has used these names yet. */
export function isEmpty(rows) {
  const lists = [rows.messages, rows.pending_deliveries, rows.message_status, rows.conversations, ...Object.values(rows.inbox), ...Object.values(rows.ws)];
  return lists.every((list) => list.length === 0);
}

/** The columns that name a row, by table. Rows are shown in their order. */
const KEYS = {
  messages: ['conversation_id', 'seq'],
  pending_deliveries: ['receiver_id', 'conversation_id'],
  message_status: ['user_id', 'conversation_id'],
  conversations: ['user_id', 'conversation_id'],
};

function inOrder(keys, list) {
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return list.sort((a, b) => keys.reduce((order, key) => order || compare(a[key], b[key]), 0));
}

/** All rows after a step: those that it wrote replace those of before. A pending row that it does not have any more is gone. */
export function afterStep(all, { user, conversation_id: id, rows: written = {} }) {
  const after = { ...all };
  for (const [table, keys] of Object.entries(KEYS)) {
    if (!written[table]) continue;
    const isGone = (row) => table === 'pending_deliveries' && row.receiver_id === user && row.conversation_id === id;
    const isSame = (row) => written[table].some((fresh) => keys.every((key) => fresh[key] === row[key]));
    after[table] = inOrder(keys, [...all[table].filter((row) => !isGone(row) && !isSame(row)), ...written[table]]);
  }
  if (written.ws) after.ws = { ...all.ws, ...written.ws };
  if (written.inbox) {
    after.inbox = { ...all.inbox };
    for (const [member, entries] of Object.entries(written.inbox)) {
      const others = (all.inbox[member] ?? []).filter((entry) => entry.conversation_id !== id);
      after.inbox[member] = [...entries, ...others].sort((a, b) => b.last_message_ts - a.last_message_ts);
    }
  }
  return after;
}

export class Rows {
  /**
   * @param {(rows: object) => void} show
   * @param {() => boolean} isBehind whether the picture is older than the server's state
   */
  constructor(show, isBehind) {
    Object.assign(this, { show, isBehind, users: [], now: null, asked: -Infinity, changedAt: -Infinity, planned: null });
    setInterval(() => { if (!document.hidden) this.soon(); }, RECONCILE_MS);
  }

  of(users) {
    this.users = users;
    this.now = null;
    return this.reconcile();
  }

  /** A step arrived. What is being read may be newer than what is shown by then. */
  arrived() { this.changedAt = performance.now(); }

  /** A step is shown. */
  apply(event) {
    if (!this.now) return;
    this.now = afterStep(this.now, event);
    this.show(this.now);
  }

  /** Reconciles at the next moment that is not too soon after the last time. */
  soon() {
    if (this.planned !== null || this.users.length === 0) return;
    const wait = Math.max(0, this.asked + SOONEST_MS - performance.now());
    this.planned = setTimeout(() => { this.planned = null; this.reconcile(); }, wait);
  }

  /** Reads all rows and shows them, unless they are ahead of the steps that are shown. */
  async reconcile() {
    const asked = performance.now();
    const { users } = this;
    if (this.now && this.isBehind()) return;
    this.asked = asked;
    try {
      const rows = await fetchRows(users);
      const isAhead = this.now && (this.isBehind() || this.changedAt > asked);
      if (!rows || users !== this.users || isAhead) return;
      for (const [table, keys] of Object.entries(KEYS)) inOrder(keys, rows[table]);
      this.now = rows;
      this.show(rows);
    } catch { /* the server is away; the phones say so, and the next try is near */ }
  }
}
