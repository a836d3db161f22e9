// Tabs of one user: what one leaves unsent goes out from another, once.

import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { indexedDbStorage } from '../src/index.js';
import { message } from './fake-server.js';
import { Locks } from './locks.js';
import { online, quiet, scene, until } from './setup.js';

let browsers = 0;

/** A browser: tabs are clients that share its storage. */
async function browser(t, reloadMs = 1) {
  const { server, client } = await scene(t);
  const locks = new Locks();
  const name = `tabs-${++browsers}`;
  const storage = indexedDbStorage({ name, locks, reloadMs });
  const waiting = (slot) => locks.count(`bluetick:bob:${slot}`) - 1;
  /** All rows of all slots, as slot and text. */
  const rows = () =>
    new Promise((resolve, reject) => {
      const opening = indexedDB.open(name, 1);
      opening.onerror = () => reject(opening.error);
      opening.onsuccess = () => {
        const reading = opening.result.transaction('outbox').objectStore('outbox').getAll();
        reading.onsuccess = () => {
          opening.result.close();
          resolve(reading.result.map(({ slot, row }) => `${slot} ${row.send.body}`));
        };
      };
    });
  return { server, locks, waiting, rows, tab: (options = {}) => client({ storage, ...options }) };
}

const texts = (client) => client.conversation('alice').messages.map(({ body, tick }) => `${body} ${tick}`);

/** Written in a tab that has no connection. */
function unsent(tab, body) {
  const written = tab.send('alice', body);
  written.sent.catch(() => {});
  return written;
}

test('an open tab sends what a closed one left', async (t) => {
  const { server, waiting, rows, tab } = await browser(t);
  const first = tab();
  unsent(first, 'before');
  await until(async () => (await rows()).length === 1);
  const second = tab();
  await online(second, server);
  await until(() => waiting('0') === 1, 'the second waits for the slot of the first');
  unsent(first, 'after');
  await until(async () => (await rows()).length === 2);
  await quiet();
  assert.deepEqual([server.frames('send'), texts(second)], [[], []], 'as long as it is open they are its own');
  await first.close();
  await server.until('send', 2);
  await until(async () => (await rows()).length === 0);
  assert.deepEqual(server.stored.map(({ body }) => body), ['before', 'after']);
  assert.deepEqual(second.conversations.map(({ preview }) => preview), ['after']);
  assert.deepEqual(texts(second).filter((text) => !text.endsWith(' sent')), []);
});

test('it is known of slots that had nothing unsent when the tab was opened', async (t) => {
  const { server, waiting, rows, tab } = await browser(t);
  const first = tab();
  await online(first, server);
  const second = tab();
  await online(second, server);
  assert.equal(waiting('0'), 0);
  first.disconnect();
  unsent(first, 'late');
  await until(() => waiting('0') === 1);
  await until(async () => (await rows()).length === 1);
  await first.close();
  await until(() => server.stored.some(({ body }) => body === 'late'));
  await until(async () => (await rows()).length === 0);
});

test('of several tabs one takes it over; when that goes too, another', async (t) => {
  const { server, waiting, rows, tab } = await browser(t);
  const first = tab();
  unsent(first, 'shared');
  await until(async () => (await rows()).length === 1);
  const others = [tab(), tab(), tab()];
  await until(() => waiting('0') === 3);
  await first.close();
  await until(() => others.filter((other) => texts(other).length === 1).length === 1);
  await quiet();
  assert.deepEqual(others.map(texts).flat(), ['shared waiting'], 'shown once');
  const [row, ...more] = await rows();
  assert.match(row, /^[123] shared$/);
  assert.deepEqual(more, []);
  const heir = others.find((other) => texts(other).length === 1);
  await until(() => waiting(row[0]) === 2, 'the others wait for the heir now');
  await heir.close();
  await until(() => others.filter((other) => other !== heir && texts(other).length === 1).length === 1);
  for (const other of others) if (other !== heir) other.connect();
  await server.until('send');
  await until(async () => (await rows()).length === 0);
  assert.equal(server.frames('send').length, 1);
});

test('a reload gets back what is its own', async (t) => {
  const { server, waiting, rows, tab } = await browser(t, 60);
  const first = tab();
  unsent(first, 'mine');
  await until(async () => (await rows()).length === 1);
  const second = tab();
  await online(second, server);
  await until(() => waiting('0') === 1);
  await first.close();
  const reloaded = tab();
  await until(() => texts(reloaded).length === 1);
  await new Promise((resolve) => setTimeout(resolve, 120));
  assert.deepEqual([await rows(), texts(second), server.frames('send')], [['0 mine'], [], []]);
  await until(() => waiting('0') === 1, 'and is waited for again');
  await reloaded.close();
  await server.until('send');
});

test('what had got through is not shown twice', async (t) => {
  const { server, waiting, rows, tab } = await browser(t);
  const first = tab();
  const written = unsent(first, 'got through');
  await until(async () => (await rows()).length === 1);
  const second = tab();
  server.on.history = ({ ref }, session) =>
    session.send({ type: 'history', ref, conversation_id: 'alice~bob', from_seq: 1, to_seq: 1, next: null, messages: [message(1, { sender: 'bob', client_msg_id: written.clientMsgId, body: 'got through' })] });
  await online(second, server);
  await second.conversation('alice').load();
  assert.equal(texts(second).length, 1);
  await until(() => waiting('0') === 1);
  const seen = [];
  second.on('change', () => seen.push(texts(second).length));
  await first.close();
  await until(async () => (await rows()).length === 0);
  await quiet();
  assert.deepEqual([...new Set([...seen, texts(second).length])], [1]);
  // Only `sent` says that the recipient gets it, so it is sent again, with the same id.
  assert.deepEqual(server.frames('send').map(({ client_msg_id: id }) => id), [written.clientMsgId]);
});

test('a tab that closes while it waits leaves nothing behind', async (t) => {
  const { waiting, rows, tab } = await browser(t, 10_000);
  const first = tab();
  unsent(first, 'left');
  await until(async () => (await rows()).length === 1);
  const second = tab();
  await until(() => waiting('0') === 1);
  await first.close();
  await quiet();
  await second.close();
  assert.deepEqual([waiting('0'), waiting('1')], [-1, -1]);
  assert.deepEqual(await rows(), ['0 left']);
  const third = tab();
  await until(() => texts(third).length === 1, 'the next that opens has it');
});
