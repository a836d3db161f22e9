// The operator's page against a real server.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { Server, assertAccessible, assertNoOverflow, launchBrowser, openPage, screenshot, until } from './harness.js';
import { total } from '../src/admin/figures.js';
import { parse } from '../src/admin/prometheus.js';

let server;
let browser;
before(async () => {
  [server, browser] = await Promise.all([Server.start(), launchBrowser()]);
});
after(async () => {
  await browser?.close();
  await server?.end();
});

const REFUSED = [/status of 401/];
const GONE = [/net::ERR_/];

async function openAdmin(t, hash = '', options = {}, at = server) {
  const page = await openPage(t, browser, `${at.url}/admin${hash}`, options);
  await page.fill('#key', at.adminKey);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.inside:not([hidden])');
  return page;
}

const tile = (page, id, part = 'value') => page.textContent(`[data-tile=${id}] .${part}`);
const counted = async (name) => total(parse(await server.metrics(), 0), name) ?? 0;
const written = (count) => new Intl.NumberFormat('en').format(count);

/** A session from a page of this server, which acks everything. Returns the bodies of the messages. */
async function connect(t, user) {
  const page = await openPage(t, browser, `${server.url}/admin`);
  await page.evaluate(([token]) => new Promise((resolve, reject) => {
    globalThis.bodies = [];
    const socket = new WebSocket(`${location.origin.replace('http', 'ws')}/v1/ws`);
    socket.onopen = () => socket.send(JSON.stringify({ type: 'hello', token, device: 'test' }));
    socket.onerror = reject;
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.type === 'caught_up') resolve();
      if (frame.type !== 'message') return;
      globalThis.bodies.push(frame.body);
      socket.send(JSON.stringify({ type: 'read', ref: 1, conversation_id: frame.conversation_id, seq: frame.seq }));
    };
  }), [await server.token(user)]);
  return page;
}

test('a wrong key opens nothing and is told', async (t) => {
  const page = await openPage(t, browser, `${server.url}/admin`, { allow: REFUSED });
  assert.equal(await page.evaluate(() => document.activeElement.id), 'key');
  await page.fill('#key', 'not-the-key');
  await page.click('text=Open');
  await page.waitForSelector('#key-wrong:not(:empty)');
  assert.equal(await page.textContent('#key-wrong'), 'This is not the key of this server.');
  assert.equal(await page.isVisible('.inside'), false);
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  await page.fill('#key', 'ключ');
  await page.click('text=Open');
  await page.waitForFunction(() => document.querySelector('#key-wrong').textContent.includes('ASCII'));
});

test('the right key opens, a reload keeps it, Lock forgets it', async (t) => {
  const page = await openAdmin(t);
  await page.waitForSelector('.top .state.good >> text=Ready');
  await page.reload();
  await page.waitForSelector('.top .state.good >> text=Ready');
  const other = await page.context().newPage();
  await other.goto(`${server.url}/admin`);
  assert.equal(await other.isVisible('#key'), true);
  await page.click('text=Lock');
  assert.equal(await page.isVisible('#key'), true);
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  await page.reload();
  assert.equal(await page.isVisible('#key'), true);
});

test('the numbers are those of /metrics', async (t) => {
  const page = await openAdmin(t);
  const bob = await connect(t, 'num-bob');
  for (let i = 0; i < 7; i += 1) await server.send('num-alice', 'num-bob', `message ${i}`);
  await server.send('num-alice', 'num-carol', 'for later');
  await until('bob has all', () => bob.evaluate(() => globalThis.bodies.length === 7));
  const notes = {
    sends: async () => `${written(await counted('bluetick_sends_total'))} in all`,
    deliveries: async () => `${written(await counted('bluetick_deliveries_total'))} in all`,
    acks: async () => `${written(await counted('bluetick_acks_total'))} in all`,
    reads: async () => `${written(await counted('bluetick_reads_total'))} in all`,
    connections: async () => `${written(await counted('bluetick_sessions_opened_total'))} opened in all`,
    pending: async () => `${written(await counted('bluetick_pending_rows_written_total'))} written, ${written(await counted('bluetick_pending_rows_deleted_total'))} deleted`,
    send_time: async () => `${written(await counted('bluetick_fsync_seconds_count'))} fsyncs in all`,
  };
  for (const [id, expected] of Object.entries(notes)) {
    await until(`${id} is as in /metrics`, async () => await tile(page, id, 'note') === await expected());
  }
  assert.ok(await counted('bluetick_sends_total') >= 8);
  // Those that come close together are stored as one.
  assert.ok(await counted('bluetick_reads_total') >= 1);
  assert.equal(await tile(page, 'connections'), '1');
  assert.match(await tile(page, 'send_time'), /^[\d.]+ (µs|ms|s)$/);
});

