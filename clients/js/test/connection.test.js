// Coming, staying, leaving and coming back.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memoryStorage } from '../src/index.js';
import { FakeClock } from './clock.js';
import { event, online, quiet, scene, until } from './setup.js';

/** A JWT that nobody checks, ending at `exp`. */
const jwt = (exp) => `h.${Buffer.from(JSON.stringify({ sub: 'bob', exp: exp / 1000 })).toString('base64url')}.s`;

test('the states from connect to close', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const states = [];
  bob.on('state', (told) => states.push(told.state));
  assert.equal(bob.state, 'offline');
  await online(bob, server);
  assert.deepEqual([bob.state, bob.caughtUp, bob.reason], ['online', true, null]);
  bob.disconnect();
  assert.deepEqual([bob.state, bob.caughtUp, bob.retryAt], ['offline', false, null]);
  bob.connect();
  await event(bob, 'caughtUp');
  await bob.close();
  assert.deepEqual(states, ['connecting', 'online', 'offline', 'connecting', 'online', 'closed']);
  assert.throws(() => bob.connect(), { code: 'closed' });
});

test('a lost connection comes back, waiting longer each time, with full jitter', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  const bob = client({ ...clock.options, random: () => 0.5 });
  const session = await online(bob, server);
  server.greets = false;
  const waits = [];
  session.cut();
  for (let tries = 2; tries < 12; tries += 1) {
    await until(() => bob.state === 'waiting');
    waits.push(bob.retryAt - clock.now);
    clock.advance(bob.retryAt - clock.now);
    await server.until('hello', tries);
    server.session.cut();
  }
  assert.deepEqual(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 15_000, 15_000]);
  assert.equal(bob.reason.code, 'offline');
  server.greets = true;
  await until(() => bob.state === 'waiting');
  clock.advance(30_000);
  await event(bob, 'caughtUp');
  assert.equal(bob.reason, null);
  server.session.cut();
  await until(() => bob.state === 'waiting');
  assert.equal(bob.retryAt - clock.now, 100, 'who has caught up begins anew');
});

test('connect while waiting tries at once', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  const bob = client({ ...clock.options, random: () => 1 });
  (await online(bob, server)).bye('shutting_down', 60_000);
  await until(() => bob.state === 'waiting');
  assert.equal(bob.retryAt - clock.now, 60_000, 'the server knows when to come back');
  assert.equal(bob.reason.code, 'shutting_down');
  bob.connect();
  bob.connect();
  await event(bob, 'caughtUp');
  assert.equal(server.sessions.length, 2, 'two connects are one');
});

for (const code of ['replaced', 'too_many_sessions', 'unauthorized', 'erased']) {
  test(`after '${code}' it does not come back by itself`, async (t) => {
    const { server, client } = await scene(t);
    const clock = new FakeClock();
    const bob = client({ ...clock.options, token: () => 'token' });
    (await online(bob, server)).bye(code, 10);
    await until(() => bob.state === 'offline');
    assert.equal(bob.reason.code, code);
    clock.advance(3_600_000);
    await quiet();
    assert.equal(server.sessions.length, 1);
    bob.connect();
    await event(bob, 'caughtUp');
  });
}

for (const code of ['token_expired', 'token_revoked']) {
  test(`after ${code} it comes back with a fresh token, if it can get one`, async (t) => {
    const { server, client } = await scene(t);
    let n = 0;
    const bob = client({ token: async () => `token-${++n}` });
    (await online(bob, server)).bye(code);
    await event(bob, 'caughtUp');
    assert.deepEqual(server.frames('hello').map(({ token }) => token), ['token-1', 'token-2']);
    const fixed = client({ token: 'the only one', user: 'bob' });
    await online(fixed, server);
    server.session.bye(code);
    await until(() => fixed.state === 'offline');
    assert.equal(fixed.reason.code, code);
  });
}

