// The rows of the users on this page, from the server: after events, a few times a second at most, and every few
// seconds anyway, since not every change is an event.

import { demoFetch, NoDemo } from '../lib/demo.js';

const SOONEST_MS = 200;
const ANYWAY_MS = 3000;

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

export class Rows {
  /** @param {(rows: object) => void} show */
  constructor(show) {
    Object.assign(this, { show, users: [], now: null, asked: -Infinity, shown: -Infinity, planned: null });
    setInterval(() => { if (!document.hidden) this.soon(); }, ANYWAY_MS);
  }

  of(users) {
    this.users = users;
    this.now = null;
    return this.fresh();
  }

  /** Asks at the next moment that is not too soon after the last one. */
  soon() {
    if (this.planned !== null || this.users.length === 0) return;
    const wait = Math.max(0, this.asked + SOONEST_MS - performance.now());
    this.planned = setTimeout(() => { this.planned = null; this.fresh(); }, wait);
  }

  /** Asks now. An answer older than what is shown, or about users of before, is dropped. */
  async fresh() {
    const asked = performance.now();
    const { users } = this;
    this.asked = asked;
    try {
      const rows = await fetchRows(users);
      if (!rows || users !== this.users || asked < this.shown) return;
      Object.assign(this, { now: rows, shown: asked });
      this.show(rows);
    } catch { /* the server is away; the phones say so, and the next try is near */ }
  }
}