test('a plot shows the value and time that is pointed at, by mouse and by keys', async (t) => {
  const page = await openAdmin(t);
  await until('two looks', () => page.evaluate(() => document.querySelectorAll('.plot .line').length > 3));
  const plot = page.locator('.plot', { hasText: 'Messages' }).first();
  await plot.locator('.chart').hover();
  await page.waitForSelector('.plot.pointed .pointer text');
  assert.match(await plot.locator('.pointer text').textContent(), /^\d\d:\d\d:\d\d$/);
  // One moment for all plots.
  assert.ok(await page.locator('.plot.pointed').count() > 10);
  await page.mouse.move(2, 2);
  assert.equal(await page.locator('.plot.pointed').count(), 0);
  await plot.focus();
  await page.keyboard.press('ArrowLeft');
  assert.match(await plot.locator('[aria-live]').textContent(), /^\d\d:\d\d:\d\d: sends .*, deliveries .*, acks .*, reads /);
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('.plot.pointed').count(), 0);
});

test('a user\'s pending row leads to the trace of the message', async (t) => {
  await server.send('look-alice', 'look-bob', 'are you there?');
  await server.send('look-alice', 'look-bob', 'hello?');
  const page = await openAdmin(t, '#user');
  await page.fill('#ask-user', 'look-bob');
  await page.keyboard.press('Enter');
  const cells = async (kind) => (await page.locator(`[data-kind=${kind}] tbody tr`).allInnerTexts()).map((row) => row.split('\t').map((cell) => cell.trim()));
  await page.waitForSelector('[data-kind=pending] tbody tr');
  assert.deepEqual(await cells('pending'), [['look-alice~look-bob', '1']]);
  const [conversation] = await server.cli('inspect', 'conversations', '--user', 'look-bob', '--json');
  assert.deepEqual((await cells('conversations'))[0].slice(0, 5), [conversation.conversation_id, '2', String(conversation.unread_count), 'look-alice', 'hello?']);

  await page.click('[data-kind=pending] td a');
  await page.waitForSelector('.timeline');
  const report = await server.cli('trace', 'look-alice~look-bob', '1', '--json');
  const steps = await page.locator('.timeline li').evaluateAll((items) => items.map((item) => [item.className.replace('step-', ''), item.querySelector('time').dateTime]));
  assert.deepEqual(steps, report.events.map(({ step, at }) => [step, new Date(at).toISOString()]));
  assert.deepEqual(steps.map(([step]) => step).filter((step) => ['stored', 'pending_row'].includes(step)), ['stored', 'pending_row']);
  assert.match(await page.textContent('.trace .facts'), new RegExp(report.message_id));
  await page.click('.neighbours a >> text=2 →');
  await page.waitForFunction(() => document.querySelector('.trace dd').textContent.endsWith(' 2'));
  await page.goBack();

  // The way back from an id, and what is not there.
  await page.fill('#ask-trace', report.message_id);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => location.hash.includes('trace/') && document.querySelector('.trace dd').textContent.endsWith(' 1'));
  await page.fill('#ask-trace', 'nonsense');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('.people > .said').textContent.includes('alice~bob 7'));
});

test('steps of a user appear as they happen, and the row goes', async (t) => {
  await server.send('live-alice', 'live-bob', 'one');
  const page = await openAdmin(t, '#user/live-bob');
  await page.waitForSelector('.state.good >> text=watching');
  assert.equal(await page.locator('[data-kind=pending] tbody tr').count(), 1);
  await server.send('live-alice', 'live-bob', 'two');
  await page.waitForSelector('.live .step-stored');
  await connect(t, 'live-bob');
  await page.waitForSelector('.live .step-registered');
  await page.waitForSelector('.live .step-row_gone');
  await page.click('text=Refresh');
  await page.waitForSelector('[data-kind=pending].none');
  assert.equal(await page.locator('[data-kind=sessions] tbody tr').count(), 1);
});

test('repair asks first, and says what it did', async (t) => {
  await server.send('fix-alice', 'fix-bob', 'count me');
  const page = await openAdmin(t, '#user/fix-bob');
  const asked = [];
  page.on('request', (request) => { if (request.method() === 'POST') asked.push(request.url()); });
  await page.click('text=Repair…');
  await page.keyboard.press('Escape');
  assert.equal(await page.isVisible('dialog'), false);
  assert.deepEqual(asked, []);
  await page.click('text=Repair…');
  await page.click('dialog .strong');
  await page.waitForSelector('dialog .said >> text=1 conversation counted, all were right.');
  assert.deepEqual(asked, [`${server.url}/admin/v1/users/fix-bob/repair`]);
  await page.click('dialog >> text=Done');
});

test('what is cold is counted when asked', async (t) => {
  const page = await openAdmin(t);
  await page.click('text=Count what is cold');
  await page.waitForSelector('.cold dt >> text=Conversations');
  assert.match(await page.textContent('.cold .facts'), /Messages0/);
});