test('a token is renewed before it ends', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  let n = 0;
  const tokens = [jwt(clock.now + 600_000), jwt(clock.now + 1_200_000), jwt(clock.now + 9e9)];
  const bob = client({ ...clock.options, token: () => tokens[n++] });
  await online(bob, server);
  // The silence of this test's server is no reason to leave.
  for (let s = 0; s < 530; s += 10) {
    clock.advance(10_000);
    server.session.send({ type: 'pong', server_time: 1 });
    await quiet();
  }
  assert.deepEqual(server.frames('auth'), []);
  clock.advance(10_000);
  assert.equal((await server.until('auth')).token, tokens[1]);
  assert.equal(server.sessions.length, 1);
});

test('a token callback that fails is tried again', async (t) => {
  const { server, client } = await scene(t);
  let n = 0;
  const bob = client({
    token: () => {
      if (++n === 1) throw new Error('the back end is away');
      return 'token';
    },
  });
  const states = [];
  bob.on('state', () => states.push(bob.reason?.code));
  await online(bob, server);
  assert.ok(states.includes('token_failed'));
});

test('a token of another user is refused, and nothing is sent with it', async (t) => {
  const { server, client } = await scene(t);
  server.user = 'mallory';
  const bob = client();
  bob.send('alice', 'secret');
  bob.connect();
  await until(() => bob.reason?.code === 'wrong_user');
  await quiet();
  assert.equal(bob.state, 'offline');
  assert.deepEqual(server.frames('send'), []);
});

test('a connection that went silent is given up; one that answers is not', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  const bob = client(clock.options);
  await online(bob, server);
  for (let n = 1; n <= 5; n += 1) {
    clock.advance(20_000);
    await server.until('ping', n);
    await quiet();
  }
  assert.equal(bob.state, 'online');
  server.on.ping = () => {};
  clock.advance(20_000);
  await server.until('ping', 6);
  clock.advance(19_999);
  assert.equal(bob.state, 'online');
  clock.advance(1);
  assert.equal(bob.state, 'waiting');
  assert.match(bob.reason.message, /silent/);
});

test('when the browser says that the network is gone, the connection has to show that it lives', async (t) => {
  const { server, client } = await scene(t);
  const page = new EventTarget();
  for (const name of ['addEventListener', 'removeEventListener']) globalThis[name] = page[name].bind(page);
  globalThis.document = Object.assign(new EventTarget(), { visibilityState: 'visible' });
  // After the client's own end, which takes its listeners away.
  t.after(() => ['addEventListener', 'removeEventListener', 'document'].forEach((name) => delete globalThis[name]));
  const clock = new FakeClock();
  const bob = client(clock.options);
  await online(bob, server);
  page.dispatchEvent(new Event('offline'));
  await server.until('ping');
  await quiet();
  clock.advance(5_000);
  assert.equal(bob.state, 'online', 'it answered: the browser was wrong');
  server.on.ping = () => {};
  page.dispatchEvent(new Event('offline'));
  await server.until('ping', 2);
  clock.advance(5_000);
  assert.equal(bob.state, 'waiting');
});

test('a late timer is no silence', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  const late = [];
  const bob = client({ ...clock.options, setTimeout: (then, ms) => (ms === 20_000 ? late.push(then) : clock.options.setTimeout(then, ms)) });
  await online(bob, server);
  clock.advance(600_000);
  late.pop()();
  await server.until('ping');
  assert.equal(bob.state, 'online');
});

test('a server that never says welcome is given up', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  server.greets = false;
  const bob = client(clock.options);
  bob.connect();
  await server.until('hello');
  clock.advance(15_000);
  assert.equal(bob.state, 'waiting');
});

test('what comes from an old connection changes nothing', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const old = await online(bob, server);
  bob.disconnect();
  old.message(1);
  await quiet();
  assert.deepEqual(bob.conversations, []);
  await online(bob, server);
  old.cut();
  await quiet();
  assert.equal(bob.state, 'online');
  assert.equal(server.sessions.length, 2);
});

test('disconnect while connecting stays offline', async (t) => {
  const { server, client } = await scene(t);
  let give;
  const bob = client({ token: () => new Promise((resolve) => (give = resolve)) });
  bob.connect();
  await until(() => give);
  bob.disconnect();
  give('token');
  await quiet();
  assert.deepEqual([bob.state, server.sessions.length], ['offline', 0]);
  bob.connect();
  bob.disconnect();
  bob.connect();
  await quiet();
  give('token');
  await event(bob, 'caughtUp');
  assert.equal(server.sessions.length, 1);
});

