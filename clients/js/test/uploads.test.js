// Uploads that do not go as they should: later, elsewhere, taken back.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { error, fast, withAttachments } from './attachments.js';
import { FakeClock } from './clock.js';
import { online, quiet, scene, until } from './setup.js';

const later = (ms) => ({ status: 503, body: { error: { code: 'unavailable', message: 'the rest of the first is awaited', retry_after_ms: ms } } });
const isPut = ({ method }) => method === 'PUT';

/** A browser's XMLHttpRequest, as far as it is used; what happens is for the test to say. */
function withXhr(t) {
  const made = [];
  globalThis.XMLHttpRequest = class {
    upload = {};
    open() {}
    setRequestHeader() {}
    send() {
      made.push(this);
    }
    abort() {
      this.aborted = true;
      this.onabort?.();
      this.onloadend?.();
    }
    getResponseHeader() {
      return null;
    }
    answer(status) {
      Object.assign(this, { status, responseText: '' });
      this.onload();
      this.onloadend?.();
    }
  };
  t.after(() => delete globalThis.XMLHttpRequest);
  return made;
}

test('a server that asks to wait is waited for, far more often than six times', async (t) => {
  const { server, client } = await scene(t);
  let puts = 0;
  withAttachments(server, (request) => (isPut(request) && ++puts <= 12 ? later(5_000) : undefined));
  const bob = client(fast);
  await online(bob, server);
  await bob.send('alice', { file: new Blob(['x']) }).sent;
  assert.equal(puts, 13);
});

test('but not for ever', async (t) => {
  const { server, client } = await scene(t);
  let puts = 0;
  withAttachments(server, (request) => (isPut(request) ? (puts++, later(5_000)) : undefined));
  const bob = client(fast);
  await online(bob, server);
  const sent = bob.send('alice', { file: new Blob(['x']) });
  await assert.rejects(sent.sent, { code: 'unavailable' });
  assert.ok(puts > 50 && puts < 70, `five minutes, five seconds each: ${puts}`);
});

test('what another try cannot mend fails at once', async (t) => {
  const { server, client } = await scene(t);
  let puts = 0;
  withAttachments(server, (request) => (isPut(request) ? (puts++, { status: 404 }) : undefined));
  const bob = client(fast);
  await online(bob, server);
  await assert.rejects(bob.send('alice', { file: new Blob(['x']) }).sent, { status: 404 });
  assert.equal(puts, 1);
});

test('an upload that was too slow is made again, and a used-up quota ends it', async (t) => {
  const { server, client } = await scene(t);
  let puts = 0;
  let full = false;
  withAttachments(server, ({ method }) => {
    if (method === 'PUT' && ++puts === 1) return error(408, 'upload_too_slow');
    return full && method === 'POST' ? error(413, 'quota_exceeded') : undefined;
  });
  const bob = client(fast);
  await online(bob, server);
  await bob.send('alice', { file: new Blob(['x']) }).sent;
  assert.equal(puts, 2);
  full = true;
  await assert.rejects(bob.send('alice', { file: new Blob(['y']) }).sent, { code: 'quota_exceeded', status: 413 });
  assert.equal(puts, 2);
});