test('a server that goes away is told, and it is seen when it is back', async (t) => {
  const page = await openAdmin(t, '', { allow: GONE });
  await page.waitForSelector('.top .state.good');
  await server.stop();
  await page.waitForSelector('.top .state.bad >> text=No answer');
  assert.match(await page.title(), /^No answer/);
  await server.start();
  await page.waitForSelector('.top .state.good >> text=Ready');
});

test('a store that refuses is told in words', async (t) => {
  const floor = String(2 ** 62);
  const full = await Server.start({ BLUETICK_STORE__FREE_SPACE_FLOOR_BYTES: floor, BLUETICK_ATTACHMENTS__UPLOAD_FREE_SPACE_FLOOR_BYTES: floor }, { ready: false });
  t.after(() => full.end());
  const page = await openAdmin(t, '', { allow: [/status of 503/, ...GONE] }, full);
  await page.waitForSelector('.top .state.bad >> text=Refusing');
  assert.match(await page.textContent('.banner'), /^Refusing: only \d+ bytes are free, and the floor is/);
  assert.equal(await page.textContent('.health li:has-text("Store") .state.bad'), 'refuses sends');
  assert.match(await page.title(), /^Refusing/);
  await screenshot(page, 'admin/refusing');
});

test('notifications: the route that fails, what is owed, and when it works again', async (t) => {
  let works = false;
  const provider = createServer((request, response) => {
    request.resume();
    response.writeHead(works ? 204 : 500).end();
  });
  await new Promise((resolve) => provider.listen(0, '127.0.0.1', resolve));
  t.after(() => provider.close());
  const pushing = await Server.start({
    BLUETICK_PUSH__WEBHOOK__URL: `http://127.0.0.1:${provider.address().port}/push`,
    BLUETICK_PUSH__WEBHOOK__SECRET: 'long enough to be a secret of a webhook',
    BLUETICK_PUSH__DELAY_MS: '0',
  });
  t.after(() => pushing.end());
  await pushing.as('bob', 'PUT', '/v1/devices/pager/push', { provider: 'webhook', token: 'pager-17-with-a-long-address' });
  await pushing.send('alice', 'bob', 'are you there?');
  const page = await openAdmin(t, '', { allow: GONE }, pushing);
  await page.waitForSelector('.health li:has-text("Push: webhook") .state.bad');
  await page.waitForSelector('[data-tile=push] .state.warn, [data-tile=push] .state.good');
  await until('the failure is counted', async () => /^0 sent, [1-9]/.test(await tile(page, 'push', 'note')));
  await page.waitForSelector('.plot >> text=Outbox in memory');
  await screenshot(page, 'admin/push-failing', { fullPage: true });

  await page.click('nav >> text=Look up');
  await page.fill('#ask-user', 'bob');
  await page.keyboard.press('Enter');
  await page.waitForSelector('[data-kind=push] tbody tr');
  const device = await page.locator('[data-kind=devices] tbody td').allInnerTexts();
  const [row] = await pushing.cli('inspect', 'devices', '--user', 'bob', '--json');
  assert.deepEqual(device.slice(0, 4), [row.device, row.provider, row.address, row.content]);
  assert.doesNotMatch(await page.textContent('.people'), /pager-17-with-a-long-address/);
  await screenshot(page, 'admin/push-owed', { fullPage: true });

  works = true;
  await page.click('nav >> text=Overview');
  await until('it is sent', async () => (await tile(page, 'push', 'note')).startsWith('1 sent'), 20_000);
  await page.waitForSelector('.health li:has-text("Push: webhook") .state.good');
});

for (const scheme of ['light', 'dark']) {
  for (const size of ['phone', 'desk']) {
    test(`nothing sticks out and everybody can use it: ${size}, ${scheme}`, async (t) => {
      await server.send('sight-alice', 'sight-bob', 'a longer message, so that its preview has something to cut: '.repeat(3));
      const page = await openPage(t, browser, `${server.url}/admin`, { size, scheme, bypassCSP: true });
      const look = async (name) => {
        await assertNoOverflow(page);
        // Two of the four have each scheme and each size once; axe takes its time.
        if ((scheme === 'light') === (size === 'desk')) await assertAccessible(page);
        await screenshot(page, `admin/${name}-${size}-${scheme}`, { fullPage: true });
      };
      await look('gate');
      await page.fill('#key', server.adminKey);
      await page.click('text=Open');
      await until('two looks', () => page.evaluate(() => document.querySelectorAll('.plot .line').length > 3));
      await look('overview');
      await page.click('nav >> text=Look up');
      await page.fill('#ask-user', 'sight-bob');
      await page.keyboard.press('Enter');
      await page.waitForSelector('[data-kind=pending] tbody tr');
      await look('user');
      await page.click('text=Repair…');
      await look('repair');
      await page.keyboard.press('Escape');
      await page.click('[data-kind=pending] td a');
      await page.waitForSelector('.timeline');
      await look('trace');
    });
  }
}
