// The examples do what they say.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { WebSocket } from 'ws';
import { Client, memoryStorage } from '../src/index.js';
import { startServer } from './real-server.js';
import { until } from './setup.js';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
let server;
before(async () => (server = await startServer()));
after(() => server?.close());

test('the bot answers every message once, though it is killed again and again', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'bluetick-bot-'));
  const env = { PATH: process.env.PATH, BLUETICK_URL: server.url, BLUETICK_STATE: join(directory, 'state'), BLUETICK_DEMO_KEY: await server.demoKey() };
  let bot;
  const start = () => (bot = spawn(process.execPath, [join(root, 'example/bot.js'), 'echo'], { env, stdio: ['ignore', 'inherit', 'inherit'] }));
  const kill = async (signal) => {
    bot.kill(signal);
    await once(bot, 'exit');
  };
  const alice = new Client({ url: server.url, user: 'alice', token: () => server.token('alice'), WebSocket, storage: memoryStorage() });
  t.after(async () => {
    if (bot.exitCode === null && bot.signalCode === null) await kill('SIGKILL');
    await alice.close();
    await rm(directory, { recursive: true });
  });
  const answers = [];
  alice.on('message', ({ body }) => answers.push(body));
  alice.connect();
  const sent = [];
  const say = (count) => {
    for (let n = 0; n < count; n += 1) sent.push(alice.send('echo', `n${sent.length}`));
  };
  say(5);
  start();
  await until(() => answers.length >= 3);
  await kill('SIGKILL');
  say(20);
  start();
  await until(() => answers.length >= 12);
  await kill('SIGKILL');
  start();
  await until(() => answers.length >= 25);
  await kill('SIGTERM');
  assert.equal(bot.exitCode, 0, 'it leaves in order');
  say(1);
  start();
  await until(() => answers.length >= 26);
  await until(() => sent.every(({ tick }) => tick === 'read'));
  assert.deepEqual(answers, sent.map(({ body }) => `You wrote: ${body}`));
});

/** A product's own site: its files, and behind the same address the chat server. */
async function productSite(t) {
  const types = { js: 'text/javascript', css: 'text/css', html: 'text/html' };
  const { hostname, port } = new URL(server.url);
  const onward = ({ method, url, headers }) => request({ hostname, port, method, path: url, headers });
  const site = createServer(async (asked, answer) => {
    const { pathname } = new URL(asked.url, 'http://site');
    if (!pathname.startsWith('/client/')) {
      const passed = onward(asked).on('response', (from) => from.pipe(answer.writeHead(from.statusCode, from.headers)));
      return void asked.pipe(passed);
    }
    const path = pathname.replace(/\/$/, '/index.html').slice('/client/'.length);
    answer.writeHead(200, { 'content-type': types[path.split('.').pop()] }).end(await readFile(join(root, path)));
  });
  site.on('upgrade', (asked, socket) => {
    const passed = onward(asked).on('upgrade', (from, to) => {
      socket.write(`HTTP/1.1 101 Switching Protocols\r\n${from.rawHeaders.map((text, n) => text + (n % 2 ? '\r\n' : ': ')).join('')}\r\n`);
      socket.pipe(to).pipe(socket);
      for (const end of [socket, to]) end.on('error', () => socket.destroy(to.destroy()));
    });
    passed.on('error', () => socket.destroy()).end();
  });
  site.listen(0, '127.0.0.1');
  await once(site, 'listening');
  t.after(() => (site.closeAllConnections(), site.close()));
  return `http://127.0.0.1:${site.address().port}`;
}

test('the page chats, in a browser', async (t) => {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'] });
  t.after(() => browser.close());
  const site = await productSite(t);
  const open = async (context, me, peer) => {
    const page = await context.newPage();
    const errors = [];
    page.on('pageerror', (error) => errors.push(error.message));
    await page.goto(`${site}/client/example/page/?me=${me}&peer=${peer}#demo=${await server.demoKey()}`);
    await page.waitForFunction(() => !/offline|connecting|waiting/.test(document.getElementById('about').textContent) && document.getElementById('peer').textContent !== '');
    return { page, errors, say: async (text) => (await page.fill('#text', text), await page.press('#text', 'Enter')) };
  };
  const ann = await open(await browser.newContext(), 'ann', 'ben');
  const context = await browser.newContext();
  const ben = await open(context, 'ben', 'ann');
  await ann.say('hello');
  await ben.page.waitForSelector('li:has-text("hello")');
  await ann.page.waitForSelector('li[data-state="read"]');
  await ben.say('hi');
  await ann.page.waitForSelector('li:not(.own):has-text("hi")');
  // Written offline, sent by the page that is there after the reload: once, by the same device.
  await context.setOffline(true);
  await ben.page.evaluate(() => globalThis.dispatchEvent(new Event('offline')));
  await ben.say('from the tunnel');
  await ben.page.waitForSelector('li:has-text("from the tunnel")');
  await context.setOffline(false);
  await ben.page.reload();
  await ann.page.waitForSelector('li:has-text("from the tunnel")');
  await ben.page.waitForSelector('li[data-state="read"]:has-text("from the tunnel")');
  const texts = (page) => page.$$eval('li', (items) => items.map((item) => item.textContent));
  assert.deepEqual(await texts(ann.page), ['hello', 'hi', 'from the tunnel']);
  assert.deepEqual(await texts(ben.page), ['hello', 'hi', 'from the tunnel']);
  // A second tab of the same person is another device, and neither ends the other.
  const tab = await open(context, 'ben', 'ann');
  await tab.say('from the second tab');
  await ben.page.waitForSelector('li.own:has-text("from the second tab")');
  await ben.say('and the first');
  await tab.page.waitForSelector('li.own:has-text("and the first")');
  // What a tab that was never online leaves behind goes out from those that are, once.
  const third = await context.newPage();
  await third.goto(`${site}/client/example/page/chat.css`);
  await third.evaluate(async () => {
    const { Client } = await import('/client/src/index.js');
    new Client({ user: 'ben', token: 'never asked for' }).send('ann', 'left behind');
    const isStored = () =>
      new Promise((resolve) => {
        const opening = indexedDB.open('bluetick', 1);
        opening.onsuccess = () => {
          const counting = opening.result.transaction('outbox').objectStore('outbox').count();
          counting.onsuccess = () => (opening.result.close(), resolve(counting.result > 0));
        };
      });
    while (!(await isStored())) await new Promise((resolve) => setTimeout(resolve, 10));
  });
  await third.close();
  await ann.page.waitForSelector('li:has-text("left behind")');
  for (const { page } of [ben, tab]) {
    await page.waitForSelector('li.own[data-state="read"]:has-text("left behind")');
    assert.equal((await texts(page)).filter((text) => text === 'left behind').length, 1);
  }
  assert.deepEqual([...ann.errors, ...ben.errors, ...tab.errors], []);
});
