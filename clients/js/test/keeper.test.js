// What the device remembers: written while it is busy, when it ends, and again when a write has failed.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memoryStorage } from '../src/index.js';
import { FakeClock } from './clock.js';
import { event, online, quiet, scene, until } from './setup.js';

/** A storage whose `keep` can be watched and made to fail. */
function watched() {
  const inner = memoryStorage();
  const told = { keeps: [], failures: 0, before: (/** @type {any} */ changes) => void changes };
  const open = async (...args) => {
    const saved = await inner.open(...args);
    const keep = async (changes) => {
      if (told.failures > 0) {
        told.failures -= 1;
        throw new Error('no room');
      }
      told.before(changes);
      told.keeps.push(changes);
      return saved.keep(changes);
    };
    return { ...saved, keep };
  };
  return { storage: { open }, told, kept: async () => (await inner.open('bob')).kept };
}

/** Waits a moment only for what will never be stored, when it closes. */
const hasty = { setTimeout: (then, ms) => setTimeout(then, ms === 3_000 ? 1 : ms) };

const head = (peer, last_seq) => ({ conversation_id: [peer, 'bob'].sort().join('~'), last_seq });

test('a busy client keeps its place, and nothing that it does not hold', async (t) => {
  const { server, client } = await scene(t);
  const { storage, told, kept } = watched();
  const got = [];
  const gates = [];
  const wrong = [];
  told.before = ({ device, 'alice~bob': alice }) => {
    const covered = Math.max(Number(device?.cursor ?? 0) - 1000, alice?.heard ?? 0, alice?.seen?.settled ?? 0, alice?.seen?.ranges.at(-1)?.[1] ?? 0);
    if (covered > got.length) wrong.push(`${covered} is covered, and ${got.length} are held`);
  };
  const receive = ({ seq }) => new Promise((resolve) => gates.push(() => (got.push(seq), resolve())));
  const first = client({ ...hasty, storage, receive });
  const session = await online(first, server);
  for (let seq = 1; seq <= 9; seq += 1) session.message(seq);
  for (let n = 0; n < 5; n += 1) {
    await until(() => gates.length > n);
    gates[n]();
  }
  await until(() => gates.length === 6);
  await until(async () => (await kept())['alice~bob']?.heard === 5);
  assert.deepEqual((await kept())['alice~bob'].seen, { settled: 5, ranges: [[1, 5]] });
  assert.ok(told.keeps.length > 1);
  assert.deepEqual(wrong, []);
  // The process ends without a word; another begins with what is kept.
  const again = [];
  const second = client({ storage, receive: ({ seq }) => void again.push(seq) });
  const next = await online(second, server);
  for (let seq = 1; seq <= 9; seq += 1) next.message(seq);
  await until(() => again.length === 4);
  await quiet();
  assert.deepEqual(again, [6, 7, 8, 9]);
});

test('what repairs brought and is not held comes again as well', async (t) => {
  const { server, client } = await scene(t);
  const { storage, kept } = watched();
  const gates = [];
  const first = client({ ...hasty, storage, receive: () => new Promise((resolve) => gates.push(resolve)) });
  const session = await online(first, server);
  const page = ({ ref }, to) => {
    const messages = [2, 3, 4].map((seq) => ({ conversation_id: 'alice~bob', seq, message_id: String(1000 + seq), client_msg_id: `a-${seq}`, sender: 'alice', receiver: 'bob', body: 'm', ts: seq }));
    to.send({ type: 'history', ref, conversation_id: 'alice~bob', messages, from_seq: 2, to_seq: 4, next: null });
  };
  server.on.history = page;
  session.message(1);
  session.message(5);
  await until(() => gates.length === 1);
  gates[0]();
  await until(() => gates.length === 2);
  gates[1]();
  await until(() => gates.length === 3);
  await until(async () => (await kept())['alice~bob']?.seen.settled === 2);
  assert.deepEqual((await kept())['alice~bob'].seen.ranges, [[1, 2]]);
  const again = [];
  const second = client({ storage, receive: ({ seq }) => void again.push(seq) });
  (await online(second, server)).message(5);
  await until(() => again.length === 3);
  assert.deepEqual(again, [3, 4, 5]);
});