for (const leave of ['disconnect', 'close']) {
  test(`who calls ${leave} while hearing of a loss stays away`, async (t) => {
    const { server, client } = await scene(t);
    const bob = client();
    const session = await online(bob, server);
    session.send({ type: 'presence', user_id: 'alice', online: true, last_seen: 1 });
    await event(bob, 'presence');
    bob.on('presence', () => bob[leave]());
    session.cut();
    await until(() => bob.state !== 'online');
    await quiet();
    await quiet();
    assert.deepEqual([bob.state, bob.retryAt, server.sessions.length], [leave === 'close' ? 'closed' : 'offline', null, 1]);
  });
}

test('disconnecting says what was just read', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const session = await online(bob, server);
  session.message(1);
  await event(bob, 'message');
  bob.conversation('alice').read(1);
  bob.disconnect();
  await server.until('read');
  assert.deepEqual(server.frames('read').map(({ seq }) => seq), [1]);
});

test('closing twice, and while it connects', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  bob.connect();
  await Promise.all([bob.close(), bob.close()]);
  await quiet();
  assert.deepEqual([bob.state, server.frames('hello').length], ['closed', 0]);
  await assert.rejects(bob.conversation('alice').load(), { code: 'closed' });
  const other = client();
  const loading = other.conversation('alice').load();
  await other.close();
  await assert.rejects(loading, { code: 'closed' });
});

test('a handler that throws disturbs neither the client nor the others', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const errors = [];
  const got = [];
  bob.on('error', (error) => errors.push(error.message));
  bob.on('message', () => {
    throw new Error('mine');
  });
  bob.on('message', async () => {
    throw new Error('mine, later');
  });
  bob.on('message', ({ seq }) => got.push(seq));
  const session = await online(bob, server);
  session.message(1);
  session.message(2);
  await until(() => errors.length === 4);
  assert.deepEqual(got, [1, 2]);
  assert.equal((await server.until('ack')).conversation_id, 'alice~bob');
});

test('frames can be watched, without the tokens', async (t) => {
  const { server, client } = await scene(t);
  const bob = client({ token: 'secret' });
  const seen = [];
  const off = bob.on('frame', (traced) => seen.push(traced));
  await online(bob, server);
  off();
  const count = seen.length;
  assert.deepEqual([seen[0].direction, seen[0].frame.type, seen[0].frame.token], ['out', 'hello', '…']);
  assert.equal(JSON.stringify(seen).includes('secret'), false);
  assert.equal(server.frames('hello')[0].token, 'secret');
  bob.send('alice', 'x');
  await server.until('send');
  assert.equal(seen.length, count);
});

test('a storage that cannot be opened is told, and tried again with the next connect', async (t) => {
  const { server, client } = await scene(t);
  let broken = true;
  const inner = memoryStorage();
  const bob = client({ storage: { open: async (...args) => (broken ? Promise.reject(new Error('in use')) : inner.open(...args)) } });
  const sent = bob.send('alice', 'x');
  await assert.rejects(sent.sent, { code: 'storage_failed' });
  bob.connect();
  await until(() => bob.state === 'offline' && bob.reason);
  assert.deepEqual([bob.reason.code, bob.reason.message, server.sessions.length], ['storage_failed', 'in use', 0]);
  broken = false;
  await online(bob, server);
  bob.conversation('alice').retry(sent);
  await sent.sent;
});

test('a frame that is not what it should be costs itself, and nothing else', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const errors = [];
  bob.on('error', (error) => errors.push(error));
  const session = await online(bob, server);
  session.send({ type: 'caught_up' });
  session.send({ type: 'inbox', ref: 'x' });
  session.message(1);
  await event(bob, 'message');
  assert.equal(errors.length, 2);
  assert.equal(bob.state, 'online');
});

test('what is not understood is left alone', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const session = await online(bob, server);
  session.send({ type: 'news_from_the_future', ref: 1 });
  session.send({ no: 'type' });
  session.message(1, { colour: 'red' });
  assert.equal((await event(bob, 'message')).seq, 1);
});
