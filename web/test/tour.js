// What the tests of the tour share: the page with its people, the rows on it, the steps that light up, and an own look at
// the server's event stream.

import assert from 'node:assert/strict';
import { openPage, until } from './harness.js';

let last = 0;

/** The tour with people whom nobody has been before, and room for those who start over. */
export async function openTour(t, browser, server, o = {}) {
  const n = 2 * last + 1;
  last += 1;
  const page = await openPage(t, browser, server.page(`/tour?n=${n}`), o);
  await page.waitForSelector('body[data-ready]');
  const users = await page.$$eval('.phone', (phones) => phones.map((phone) => phone.dataset.user));
  return { page, users };
}

/** The walk has done its step `n` and waits. */
export async function pauseAt(page, n, timeout = 30_000) {
  await page.waitForSelector(`.walk[data-at="${n}"]:is([data-walk="ready"], [data-walk="done"])`, { timeout });
}

/** Writes on somebody's phone; the conversation is open there. */
export async function say(page, name, text) {
  const box = page.locator(`.phone[data-name="${name}"] textarea`);
  await box.fill(text);
  await box.press('Enter');
}

/** The rows that a table shows, whole values and all columns. */
export function shown(page, table) {
  return page.$$eval(`[data-table="${table}"] tbody tr:not(.none, [data-gone])`, (rows) => rows.map((row) => Object.fromEntries(
    [...row.children].map((cell) => [cell.dataset.col, JSON.parse(cell.dataset.value)]),
  )));
}

const INSPECTED = [['pending', 'pending_deliveries'], ['status', 'message_status'], ['conversations', 'conversations'], ['sessions', 'ws']];
const sorted = (rows) => rows.map((row) => JSON.stringify(Object.entries(row).sort())).sort();

/** The rows of the page equal those that `inspect` prints for all of its people. */
export async function assertRows(page, server) {
  const users = await page.$$eval('.phone', (phones) => phones.map((phone) => phone.dataset.user));
  for (const [kind, table] of INSPECTED) {
    const lists = await Promise.all(users.map((user) => server.cli('inspect', kind, '--user', user, '--json')));
    // A key of the session store has its user in its name.
    const printed = lists.flat().map(({ user_id: user, ...row }) => (kind === 'sessions' ? { key: `ws:${user}`, ...row } : user ? { user_id: user, ...row } : row));
    let page_rows;
    const same = async () => { page_rows = await shown(page, table); return sorted(page_rows).join() === sorted(printed).join(); };
    await until('', same, 4000).catch(() => assert.deepEqual(page_rows, printed, `${table} is not what inspect ${kind} prints`));
  }
}

/** Notes from now on which step of the rail lights up. */
export async function noteLit(page) {
  await page.evaluate(() => {
    globalThis.lit = [];
    // A step may light up twice in a row, so the log is what counts; the rail must show the same step at that moment.
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

/** The steps that lit up since the last call. Pushes come when they come. */
export async function lit(page) {
  const steps = await page.evaluate(() => globalThis.lit.splice(0));
  return steps.filter((step) => step !== 'pushed');
}

/** The events of the server, as a program sees them. */
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
