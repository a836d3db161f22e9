// `receive`: a message is acked when the application holds it, and not before.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memoryStorage } from '../src/index.js';
import { event, online, quiet, scene, until } from './setup.js';

test('the ack waits for receive, and so does everything behind', async (t) => {
  const { server, client } = await scene(t);
  const gates = [];
  const bob = client({ receive: (message) => new Promise((resolve) => gates.push({ seq: message.seq, resolve })) });
  const told = [];
  bob.on('message', ({ seq }) => told.push(seq));
  const session = await online(bob, server);
  session.message(1);
  session.message(2);
  await until(() => gates.length === 1);
  await quiet();
  assert.deepEqual([gates.length, told, server.frames('ack').length], [1, [], 0]);
  gates[0].resolve();
  await until(() => gates.length === 2);
  assert.equal((await server.until('ack')).seq, 1);
  assert.deepEqual(told, [1]);
  gates[1].resolve();
  assert.equal((await server.until('ack', 2)).seq, 2);
});

test('a receive that fails is called again, and nothing is acked meanwhile', async (t) => {
  const { server, client } = await scene(t);
  let calls = 0;
  const timers = [];
  const bob = client({
    setTimeout: (then, ms) => (ms === 1_000 ? timers.push(then) : setTimeout(then, ms)),
    receive: async () => {
      if (++calls === 1) throw new Error('the disk is full');
    },
  });
  const errors = [];
  bob.on('error', ({ message }) => errors.push(message));
  const session = await online(bob, server);
  session.message(1);
  await until(() => timers.length === 1);
  // The connection may go and come: the message is still not held.
  session.cut();
  await event(bob, 'state', () => bob.state === 'online');
  server.session.message(1);
  await quiet();
  assert.deepEqual([calls, server.frames('ack').length, errors], [1, 0, ['the disk is full']]);
  timers[0]();
  await server.until('ack');
  await quiet();
  assert.equal(calls, 2);
});

test('receive may wait for its own answer to be sent', async (t) => {
  const { server, client } = await scene(t);
  const bob = client({ receive: (message) => bob.send(message.sender, { body: 're', clientMsgId: `re-${message.messageId}` }).sent.then(() => {}) });
  const session = await online(bob, server);
  session.message(1);
  await server.until('ack');
  assert.equal(server.stored.length, 1);
});

test('with receive the place in the stream outlives the process, without it does not', async (t) => {
  const { server, client } = await scene(t);
  for (const [receive, expected] of [[() => {}, '1001'], [undefined, undefined]]) {
    const storage = memoryStorage();
    const got = [];
    const first = client({ storage, receive });
    const session = await online(first, server);
    session.message(1);
    await event(first, 'message');
    await server.when(() => server.frames('ack').length > 0, 'ack');
    await quiet();
    await first.close();
    const second = client({ storage, receive: receive && ((message) => void got.push(message.seq)) });
    const again = await online(second, server);
    const hello = server.frames('hello').at(-1);
    assert.deepEqual([hello.cursor, hello.resumes], [expected, undefined]);
    if (receive) {
      again.message(1);
      again.message(2);
      await until(() => got.length > 0);
      assert.deepEqual(got, [2], 'what was held before is no news');
    }
    await second.close();
  }
});

test('a place in the stream that was kept is of no use to a client that keeps nothing', async (t) => {
  const { server, client } = await scene(t);
  const storage = memoryStorage();
  const first = client({ storage, receive: () => {} });
  await online(first, server);
  await quiet();
  await first.close();
  const kept = async () => Object.keys((await storage.open('bob')).kept);
  assert.deepEqual(await kept(), ['device']);
  await online(client({ storage }), server);
  assert.equal('cursor' in server.frames('hello').at(-1), false);
  const other = memoryStorage();
  const page = client({ storage: other });
  await online(page, server);
  await quiet();
  await page.close();
  assert.deepEqual((await other.open('bob')).kept, {});
});

test('what receive has not stored when the process ends comes again', async (t) => {
  const { server, client } = await scene(t);
  const storage = memoryStorage();
  const first = client({ storage, receive: () => new Promise(() => {}) });
  const session = await online(first, server);
  session.message(1);
  await quiet();
  first.conversation('carol').read(3);
  await quiet();
  await first.close();
  const got = [];
  const second = client({ storage, receive: (message) => void got.push(message.seq) });
  (await online(second, server)).message(1);
  await until(() => got.length === 1);
});

test('a read that was not said yet outlives the process, with receive and without', async (t) => {
  const { server, client } = await scene(t);
  for (const receive of [undefined, () => {}]) {
    const storage = memoryStorage();
    const first = client({ storage, receive });
    const last = event(first, 'message', ({ seq }) => seq === 7);
    const session = await online(first, server);
    for (let seq = 1; seq <= 7; seq += 1) session.message(seq);
    await last;
    first.disconnect();
    first.conversation('alice').read(7);
    await quiet();
    await first.close();
    const reads = server.frames('read').length;
    const second = client({ storage, receive });
    await online(second, server);
    assert.equal((await server.until('read', reads + 1)).seq, 7);
    await quiet();
    await second.close();
    const third = client({ storage, receive });
    await online(third, server);
    await quiet();
    assert.equal(server.frames('read').length, reads + 1, 'said and confirmed once');
    await third.close();
  }
});

test('read goes no further than what came as message', async (t) => {
  const { server, client } = await scene(t);
  const bob = client({ receive: () => {} });
  const session = await online(bob, server);
  session.message(1);
  await event(bob, 'message');
  server.on.history = ({ ref }) => session.send({ type: 'history', ref, conversation_id: 'alice~bob', messages: [], from_seq: 1, to_seq: 9, next: null });
  await bob.conversation('alice').load();
  bob.conversation('alice').read();
  assert.equal(bob.conversation('alice').ownRead, 1);
});