test('without a network an upload waits for the connection to be back, however long and often', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  withAttachments(server);
  let away = false;
  let outages = 0;
  const fetched = async (input, init) => {
    if (init.method === 'PUT' && !away && outages < 8) {
      outages += 1;
      away = true;
      server.greets = false;
      server.session.cut();
    }
    if (away) throw new TypeError('there is no network');
    return fetch(input, init);
  };
  const bob = client({ ...clock.options, fetch: fetched });
  await online(bob, server);
  const sent = bob.send('alice', { file: new Blob(['x']) });
  sent.sent.catch(() => {});
  while (outages < 8) {
    await until(() => (clock.advance(1_000), away && bob.state !== 'online'));
    for (let minutes = 0; minutes < 30; minutes += 1) {
      clock.advance(60_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.equal(sent.tick, 'waiting');
    away = false;
    server.greets = true;
  }
  await until(() => (clock.advance(1_000), sent.tick === 'sent'));
});

test('a try that fails while the connection seems to be there is not the end', async (t) => {
  const { server, client } = await scene(t);
  withAttachments(server);
  let tries = 0;
  const fetched = async (input, init) => {
    if (++tries <= 8) throw new TypeError('the network changed');
    return fetch(input, init);
  };
  const bob = client({ ...fast, fetch: fetched });
  await online(bob, server);
  await bob.send('alice', { file: new Blob(['x']) }).sent;
});

test('parts outlive their addresses: all of them again, with new ones', async (t) => {
  const { server, client } = await scene(t);
  const state = withAttachments(server, (request) => (isPut(request) && request.url === '/blobs/ref1.2' ? error(403, 'link_refused') : undefined));
  const bob = client(fast);
  await online(bob, server);
  const bytes = randomBytes(17 * 1024 * 1024);
  const sent = bob.send('alice', { file: new Blob([bytes]) });
  await sent.sent;
  assert.equal(state.announced.length, 2);
  assert.deepEqual(Buffer.concat([0, 1, 2].map((n) => state.uploaded.get(`ref2.${n}`))), bytes);
  assert.deepEqual(state.requests.filter((line) => line.endsWith('/complete')), ['POST /v1/attachments/ref2/complete']);
  assert.equal(sent.attachment.s3Ref, 'ref2');
});

test('an address that is about to end is not used; one that is refused again and again is', async (t) => {
  const { server, client } = await scene(t);
  let now = Date.now();
  let refuse = false;
  const place = (n) => ({ method: 'PUT', url: `${server.url}/blobs/ref${n}`, headers: { 'x-signed': 'yes' } });
  const state = withAttachments(server, (request, { announced }) => {
    if (request.url === '/v1/attachments') {
      const n = announced.push({});
      return { status: 201, body: { s3_ref: `ref${n}`, upload: place(n), expires_at: now + 3_600_000 } };
    }
    if (refuse) return error(403, 'link_refused');
    if (request.url !== '/blobs/ref1') return undefined;
    now += 3_590_000;
    return later(1);
  });
  const bob = client({ ...fast, now: () => now });
  await online(bob, server);
  const sent = bob.send('alice', { file: new Blob(['x']) });
  await sent.sent;
  assert.deepEqual([state.announced.length, sent.attachment.s3Ref], [2, 'ref2']);
  assert.equal(state.requests.filter((line) => line === 'PUT /blobs/ref1').length, 1);
  refuse = true;
  await assert.rejects(bob.send('alice', { file: new Blob(['y']) }).sent, { code: 'upload_failed', status: 403, message: /refused/ });
  assert.equal(state.announced.length, 8);
});

test('a bucket that hides the ETag is told as what it is', async (t) => {
  const { server, client } = await scene(t);
  const state = withAttachments(server, (request) => (isPut(request) ? { status: 200 } : undefined));
  const bob = client(fast);
  await online(bob, server);
  const sent = bob.send('alice', { file: new Blob([new Uint8Array(17 * 1024 * 1024)]) });
  await assert.rejects(sent.sent, { code: 'upload_failed', message: /CORS.*ETag/ });
  assert.equal(state.announced.length, 1);
  assert.equal(state.requests.filter((line) => line.endsWith('/complete')).length, 0);
});

test('taken back while it is announced: nothing is uploaded, and the announcement ends', async (t) => {
  const { server, client } = await scene(t);
  const made = withXhr(t);
  let answer;
  withAttachments(server, ({ url }) => (url === '/v1/attachments' ? new Promise((resolve) => (answer = () => resolve(undefined))) : undefined));
  let given;
  const bob = client({ fetch: (input, init) => fetch(input, (given = init)) });
  await online(bob, server);
  const sent = bob.send('alice', { file: new Blob(['x']) });
  await until(() => answer);
  bob.conversation('alice').discard(sent);
  assert.equal(given.signal.aborted, true);
  answer();
  await quiet();
  assert.deepEqual(made, []);
});

test('taken back while it waits for the next try: there is none', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  const state = withAttachments(server, (request) => (isPut(request) ? later(5_000) : undefined));
  const bob = client(clock.options);
  await online(bob, server);
  const sent = bob.send('alice', { file: new Blob(['x']) });
  await until(() => clock.waits.includes(5_000));
  bob.conversation('alice').discard(sent);
  assert.ok(!clock.waits.includes(5_000), 'no timer is left behind');
  clock.advance(6_000);
  await quiet();
  assert.equal(state.requests.filter((line) => line.startsWith('PUT')).length, 1);
});

test('an upload in which nothing moves for a minute is broken off and made again', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  const made = withXhr(t);
  withAttachments(server);
  const bob = client(clock.options);
  await online(bob, server);
  const sent = bob.send('alice', { file: new Blob(['0123456789']) });
  await until(() => made.length === 1);
  clock.advance(50_000);
  made[0].upload.onprogress({ loaded: 5 });
  assert.equal(sent.progress, 0.5);
  clock.advance(50_000);
  assert.ok(!made[0].aborted, 'it moves');
  clock.advance(10_001);
  assert.ok(made[0].aborted);
  await until(() => {
    clock.advance(100);
    return made.length === 2;
  });
  made[0].upload.onprogress({ loaded: 9 });
  assert.equal(sent.progress, 0.5, 'what is given up has no say any more');
  made[1].answer(201);
  await until(() => {
    clock.advance(1_000);
    return sent.tick === 'sent';
  });
});
