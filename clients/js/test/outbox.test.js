// Messages that are written here: stored before they go out, sent once, failed ones visible.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BluetickError, memoryStorage } from '../src/index.js';
import { FakeClock } from './clock.js';
import { message } from './fake-server.js';
import { event, online, quiet, scene, until } from './setup.js';

const ids = (server) => server.frames('send').map(({ client_msg_id }) => client_msg_id);

/** A storage whose writes end when the test says so. */
function slowStorage() {
  const inner = memoryStorage();
  const gates = [];
  return {
    gates,
    async open(user, device) {
      const saved = await inner.open(user, device);
      return {
        ...saved,
        put: async (row) => {
          await new Promise((resolve, reject) => gates.push({ resolve, reject }));
          return saved.put(row);
        },
      };
    },
  };
}

test('a message is there at once, goes out, and its tick follows', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const session = await online(bob, server);
  const sent = bob.send('alice', 'hello');
  assert.equal(sent.tick, 'waiting');
  assert.deepEqual(bob.conversation('alice').messages, [sent]);
  assert.equal(await sent.sent, sent);
  assert.deepEqual([sent.tick, sent.seq, sent.messageId, sent.ts], ['sent', 1, '2001', 7]);
  assert.deepEqual(bob.conversation('alice').messages, [sent], 'the same object stays');
  session.send({ type: 'ticks', conversation_id: 'alice~bob', user_id: 'alice', last_delivered_seq: 1, last_read_seq: 0 });
  await event(bob, 'ticks');
  assert.deepEqual([sent.tick, bob.conversation('alice').lastTick], ['delivered', 'delivered']);
  session.send({ type: 'ticks', conversation_id: 'alice~bob', user_id: 'alice', last_delivered_seq: 1, last_read_seq: 1 });
  await event(bob, 'ticks');
  assert.equal(sent.tick, 'read');
});

test('no frame goes out before the message is stored', async (t) => {
  const { server, client } = await scene(t);
  const storage = slowStorage();
  const bob = client({ storage });
  await online(bob, server);
  const first = bob.send('alice', 'one');
  bob.send('alice', 'two');
  await until(() => storage.gates.length === 2);
  storage.gates[1].resolve();
  await quiet();
  assert.deepEqual(ids(server), [], 'nor does a later one overtake it');
  storage.gates[0].resolve();
  await first.sent;
  await server.until('send', 2);
  assert.deepEqual(server.frames('send').map(({ body }) => body), ['one', 'two']);
});

test('a message that cannot be stored fails, and can be tried again', async (t) => {
  const { server, client } = await scene(t);
  const storage = slowStorage();
  const bob = client({ storage });
  await online(bob, server);
  const lost = bob.send('alice', 'one');
  await until(() => storage.gates.length === 1);
  storage.gates[0].reject(new Error('the disk is full'));
  await assert.rejects(lost.sent, { code: 'storage_failed' });
  assert.equal(lost.tick, 'failed');
  assert.deepEqual(ids(server), []);
  await until(() => storage.gates.length === 2, 'the failure is stored too');
  storage.gates[1].resolve();
  bob.conversation('alice').retry(lost);
  await until(() => storage.gates.length === 3);
  storage.gates[2].resolve();
  await lost.sent;
});

test('what was under way goes out again with the same id, and is there once', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  await online(bob, server);
  await bob.conversation('alice').load();
  server.on.send = (frame, session) => {
    server.stored.push(frame);
    session.cut();
    delete server.on.send;
  };
  const sent = bob.send('alice', 'hello');
  await sent.sent;
  assert.deepEqual(ids(server), [sent.clientMsgId, sent.clientMsgId]);
  assert.equal(server.stored.length, 1);
  assert.deepEqual(bob.conversation('alice').messages, [sent]);
});

test('what is written offline waits, and survives a restart in order', async (t) => {
  const { server, client } = await scene(t);
  const storage = memoryStorage();
  const first = client({ storage });
  const written = ['one', 'two', 'three'].map((body) => first.send('alice', { body, meta: { body } }));
  await until(() => first.device !== '');
  await quiet();
  const device = first.device;
  await first.close();
  await assert.rejects(written[0].sent, { code: 'closed' });

  const second = client({ storage });
  const early = second.send('alice', 'four');
  await until(() => second.conversation('alice').messages.length === 4);
  assert.deepEqual(second.conversation('alice').messages.map(({ body, tick }) => [body, tick]), [
    ['one', 'waiting'], ['two', 'waiting'], ['three', 'waiting'], ['four', 'waiting'],
  ]);
  await online(second, server);
  await early.sent;
  assert.equal(server.frames('hello')[0].device, device, 'it is the same device');
  assert.deepEqual(server.stored.map(({ body }) => body), ['one', 'two', 'three', 'four']);
  assert.deepEqual(server.stored[0].meta, { body: 'one' });
  assert.equal(server.stored[0].client_msg_id, written[0].clientMsgId);

  await second.close();
  const third = client({ storage });
  await online(third, server);
  await quiet();
  assert.equal(ids(server).length, 4, 'what was sent has left the outbox');
});

