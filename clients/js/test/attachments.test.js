// Files: announced, uploaded, then sent.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { memoryStorage } from '../src/index.js';
import { Sha256, sha256Of } from '../src/sha256.js';
import { error, fast, sha256, withAttachments } from './attachments.js';
import { online, quiet, scene, until } from './setup.js';

test('SHA-256 is what it should be', async () => {
  const vectors = {
    '': 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
    abc: 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
    abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq: '248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1',
  };
  for (const [text, expected] of Object.entries(vectors)) {
    assert.equal(new Sha256().update(new TextEncoder().encode(text)).digest(), expected);
  }
  const million = new Sha256();
  for (let n = 0; n < 1000; n += 1) million.update(new Uint8Array(1000).fill(97));
  assert.equal(million.digest(), 'cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0');
  for (let length = 0; length < 200; length += 1) {
    const bytes = randomBytes(length);
    const halves = new Sha256().update(bytes.subarray(0, length >> 1)).update(bytes.subarray(length >> 1));
    assert.equal(halves.digest(), sha256(bytes));
  }
  const large = randomBytes(9 * 1024 * 1024 + 17);
  assert.equal(await sha256Of(new Blob([large])), sha256(large), 'too large for the platform\'s own');
});

test('without crypto.subtle it is the same', async (t) => {
  const { subtle } = crypto;
  t.after(() => Object.defineProperty(crypto, 'subtle', { value: subtle, configurable: true }));
  Object.defineProperty(crypto, 'subtle', { value: undefined, configurable: true });
  const bytes = randomBytes(3_000_000);
  assert.equal(await sha256Of(new Blob([bytes])), sha256(bytes));
});

test('announced, uploaded with its headers, then sent', async (t) => {
  const { server, client } = await scene(t);
  const state = withAttachments(server);
  const bob = client();
  await online(bob, server);
  const bytes = randomBytes(5000);
  const sent = bob.send('alice', { file: new File([bytes], 'a.pdf', { type: 'application/pdf' }), blurhash: 'LE', voice: true, thumbnail: new Blob(['small'], { type: 'image/png' }) });
  const text = bob.send('alice', 'does not wait for it');
  await text.sent;
  await sent.sent;
  const [small, large] = state.announced;
  assert.deepEqual(small, { name: 'thumbnail', mime: 'image/png', bytes: 5, sha256: sha256('small') });
  assert.deepEqual(large, { name: 'a.pdf', mime: 'application/pdf', bytes: 5000, sha256: sha256(bytes) });
  assert.deepEqual(state.uploaded.get('ref2'), bytes);
  const frame = server.frames('send').find(({ attachment }) => attachment);
  assert.deepEqual(frame.attachment, { s3_ref: 'ref2', thumbnail: 'ref1', blurhash: 'LE', voice: true });
  assert.equal(sent.attachment.s3Ref, 'ref2');
  assert.equal(sent.progress, undefined, 'done');
});

test('a large file goes in parts where the server takes them', async (t) => {
  const { server, client } = await scene(t);
  let failed = false;
  const state = withAttachments(server, ({ method, url }) => {
    if (method !== 'PUT' || !url.endsWith('.1') || failed) return undefined;
    failed = true;
    return error(503, 'unavailable');
  });
  const bob = client(fast);
  await online(bob, server);
  const bytes = randomBytes(17 * 1024 * 1024);
  const sent = bob.send('alice', { file: new Blob([bytes]), name: 'large.bin' });
  const progress = [];
  bob.on('change', () => sent.progress !== undefined && progress.push(sent.progress));
  await sent.sent;
  const parts = ['ref1.0', 'ref1.1', 'ref1.2'].map((name) => state.uploaded.get(name));
  assert.deepEqual(Buffer.concat(parts), bytes);
  const [announced] = state.announced;
  assert.deepEqual(announced.parts, { bytes: 8 * 1024 * 1024, sha256: parts.map(sha256) });
  assert.equal(announced.sha256, sha256(bytes));
  assert.equal(state.requests.filter((line) => line === 'POST /v1/attachments/ref1/complete').length, 1);
  assert.ok(failed && progress.length >= 3 && progress.every((value, n) => value >= (progress[n - 1] ?? 0)), String(progress));
});

test('and whole where it does not', async (t) => {
  const { server, client } = await scene(t);
  const state = withAttachments(server, ({ method, url, body }) => (method === 'POST' && url === '/v1/attachments' && JSON.parse(body).parts ? error(501, 'unsupported') : undefined));
  const bob = client();
  await online(bob, server);
  const bytes = randomBytes(17 * 1024 * 1024);
  await bob.send('alice', { file: new Blob([bytes]) }).sent;
  assert.deepEqual(state.uploaded.get('ref1'), bytes);
});

