// The tour, on the real server: its buttons walk through the offline write flow, each step lights up in its order, at
// each pause the rows on the page are those that `bluetick inspect` prints, and the replay goes at the visitor's speed.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { Server, launchBrowser, openPage, until } from './harness.js';
import { Watch, assertRows, lit, noteLit, openTour, pauseAt, say, shown } from './tour.js';

const SEND_OFFLINE = ['looked_up', 'stored', 'pending_row', 'looked_again', 'sent'];
const SEND_ONLINE = ['looked_up', 'stored', 'looked_again', 'handed_over', 'sent'];

describe('the tour', { timeout: 240_000 }, () => {
  let server;
  let browser;
  before(async () => { [server, browser] = await Promise.all([Server.start(), launchBrowser()]); });
  after(async () => { await browser?.close(); await server?.end(); });

  const open = (t, o) => openTour(t, browser, server, o);

  test('walks through the offline write flow, and the rows are those of inspect', async (t) => {
    const { page, users: [alice, bob] } = await open(t);
    const pause = async (n) => {
      await pauseAt(page, n);
      await assertRows(page, server);
      return lit(page);
    };
    await noteLit(page);
    await page.click('[data-story="offline"]');
    assert.deepEqual(await pause(0), []);
    assert.equal((await shown(page, 'ws')).length, 2);

    await page.click('.walk .next');
    assert.deepEqual(await pause(1), ['unregistered']);
    assert.deepEqual((await shown(page, 'ws')).map(({ key }) => key), [`ws:${alice}`]);

    await page.click('.walk .next');
    assert.deepEqual(await pause(2), SEND_OFFLINE);
    const conversation_id = `${alice}~${bob}`;
    const pending = [{ receiver_id: bob, conversation_id, first_undelivered_seq: 1 }];
    assert.deepEqual(await shown(page, 'pending_deliveries'), pending);

    await page.click('.walk .next');
    assert.deepEqual(await pause(3), [...SEND_OFFLINE, ...SEND_OFFLINE]);
    assert.deepEqual(await shown(page, 'pending_deliveries'), pending, 'one row, whatever is written');
    assert.deepEqual((await shown(page, 'messages')).map(({ seq }) => seq), [1, 2, 3]);
    assert.deepEqual(await shown(page, 'message_status'), [], 'no row before the first ack');

    await page.click('.walk .next');
    assert.deepEqual(await pause(4), []);

    await page.click('.walk .next');
    const back = await pause(5);
    assert.equal(back[0], 'registered', 'R1: register, then read');
    assert.equal(back.filter((step) => step === 'drained').length, 3);
    const at = (step) => back.lastIndexOf(step);
    for (const [first, then] of [['registered', 'drained'], ['drained', 'caught_up'], ['drained', 'acked'], ['acked', 'row_gone']]) {
      assert.ok(at(first) >= 0 && at(first) < at(then), `${first} before ${then}: ${back}`);
    }
    assert.deepEqual(await shown(page, 'pending_deliveries'), []);
    assert.deepEqual(await shown(page, 'message_status'), [{ user_id: bob, conversation_id, last_delivered_seq: 3, last_read_seq: 0 }]);
    assert.deepEqual(await ticks(page), ['delivered', 'delivered', 'delivered']);

    await page.click('.walk .next');
    assert.deepEqual(await pause(6), ['read']);
    assert.deepEqual(await shown(page, 'message_status'), [{ user_id: bob, conversation_id, last_delivered_seq: 3, last_read_seq: 3 }]);
    assert.deepEqual(await ticks(page), ['read', 'read', 'read']);

    await page.click('.walk .next');
    await pauseAt(page, 7);
    await page.click('.walk .next');
    await page.waitForSelector('.walk[data-walk="none"]');
  });

  test('plays the online story by itself, and stops when told', async (t) => {
    const { page, users: [alice, bob] } = await open(t);
    await noteLit(page);
    await page.click('[data-story="online"]');
    await page.click('.walk .play');
    await pauseAt(page, 4, 60_000);
    const steps = await lit(page);
    for (const step of [...SEND_ONLINE, 'written', 'acked', 'read']) assert.ok(steps.includes(step), `${step} is not in ${steps}`);
    assert.ok(!steps.includes('pending_row'), 'nobody was away');
    await assertRows(page, server);
    const messages = await shown(page, 'messages');
    assert.deepEqual(messages.map(({ sender }) => sender), [alice, bob]);

    await page.click('.walk .next');
    await page.click('[data-story="offline"]');
    await pauseAt(page, 0);
    await page.click('.walk .play');
    await page.click('.walk .stop');
    await page.waitForSelector('.walk[data-walk="none"]');
  });

  test('tells the race: whoever is first, every message arrives, in order', async (t) => {
    const { page, users } = await open(t);
    const watch = await Watch.start(t, server, users);
    await page.click('[data-story="race"]');
    await pauseAt(page, 0);
    await page.click('.walk .next');
    await pauseAt(page, 1);
    await page.click('.walk .next');
    await pauseAt(page, 2, 60_000);
    const steps = watch.events.map(({ step }) => step);
    assert.equal(watch.events.find(({ step }) => step === 'looked_up').count, 0, 'the first lookup found nobody');
    assert.equal(steps.filter((step) => step === 'sent').length, 4);
    const written = watch.events.filter(({ step }) => step === 'drained' || step === 'written').map(({ seq }) => seq);
    assert.deepEqual(written, [1, 2, 3, 4], 'each once, in order');
    // Drained or live: that is the race.
    const first = steps.findIndex((step) => step === 'drained' || step === 'written');
    assert.ok(steps.indexOf('registered') < first, 'R1: register, then read');
    assert.deepEqual(await shown(page, 'pending_deliveries'), []);
    assert.deepEqual((await shown(page, 'message_status')).map((row) => row.last_delivered_seq), [4]);
    await assertRows(page, server);
  });

  test('replays steps, rows and phones together, while the server goes on', async (t) => {
    const { page, users } = await open(t);
    const watch = await Watch.start(t, server, users);
    const conversation_id = users.slice(0, 2).join('~');
    const bodies = (name) => page.$$eval(`.phone[data-name="${name}"] .talk .log .msg`, (all) => all.length);
    await page.locator('.phone[data-name="bob"] .list li button').first().click();
    await noteLit(page);
    await page.click('.replay .pause');
    await say(page, 'alice', 'held');
    await until('the server is done', () => watch.events.some(({ step }) => step === 'acked'), 5000);
    await page.waitForFunction(() => /\(\d+\)/.test(document.querySelector('.replay .step').textContent));
    assert.deepEqual(await lit(page), [], 'the picture is held');
    assert.deepEqual(await shown(page, 'messages'), []);
    assert.equal(await bodies('bob'), 0);

    const seen = [];
    const step = async (name) => {
      while (seen.at(-1) !== name) {
        await page.click('.replay .step');
        const [now, ...more] = await lit(page);
        assert.ok(now && more.length === 0, `one step each: ${[now, ...more]}`);
        seen.push(now);
      }
    };
    await step('stored');
    assert.deepEqual((await shown(page, 'messages')).map(({ seq }) => seq), [1]);
    assert.deepEqual(await shown(page, 'message_status'), [], 'the ack is not shown yet');
    assert.equal(await bodies('bob'), 0);
    await step('written');
    await until('his phone shows it', async () => await bodies('bob') === 1);
    await step('acked');
    assert.deepEqual((await shown(page, 'message_status')).find((row) => row.user_id === users[1]), { user_id: users[1], conversation_id, last_delivered_seq: 1, last_read_seq: 0 });
    await page.click('.replay .pause');
    await until('the ticks are blue', async () => (await ticks(page)).join() === 'read', 15_000);
    await assertRows(page, server);
  });

  test('shows steps at the speed that is asked for, and the server keeps its own', async (t) => {
    const { page, users } = await open(t);
    const watch = await Watch.start(t, server, users);
    await page.evaluate(() => {
      globalThis.times = [];
      new MutationObserver(() => globalThis.times.push(performance.now())).observe(document.querySelector('.steplog ol'), { childList: true });
    });
    const gaps = (times) => times.slice(1).map((time, n) => time - times[n]);
    await page.selectOption('.replay .speed', '1000');
    await say(page, 'alice', 'slowly');
    await until('the server is done', () => watch.events.some(({ step }) => step === 'sent'), 3000);
    const own = watch.events.filter(({ step }) => SEND_ONLINE.includes(step)).map(({ at }) => at);
    assert.ok(Math.max(...gaps(own)) < 800, `the server waited: ${gaps(own)}`);
    await until('some steps are shown', () => page.evaluate(() => globalThis.times.length >= 4), 15_000);
    const slow = gaps(await page.evaluate(() => globalThis.times));
    assert.ok(Math.min(...slow) >= 900, `gaps of ${slow}`);
    await page.selectOption('.replay .speed', 'live');
    await until('the rest is shown', async () => (await shown(page, 'message_status')).some((row) => row.last_delivered_seq === 1), 5000);
    await assertRows(page, server);
  });

  test('starts over with new people and empty tables', async (t) => {
    const { page, users } = await open(t);
    await say(page, 'alice', 'hello');
    await until('a message is shown', async () => (await shown(page, 'messages')).length === 1);
    await page.click('.over');
    await page.waitForFunction((alice) => document.body.dataset.ready && document.body.dataset.ready !== alice, users[0]);
    for (const table of ['messages', 'pending_deliveries', 'message_status', 'conversations', 'inbox']) assert.deepEqual(await shown(page, table), [], table);
    await until('both are connected', async () => (await shown(page, 'ws')).length === 2);
    assert.ok((await shown(page, 'ws')).every(({ key }) => !users.includes(key.slice(3))));
    await until('the others have left', async () => (await server.cli('inspect', 'sessions', '--user', users[0], '--json')).length === 0);
    await assertRows(page, server);
    // An address without a number gets an unused one.
    const other = await page.context().newPage();
    await other.goto(server.page('/tour'));
    await other.waitForSelector('body[data-ready]');
    assert.notEqual(await other.getAttribute('body', 'data-ready'), await page.getAttribute('body', 'data-ready'));
    assert.deepEqual(await shown(other, 'messages'), []);
    await other.close();
    // A reload keeps the users.
    const address = page.url();
    await page.reload();
    await page.waitForSelector('body[data-ready]');
    assert.equal(page.url(), address);
  });

  test('goes on where a person was faster', async (t) => {
    const { page } = await open(t);
    await page.click('[data-story="online"]');
    await pauseAt(page, 0);
    await page.click('.walk .next');
    await pauseAt(page, 1);
    await page.locator('.phone[data-name="bob"] .list li button').first().click();
    await until('he has read', async () => (await shown(page, 'message_status')).some((row) => row.last_read_seq === 1));
    await page.click('.walk .next');
    await pauseAt(page, 2, 15_000);
  });

  test('is used by keyboard alone', async (t) => {
    const { page, users: [, bob] } = await open(t);
    await page.focus('.phone[data-name="bob"] .switch');
    await page.keyboard.press('Space');
    await page.waitForSelector('.phone[data-name="bob"] .switch[aria-checked="false"]');
    await until('he is gone', async () => (await shown(page, 'ws')).length === 1);
    await page.focus('.phone[data-name="alice"] textarea');
    await page.keyboard.type('by hand');
    await page.keyboard.press('Enter');
    await until('he is owed it', async () => (await shown(page, 'pending_deliveries')).some((row) => row.receiver_id === bob));
    await page.focus('.node[data-step="looked_again"] button');
    await page.keyboard.press('Enter');
    assert.match(await page.textContent('.telling .card'), /R2/);
    await page.focus('.phone[data-name="bob"] .switch');
    await page.keyboard.press('Enter');
    await until('he has it', async () => (await shown(page, 'message_status')).some((row) => row.last_delivered_seq === 1));
    await assertRows(page, server);
  });

  test('Carol comes when she is asked for', async (t) => {
    const { page, users: [alice, , carol] } = await open(t);
    assert.equal(await page.isVisible('.phone[data-name="carol"]'), false);
    await page.click('.switch.carol');
    await page.waitForSelector('.phone[data-name="carol"][data-state="online"]');
    await until('she is connected', async () => (await shown(page, 'ws')).length === 3);
    await server.send(alice, carol, 'hello Carol');
    await until('there is a message for her', async () => (await shown(page, 'messages')).some(({ receiver }) => receiver === carol));
    await assertRows(page, server);
    await page.click('.switch.carol');
    await until('she has left', async () => (await shown(page, 'ws')).length === 2);
  });

  test('says so when the server is away, and wants the new address when it is back', async (t) => {
    const own = await Server.start();
    t.after(() => own.end());
    const { page, users } = await openTour(t, browser, own, { allow: [/Failed to load resource|WebSocket connection/] });
    await say(page, 'alice', 'before');
    await until('it is shown', async () => (await shown(page, 'messages')).length === 1);
    await own.kill();
    await page.waitForSelector('.rail .away:not([hidden])');
    const before = own.demoKey;
    await own.start();
    assert.notEqual(own.demoKey, before, 'every start has a key of its own');
    await page.waitForSelector('.absent', { timeout: 30_000 });
    assert.match(await page.textContent('.absent h2'), /earlier start/);
    await page.goto(own.page(`/tour?n=${Number(/\d*$/.exec(users[0])[0]) || 1}`));
    await page.waitForSelector('body[data-ready]');
    for (const name of ['alice', 'bob']) await page.waitForSelector(`.phone[data-name="${name}"][data-state="online"]`, { timeout: 30_000 });
    await noteLit(page);
    await say(page, 'alice', 'after');
    await until('it was delivered', async () => (await shown(page, 'message_status')).some((row) => row.last_delivered_seq === 2));
    await until('the steps are told again', () => page.evaluate(() => globalThis.lit.includes('sent')));
    await assertRows(page, own);
    await page.context().close();
  });

  test('waits for its turn where too many watch', async (t) => {
    const own = await Server.start();
    const others = new AbortController();
    const watch = () => fetch(`${own.url}/demo/events?users=somebody`, { signal: others.signal, headers: own.demoHeaders });
    // Kept in a list: the garbage collector closes a response that nothing refers to, which frees its place.
    const watching = [await watch()];
    while (watching.at(-1).ok) watching.push(await watch());
    const page = await openPage(t, browser, own.page('/tour'), { allow: [/503/] });
    t.after(() => own.end());
    await page.waitForSelector('.rail .away:not([hidden])');
    assert.ok(watching.length > 1);
    others.abort();
    await page.waitForSelector('body[data-ready]');
    await page.waitForSelector('.rail .away', { state: 'hidden' });
    await page.context().close();
  });

  test('lights up the push where there is a provider', async (t) => {
    const pushes = [];
    const provider = createServer((request, response) => { pushes.push(request.url); request.resume(); response.writeHead(204).end(); });
    await new Promise((resolve) => { provider.listen(0, '127.0.0.1', resolve); });
    t.after(() => provider.close());
    const pushing = await Server.start({
      BLUETICK_PUSH__WEBHOOK__URL: `http://127.0.0.1:${provider.address().port}/push`,
      BLUETICK_PUSH__WEBHOOK__SECRET: 'long enough to be a secret of a webhook',
    });
    t.after(() => pushing.end());
    const { page, users: [alice, bob] } = await openTour(t, browser, pushing);
    await pushing.as(bob, 'PUT', '/v1/devices/pager/push', { provider: 'webhook', token: 'pager-17' });
    await page.click('.phone[data-name="bob"] .switch');
    await until('he is gone', async () => (await shown(page, 'ws')).length === 1);
    await say(page, 'alice', 'look at your phone');
    await page.waitForSelector('.node[data-step="pushed"]:is([data-state="now"], [data-state="done"])');
    assert.equal(pushes.length, 1);
    assert.match(await page.textContent('.lane[data-lane="send"] .of'), new RegExp(`${alice} →\\s+${bob}, seq 1`));
    await page.context().close();
  });

  test('says so to who is not on this machine', async (t) => {
    // A proxy on this machine may ask on behalf of anybody.
    const context = { extraHTTPHeaders: { 'x-forwarded-for': '203.0.113.7' } };
    const page = await openPage(t, browser, server.page('/tour'), { allow: [/404/], context });
    await page.waitForSelector('.absent');
    assert.match(await page.textContent('.absent'), /demo mode only/);
    assert.equal(await page.getAttribute('.absent a', 'href'), '/v1/docs');
  });
});

/** The ticks on Alice's phone, from the top. */
const ticks = (page) => page.$$eval('.phone[data-name="alice"] .talk .log .ticks', (all) => all.map((one) => one.dataset.tick));