test('a refused message stays, with its error, until it is tried again', async (t) => {
  const { server, client } = await scene(t);
  const storage = memoryStorage();
  const bob = client({ storage });
  await online(bob, server);
  server.on.send = ({ ref }, session) => session.error(ref, 'blocked');
  const failed = bob.send('alice', 'hello');
  const told = event(bob, 'failed');
  await assert.rejects(failed.sent, (error) => error instanceof BluetickError && error.code === 'blocked');
  assert.equal(await told, failed);
  assert.deepEqual([failed.tick, failed.error.code], ['failed', 'blocked']);
  assert.deepEqual(bob.conversation('alice').messages, [failed]);
  await quiet();
  await bob.close();

  const again = client({ storage });
  await online(again, server);
  const [kept] = again.conversation('alice').messages;
  assert.deepEqual([kept.tick, kept.error.code, kept.body], ['failed', 'blocked', 'hello']);
  assert.equal(ids(server).length, 1, 'it does not go out by itself');
  delete server.on.send;
  again.conversation('alice').retry(kept);
  assert.equal(kept.tick, 'waiting');
  assert.equal(await kept.sent, kept);
  assert.deepEqual(ids(server), [failed.clientMsgId, failed.clientMsgId]);
});

test('an id that names another message fails, stays visible, and is not sent again', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  await online(bob, server);
  server.on.send = ({ ref }, session) => session.error(ref, 'client_msg_id_conflict', { message: 'it names message 7' });
  const failed = bob.conversation('alice').send({ body: 'other words', clientMsgId: 'order-17' });
  await assert.rejects(failed.sent, { code: 'client_msg_id_conflict' });
  assert.deepEqual([failed.tick, failed.error.code, failed.error.retryable], ['failed', 'client_msg_id_conflict', false]);
  assert.deepEqual(bob.conversation('alice').messages, [failed]);
  const back = event(bob, 'caughtUp');
  server.session.cut();
  await back;
  await quiet();
  assert.deepEqual(ids(server), ['order-17'], 'a new connection does not send it again');
});

test('a discarded message is gone, and does not go out', async (t) => {
  const { server, client } = await scene(t);
  const storage = memoryStorage();
  const bob = client({ storage });
  const one = bob.send('alice', 'one');
  const two = bob.send('alice', 'two');
  bob.conversation('alice').discard(one);
  await assert.rejects(one.sent, { code: 'aborted' });
  assert.deepEqual(bob.conversation('alice').messages, [two]);
  await online(bob, server);
  await two.sent;
  assert.deepEqual(server.stored.map(({ body }) => body), ['two']);
  await quiet();
  assert.deepEqual((await storage.open('bob')).outbox, []);
});

test('a discarded message that the server had taken comes back as sent', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const session = await online(bob, server);
  const alice = bob.conversation('alice');
  await alice.load();
  const usual = [];
  server.on.send = (frame) => usual.push(frame);
  const discarded = async (clientMsgId) => {
    const message = alice.send({ body: clientMsgId, clientMsgId });
    await server.when(() => ids(server).includes(clientMsgId), clientMsgId);
    alice.discard(message);
    assert.ok(!alice.messages.includes(message));
    await assert.rejects(message.sent, { code: 'aborted' });
    return message;
  };
  const one = await discarded('c1');
  const told = event(bob, 'sent');
  session.send({ type: 'sent', ref: 'c1', client_msg_id: 'c1', conversation_id: 'alice~bob', seq: 1, message_id: '2001', ts: 7, duplicate: false });
  assert.equal(await told, one);
  assert.deepEqual([alice.messages, one.tick, one.error, await one.sent], [[one], 'sent', undefined, one]);

  const two = await discarded('c2');
  session.message(2, { sender: 'bob', client_msg_id: 'c2' });
  await until(() => two.tick === 'sent', 'also if it comes as a message');
  assert.deepEqual(alice.messages, [one, two]);

  const three = await discarded('c3');
  session.error('c3', 'blocked');
  session.message(3, { sender: 'bob', client_msg_id: 'c3' });
  await until(() => alice.messages.length === 3);
  assert.deepEqual([three.tick, alice.messages[2] === three], ['failed', false], 'what was refused is forgotten');
});

test('a discarded id may be used again while the first is still being stored', async (t) => {
  const { client } = await scene(t);
  const storage = memoryStorage();
  const gates = [];
  const slow = {
    async open(...args) {
      const saved = await storage.open(...args);
      return { ...saved, put: async (row) => (await saved.put(row), new Promise((resolve) => gates.push(resolve))) };
    },
  };
  const bob = client({ storage: slow });
  const alice = bob.conversation('alice');
  const first = alice.send({ body: 'a', clientMsgId: 'x' });
  await until(() => gates.length === 1);
  alice.discard(first);
  const second = alice.send({ body: 'b', clientMsgId: 'x' });
  await until(() => gates.length === 2);
  for (const open of gates) open();
  await quiet();
  assert.deepEqual(alice.messages, [second]);
  assert.deepEqual((await storage.open('bob')).outbox.map(({ send }) => send.body), ['b']);
});