test('a read is written while a message waits to be held', async (t) => {
  const { server, client } = await scene(t);
  const { storage, kept } = watched();
  server.heads = [head('carol', 3)];
  server.on.read = () => {};
  const bob = client({ ...hasty, storage, receive: () => new Promise(() => {}) });
  const session = await online(bob, server);
  session.message(1);
  await quiet();
  bob.conversation('carol').read(3);
  await until(async () => (await kept())['bob~carol']?.read === 3);
  assert.equal((await kept())['alice~bob']?.seen?.ranges.length ?? 0, 0);
});

test('closing waits for a message that is being stored', async (t) => {
  const { server, client } = await scene(t);
  const { storage, kept } = watched();
  let store;
  const bob = client({ storage, autoRead: true, receive: () => new Promise((resolve) => (store = resolve)) });
  const session = await online(bob, server);
  session.message(1);
  session.message(2);
  await until(() => store);
  const closing = bob.close();
  await quiet();
  store();
  await closing;
  const { heard, seen, read } = (await kept())['alice~bob'];
  assert.deepEqual([heard, seen.ranges, read], [1, [[1, 1]], 1]);
});

test('closing does not wait for ever, nor for the next try', async (t) => {
  const { server, client } = await scene(t);
  const stuck = watched();
  const graces = [];
  const bob = client({ storage: stuck.storage, receive: () => new Promise(() => {}), setTimeout: (then, ms) => (ms === 3_000 ? graces.push(then) : setTimeout(then, ms)) });
  (await online(bob, server)).message(1);
  await until(async () => (await stuck.kept())['alice~bob']);
  const closing = bob.close();
  await until(() => graces.length === 1);
  graces[0]();
  await closing;
  assert.deepEqual((await stuck.kept())['alice~bob'].seen, { settled: 0, ranges: [] });
  const failing = watched();
  const pauses = [];
  const other = client({
    storage: failing.storage,
    receive: () => Promise.reject(new Error('the disk is full')),
    setTimeout: (then, ms) => (ms === 1_000 ? pauses.push(then) : setTimeout(then, ms)),
  });
  other.on('error', () => {});
  (await online(other, server)).message(1);
  await until(() => pauses.length === 1);
  await other.close();
  assert.deepEqual((await failing.kept())['alice~bob'].seen.ranges, []);
});

test('what could not be kept is kept later; the failure is told once', async (t) => {
  const { server, client } = await scene(t);
  const { storage, told, kept } = watched();
  const clock = new FakeClock();
  server.heads = [head('alice', 5), head('carol', 7)];
  const bob = client({ ...clock.options, storage });
  const errors = [];
  bob.on('error', ({ message }) => errors.push(message));
  await online(bob, server);
  bob.disconnect();
  told.failures = 2;
  bob.conversation('alice').read(5);
  await until(() => told.failures === 1);
  bob.conversation('carol').read(7);
  await quiet();
  assert.equal(told.failures, 1, 'the next try has its time');
  clock.advance(2_000);
  await until(() => told.failures === 0);
  await quiet();
  clock.advance(3_999);
  await quiet();
  assert.deepEqual(await kept(), {});
  clock.advance(1);
  await until(async () => Object.keys(await kept()).length === 2);
  assert.deepEqual([await kept(), errors], [{ 'alice~bob': { read: 5 }, 'bob~carol': { read: 7 } }, ['no room']]);
  // The server knows now, and the device may forget: also if that fails at first.
  told.failures = 1;
  await online(bob, server);
  await until(() => told.failures === 0);
  await quiet();
  clock.advance(2_000);
  await until(async () => Object.keys(await kept()).length === 0);
});

test('with receive the place is kept after a failure, at the latest when it closes', async (t) => {
  const { server, client } = await scene(t);
  const { storage, told, kept } = watched();
  const clock = new FakeClock();
  const bob = client({ ...clock.options, storage, receive: () => {} });
  bob.on('error', () => {});
  const session = await online(bob, server);
  await until(async () => (await kept()).device?.cursor === '1000');
  told.failures = 1;
  const message = event(bob, 'message');
  session.message(1);
  await message;
  await until(() => told.failures === 0);
  await server.until('ack');
  await quiet();
  assert.equal((await kept())['alice~bob'], undefined);
  await bob.close();
  assert.deepEqual([(await kept()).device.cursor, (await kept())['alice~bob'].heard], ['1001', 1]);
});
