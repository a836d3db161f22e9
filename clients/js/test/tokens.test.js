// Tokens: asked for once, in time, and not for ever.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeClock } from './clock.js';
import { event, online, quiet, scene, until } from './setup.js';

/** A JWT that nobody checks, ending at `exp`. */
const jwt = (exp, more = {}) => `h.${Buffer.from(JSON.stringify({ sub: 'bob', exp: exp / 1000, ...more })).toString('base64url')}.s`;

/** Lets the clock run, with time for what each second brings. */
async function run(clock, seconds) {
  for (let s = 0; s < seconds; s += 1) {
    clock.advance(1_000);
    for (let n = 0; n < 3; n += 1) await new Promise(setImmediate);
  }
}

/** A scene whose server asks for no sign of life. */
async function calm(t) {
  const made = await scene(t);
  made.server.welcome = { heartbeat_secs: 3600 };
  return { ...made, clock: new FakeClock() };
}

for (const [what, given] of [['the same token', (end) => jwt(end)], ['another with the same end', (end, n) => jwt(end, { n })]]) {
  test(`an application that keeps giving ${what} is asked a few times, and the server is told nothing`, async (t) => {
    const { server, client, clock } = await calm(t);
    let calls = 0;
    const end = clock.now + 100_000;
    const bob = client({ ...clock.options, token: () => given(end, ++calls) });
    await online(bob, server);
    await run(clock, 79);
    assert.equal(calls, 1);
    await run(clock, 60);
    assert.ok(calls > 2 && calls < 10, `${calls} calls`);
    assert.deepEqual(server.frames('auth'), []);
  });
}

test('a token that ends at once is not asked for at once', async (t) => {
  const { server, client, clock } = await calm(t);
  let calls = 0;
  const bob = client({ ...clock.options, token: () => jwt(clock.now + 100 + ++calls) });
  await online(bob, server);
  await run(clock, 20);
  assert.ok(calls > 5 && calls <= 11, `${calls} calls`);
});

test('a token that could not be renewed is asked for again while there is time', async (t) => {
  const { server, client, clock } = await calm(t);
  let calls = 0;
  const renewed = jwt(clock.now + 9e9);
  const bob = client({
    ...clock.options,
    token: () => {
      calls += 1;
      if (calls === 2) throw new Error('the back end is away');
      return calls === 1 ? jwt(clock.now + 100_000) : renewed;
    },
  });
  const errors = [];
  bob.on('error', ({ code }) => errors.push(code));
  await online(bob, server);
  await run(clock, 80);
  assert.deepEqual([calls, errors], [2, ['token_failed']]);
  await run(clock, 10);
  assert.equal((await server.until('auth')).token, renewed);
  await quiet();
  await run(clock, 60);
  assert.deepEqual([calls, server.sessions.length], [3, 1]);
});

test('the next renewal waits for the answer to this one', async (t) => {
  const { server, client, clock } = await calm(t);
  let calls = 0;
  const bob = client({ ...clock.options, token: () => jwt(clock.now + 10_000 + ++calls) });
  let answer;
  server.on.auth = ({ ref }, session) => (answer = () => session.send({ type: 'done', ref }));
  await online(bob, server);
  await run(clock, 9);
  await until(() => answer);
  await run(clock, 12);
  assert.deepEqual([calls, server.frames('auth').length], [2, 1]);
  answer();
  await quiet();
  await run(clock, 9);
  await server.until('auth', 2);
});

test('an auth that was not answered is nothing to the next session', async (t) => {
  const { server, client, clock } = await calm(t);
  server.on.auth = () => {};
  let calls = 0;
  const bob = client({ ...clock.options, token: () => jwt(clock.now + 100_000 + ++calls) });
  const session = await online(bob, server);
  await run(clock, 81);
  await server.until('auth');
  session.cut();
  await until(() => bob.state === 'waiting');
  clock.advance(50);
  await event(bob, 'caughtUp');
  await quiet();
  assert.deepEqual([server.sessions.length, server.frames('auth').length], [2, 1]);
});

test('many requests at once are one call for a token', async (t) => {
  const { server, client } = await scene(t);
  let calls = 0;
  let refused = 0;
  server.http = async ({ headers }) => {
    if (headers.authorization !== 'Bearer token-1') return { status: 200, body: { user_id: 'x' } };
    // Some hear of it before the new token is there, and some after.
    await new Promise((resolve) => setTimeout(resolve, (refused += 1) * 3));
    return { status: 401, body: { error: { code: 'token_expired', message: 'ended' } } };
  };
  const bob = client({
    token: async () => {
      const token = `token-${++calls}`;
      await new Promise((resolve) => setTimeout(resolve, 20));
      return token;
    },
  });
  await Promise.all(Array.from({ length: 40 }, (_, n) => bob.userProfile(`u${n}`)));
  assert.deepEqual([calls, refused], [2, 40]);
});

test('a token callback that never ends is given up', async (t) => {
  const { server, client, clock } = await calm(t);
  let calls = 0;
  const bob = client({ ...clock.options, token: () => (++calls === 1 ? new Promise(() => {}) : 'token') });
  bob.connect();
  await until(() => calls === 1);
  clock.advance(29_999);
  await quiet();
  assert.equal(bob.state, 'connecting');
  clock.advance(1);
  await until(() => bob.state === 'waiting');
  assert.equal(bob.reason.code, 'token_failed');
  clock.advance(bob.retryAt - clock.now);
  await event(bob, 'caughtUp');
  assert.equal(calls, 2);
});

test('when the network changes, a try that is stuck is made anew, and a young one is not', async (t) => {
  const { server, client, clock } = await calm(t);
  const calls = [];
  const bob = client({ ...clock.options, token: () => new Promise((resolve) => calls.push(resolve)) });
  const message = bob.send('alice', 'x');
  // What a page does when it comes to the front.
  const nudge = () => bob.conversation('alice').retry(message);
  bob.connect();
  await until(() => calls.length === 1);
  clock.advance(4_999);
  nudge();
  await quiet();
  assert.equal(calls.length, 1);
  clock.advance(1);
  nudge();
  await until(() => calls.length === 2);
  nudge();
  calls[0]('old');
  await quiet();
  assert.deepEqual([bob.state, server.sessions.length], ['connecting', 0]);
  calls[1]('new');
  await event(bob, 'caughtUp');
  assert.deepEqual(server.frames('hello').map(({ token }) => token), ['new']);
  // A server that takes the connection and says nothing.
  server.session.cut();
  server.greets = false;
  await until(() => bob.state === 'waiting');
  nudge();
  await until(() => calls.length === 3);
  calls[2]('third');
  await server.until('hello', 2);
  server.greets = true;
  clock.advance(5_000);
  nudge();
  await until(() => calls.length === 4);
  calls[3]('fourth');
  await event(bob, 'caughtUp');
});