test('what waited for more than 30 days is not sent blindly', async (t) => {
  const { server, client } = await scene(t);
  const storage = memoryStorage();
  const day = 24 * 3600 * 1000;
  const first = client({ storage, now: () => Date.now() - 31 * day });
  first.send('alice', 'old');
  await quiet();
  await first.close();
  const second = client({ storage });
  await online(second, server);
  const [old] = second.conversation('alice').messages;
  assert.deepEqual([old.tick, old.error.code], ['failed', 'too_old']);
  await quiet();
  assert.deepEqual(ids(server), []);
});

test('what the server refuses for the moment is tried again by itself', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  const bob = client(clock.options);
  await online(bob, server);
  server.on.send = ({ ref }, session) => session.error(ref, 'rate_limited', { retry_after_ms: 700 });
  const sent = bob.send('alice', 'hello');
  await server.until('send');
  await until(() => clock.waits.includes(700));
  delete server.on.send;
  clock.advance(699);
  await quiet();
  assert.equal(ids(server).length, 1);
  clock.advance(1);
  await sent.sent;
  assert.equal(sent.tick, 'sent');
});

test('a message that comes back settles its outbox entry, also in a page of history', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const session = await online(bob, server);
  server.on.send = () => {};
  const one = bob.send('alice', { body: 'one', clientMsgId: 'c1' });
  const two = bob.send('alice', { body: 'two', clientMsgId: 'c2' });
  await server.until('send', 2);
  session.message(1, { sender: 'bob', client_msg_id: 'c1', body: 'one' });
  await one.sent;
  const page = [message(1, { sender: 'bob', client_msg_id: 'c1' }), message(2, { sender: 'bob', client_msg_id: 'c2' })];
  server.on.history = ({ ref }) => session.send({ type: 'history', ref, conversation_id: 'alice~bob', messages: page, from_seq: 1, to_seq: 2, next: null });
  const other = bob.conversation('alice');
  assert.deepEqual(other.messages, [one, two]);
  other._reset();
  await two.sent;
  await until(() => !other.loading);
  assert.deepEqual(other.messages, [one, two]);
  assert.deepEqual(other.messages.map(({ tick }) => tick), ['sent', 'sent']);
});

test('seen_seq is what had come as message when it was written', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const session = await online(bob, server);
  session.message(1);
  await event(bob, 'message');
  server.on.send = () => {};
  bob.send('alice', 'one');
  await server.until('send');
  session.message(2);
  await event(bob, 'message');
  session.cut();
  await server.until('send', 2);
  assert.deepEqual(server.frames('send').map(({ seen_seq }) => seen_seq), [1, 1]);
  bob.send('carol', 'hi');
  assert.equal((await server.until('send', 3)).seen_seq, 0);
});

test('what can never be sent is refused at once', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const code = (expected) => (error) => error instanceof BluetickError && error.code === expected;
  assert.throws(() => bob.send('alice', ''), code('empty_body'));
  assert.throws(() => bob.send('bob', 'me'), code('to_self'));
  assert.throws(() => bob.send('a b', 'x'), code('invalid_id'));
  assert.throws(() => bob.send('alice', { body: 'x', clientMsgId: 'a b' }), code('invalid_id'));
  assert.throws(() => bob.send('alice', { body: 'x', meta: { half: '\ud800' } }), code('bad_request'));
  assert.throws(() => bob.send('alice', { body: 'x', meta: { long: 'x'.repeat(5000) } }), code('bad_request'));
  server.welcome = { max_body_bytes: 10 };
  await online(bob, server);
  assert.equal(bob.limits.maxBodyBytes, 10);
  assert.throws(() => bob.send('alice', 'ééééé!'), code('body_too_large'));
  assert.equal(bob.conversation('alice').messages.length, 0);
  const odd = bob.send('alice', 'half \ud800');
  assert.equal(odd.body, 'half \ufffd');
  await bob.close();
  assert.throws(() => bob.send('alice', 'late'), code('closed'));
});

test('the same clientMsgId is the same message', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const one = bob.send('alice', { body: 'answer', clientMsgId: 're-17' });
  assert.equal(bob.send('alice', { body: 'answer', clientMsgId: 're-17' }), one);
  await online(bob, server);
  await one.sent;
  const again = bob.send('alice', { body: 'answer', clientMsgId: 're-17' });
  await again.sent;
  assert.equal(server.stored.length, 1);
  assert.equal(again.seq, one.seq);
  assert.equal(bob.conversation('alice').messages.length, 1);
});
