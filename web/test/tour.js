// Shared by the tests of the tour: the page with its users, the rows on it, the steps that light up, and the server's
// event stream.

import assert from 'node:assert/strict';
import { openPage, until } from './harness.js';

let last = 0;

/** The tour with unused names, and room for those of a fresh start. */
export async function openTour(t, browser, server, o = {}) {
  const n = 2 * last + 1;
  last += 1;
  const page = await openPage(t, browser, server.page(`/tour?n=${n}`), o);
  await page.waitForSelector('body[data-ready]');
  const users = await page.$$eval('.phone', (phones) => phones.map((phone) => phone.dataset.user));
  return { page, users };
}

/** Waits until the walk has done its step `n`. */
export async function pauseAt(page, n, timeout = 30_000) {
  await page.waitForSelector(`.walk[data-at="${n}"]:is([data-walk="ready"], [data-walk="done"])`, { timeout });
}

/** Sends from a phone on which the conversation is open. */
export async function say(page, name, text) {
  const box = page.locator(`.phone[data-name="${name}"] textarea`);
  await box.fill(text);
  await box.press('Enter');
}

/** The rows of a table, with full values and all columns. */
export function shown(page, table) {
  return page.$$eval(`[data-table="${table}"] tbody tr:not(.none, [data-gone])`, (rows) => rows.map((row) => Object.fromEntries(
    [...row.children].map((cell) => [cell.dataset.col, JSON.parse(cell.dataset.value)]),
  )));
}

const INSPECTED = [['pending', 'pending_deliveries'], ['status', 'message_status'], ['conversations', 'conversations'], ['sessions', 'ws']];
const sorted = (rows) => rows.map((row) => JSON.stringify(Object.entries(row).sort())).sort();

/** The rows on the page equal those that `inspect` prints for its users. */
export async function assertRows(page, server) {
  const users = await page.$$eval('.phone', (phones) => phones.map((phone) => phone.dataset.user));
  for (const [kind, table] of INSPECTED) {
    const lists = await Promise.all(users.map((user) => server.cli('inspect', kind, '--user', user, '--json')));
    // A key of the session store contains the user.
    const printed = lists.flat().map(({ user_id: user, ...row }) => (kind === 'sessions' ? { key: `ws:${user}`, ...row } : user ? { user_id: user, ...row } : row));
    let page_rows;
    const same = async () => { page_rows = await shown(page, table); return sorted(page_rows).join() === sorted(printed).join(); };
    await until('', same, 4000).catch(() => assert.deepEqual(page_rows, printed, `${table} is not what inspect ${kind} prints`));
  }
}

/** Records from now on which step of the rail lights up. */
export async function noteLit(page) {
  await page.evaluate(() => {
    globalThis.lit = [];
    // A step may light up twice in a row, so the log counts; the rail must show the same step at that time.
    new MutationObserver((records) => {
      for (const node of records.flatMap(({ addedNodes }) => [...addedNodes])) {
        const { step } = node.dataset;
        if (!step) continue;
        const now = [...document.querySelectorAll('.node[data-state="now"]')].map((one) => one.dataset.step);
        globalThis.lit.push(now.length === 1 && now[0] === step ? step : `${step}, and lit: ${now}`);
      }
    }).observe(document.querySelector('.steplog ol'), { childList: true });
  });
}

/** The steps that lit up since the last call, without pushes, which come at any time. */
export async function lit(page) {
  const steps = await page.evaluate(() => globalThis.lit.splice(0));
  return steps.filter((step) => step !== 'pushed');
}

/** The server's event stream, without the page. */
export class Watch {
  static async start(t, server, users) {
    const watch = new Watch();
    watch.events = [];
    const stop = new AbortController();
    t.after(() => stop.abort());
    const response = await fetch(`${server.url}/demo/events?users=${users}`, { signal: stop.signal, headers: server.demoHeaders });
    assert.equal(response.status, 200);
    watch.read(response.body).catch(() => {});
    return watch;
  }

  async read(body) {
    let text = '';
    for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
      const lines = (text + chunk).split('\n');
      text = lines.pop();
      for (const line of lines) if (line.startsWith('data:')) this.events.push(JSON.parse(line.slice(5)));
    }
  }
}