test('an upload that breaks off is made again; one that is there already is done', async (t) => {
  const { server, client } = await scene(t);
  let tries = 0;
  const state = withAttachments(server, ({ method }, { uploaded }) => {
    if (method !== 'PUT') return undefined;
    tries += 1;
    if (tries === 1) return error(503, 'unavailable');
    if (tries === 2) return error(403, 'link_refused');
    uploaded.set('there', true);
    return error(409, 'already_uploaded');
  });
  const bob = client(fast);
  await online(bob, server);
  const sent = bob.send('alice', { file: new Blob(['x']) });
  await sent.sent;
  assert.equal(tries, 3);
  assert.equal(state.announced.length, 2, 'a refused address is asked for anew');
  assert.equal(sent.attachment.s3Ref, 'ref2');
});

test('a file that is refused fails with the server\'s word, and can be tried again', async (t) => {
  const { server, client } = await scene(t);
  let refuse = true;
  withAttachments(server, ({ url }) => (refuse && url === '/v1/attachments' ? error(413, 'attachment_too_large') : undefined));
  const bob = client();
  await online(bob, server);
  const sent = bob.send('alice', { file: new Blob(['x']) });
  await assert.rejects(sent.sent, { code: 'attachment_too_large', status: 413 });
  assert.equal(sent.tick, 'failed');
  assert.equal(server.frames('send').length, 0);
  refuse = false;
  bob.conversation('alice').retry(sent);
  await sent.sent;
});

test('a file waits offline, and outlives a restart', async (t) => {
  const { server, client } = await scene(t);
  const state = withAttachments(server);
  const storage = memoryStorage();
  const first = client({ storage });
  first.send('alice', { file: new File(['kept'], 'k.txt', { type: 'text/plain' }), body: 'look' });
  await quiet();
  assert.deepEqual(state.requests, [], 'nothing goes up while offline');
  await first.close();
  const second = client({ storage });
  await online(second, server);
  await server.until('send');
  assert.equal(String(state.uploaded.get('ref1')), 'kept');
  await until(() => second.conversation('alice').messages[0]?.tick === 'sent');
});

test('bytes that the server has let go of are uploaded anew', async (t) => {
  const { server, client } = await scene(t);
  const state = withAttachments(server);
  const bob = client();
  await online(bob, server);
  server.on.send = ({ ref }, session) => session.error(ref, 'not_uploaded');
  const sent = bob.send('alice', { file: new Blob(['x']) });
  await assert.rejects(sent.sent, { code: 'not_uploaded' });
  delete server.on.send;
  bob.conversation('alice').retry(sent);
  await sent.sent;
  assert.deepEqual(server.stored[0].attachment, { s3_ref: 'ref2' });
  assert.equal(state.announced.length, 2);
});

test('a file that is gone is not sent as nothing', async (t) => {
  const { server, client } = await scene(t);
  withAttachments(server);
  const storage = memoryStorage();
  const saved = await storage.open('bob');
  const attachment = { s3Ref: '', name: 'a', mime: 'image/png', bytes: 1, sha256: '' };
  const send = { client_msg_id: 'lost', to: 'alice', body: '', seen_seq: 0 };
  await saved.put({ id: 'lost', n: 1, ts: Date.now(), send, attachment, failed: { code: 'aborted', message: 'gone' } });
  const bob = client({ storage });
  await online(bob, server);
  const [lost] = bob.conversation('alice').messages;
  assert.equal(lost.tick, 'failed');
  bob.conversation('alice').retry(lost);
  await assert.rejects(lost.sent, { code: 'aborted' });
  assert.deepEqual(server.frames('send'), []);
});

test('discarding stops the upload', async (t) => {
  const { server, client } = await scene(t);
  let reached;
  const arrived = new Promise((resolve) => (reached = resolve));
  withAttachments(server, ({ method }) => (method === 'PUT' ? (reached(), new Promise((resolve) => setTimeout(() => resolve({ status: 201 }), 100))) : undefined));
  const bob = client();
  await online(bob, server);
  const sent = bob.send('alice', { file: new Blob(['x']) });
  await arrived;
  bob.conversation('alice').discard(sent);
  await assert.rejects(sent.sent, { code: 'aborted' });
  await new Promise((resolve) => setTimeout(resolve, 150));
  assert.deepEqual(server.frames('send'), []);
  assert.deepEqual(bob.conversation('alice').messages, []);
});

test('HTTP: a token that has ended is replaced, and errors have their code', async (t) => {
  const { server, client } = await scene(t);
  let n = 0;
  const seen = [];
  server.http = ({ headers }) => {
    seen.push(headers.authorization);
    if (seen.length === 1) return error(401, 'token_expired');
    if (seen.length === 2) return { status: 200, body: { user_id: 'bob', name: null, avatar_url: null } };
    return { status: 429, body: { error: { code: 'rate_limited', message: 'slow', retry_after_ms: 9 } } };
  };
  const bob = client({ token: () => `t${++n}` });
  assert.deepEqual(await bob.profile(), { userId: 'bob', name: null, avatarUrl: null });
  assert.deepEqual(seen, ['Bearer t1', 'Bearer t2']);
  await assert.rejects(bob.profile(), { code: 'rate_limited', retryAfterMs: 9, status: 429 });
  const away = client({ url: 'http://127.0.0.1:9' });
  await assert.rejects(away.profile(), { code: 'offline' });
});
