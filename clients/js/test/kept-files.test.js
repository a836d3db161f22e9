// The bytes of a file are kept until its message is sent: the server lets go of what no message refers to.

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { memoryStorage } from '../src/index.js';
import { fileStorage } from '../src/node.js';
import { withAttachments } from './attachments.js';
import { online, scene, until } from './setup.js';

const notUploaded = ({ ref }, session) => session.error(ref, 'not_uploaded');
const draft = () => ({ file: new File(['large'], 'a.png', { type: 'image/png' }), thumbnail: new Blob(['small'], { type: 'image/png' }) });

test('bytes that the server has let go of go up again after a restart, the thumbnail too', async (t) => {
  const { server, client } = await scene(t);
  const state = withAttachments(server);
  const storage = memoryStorage();
  server.on.send = notUploaded;
  const first = client({ storage });
  await online(first, server);
  const sent = first.send('alice', draft());
  await assert.rejects(sent.sent, { code: 'not_uploaded' });
  assert.deepEqual(server.frames('send')[0].attachment, { s3_ref: 'ref2', thumbnail: 'ref1' });
  await until(async () => (await storage.open('bob')).outbox[0]?.failed);
  await first.close();

  delete server.on.send;
  const second = client({ storage });
  await online(second, server);
  const [kept] = second.conversation('alice').messages;
  assert.equal(kept.error.code, 'not_uploaded');
  second.conversation('alice').retry(kept);
  await kept.sent;
  assert.deepEqual(server.stored[0].attachment, { s3_ref: 'ref4', thumbnail: 'ref3' });
  assert.deepEqual([kept.attachment.s3Ref, kept.attachment.thumbnail], ['ref4', 'ref3']);
  assert.deepEqual(['ref3', 'ref4'].map((ref) => String(state.uploaded.get(ref))), ['small', 'large']);
  await until(async () => (await storage.open('bob')).outbox.length === 0);
});

test('a thumbnail whose bytes are not here any more is left out', async (t) => {
  const { server, client } = await scene(t);
  withAttachments(server);
  const storage = memoryStorage();
  const saved = await storage.open('bob');
  const attachment = { s3Ref: 'old', name: 'a', mime: 'image/png', bytes: 5, sha256: '', thumbnail: 'older' };
  const send = { client_msg_id: 'c', to: 'alice', body: '', seen_seq: 0, attachment: { s3_ref: 'old', thumbnail: 'older' } };
  await saved.put({ id: 'c', n: 1, ts: Date.now(), send, attachment, file: new Blob(['large']), failed: { code: 'not_uploaded', message: 'gone' } });
  const bob = client({ storage });
  await online(bob, server);
  const [kept] = bob.conversation('alice').messages;
  bob.conversation('alice').retry(kept);
  await kept.sent;
  assert.deepEqual(server.stored[0].attachment, { s3_ref: 'ref1' });
  assert.equal(kept.attachment.thumbnail, undefined);
});

for (const kind of ['memory', 'file']) {
  test(`${kind}: what is uploaded and not yet sent is not uploaded again after a restart`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), 'bluetick-'));
    t.after(() => rm(directory, { recursive: true }));
    const storage = kind === 'memory' ? memoryStorage() : fileStorage(join(directory, 'outbox'));
    const { server, client } = await scene(t);
    const state = withAttachments(server);
    server.on.send = () => {};
    const first = client({ storage });
    await online(first, server);
    first.send('alice', draft());
    await server.until('send');
    await first.close();
    delete server.on.send;
    const second = client({ storage });
    await online(second, server);
    await until(() => second.conversation('alice').messages[0]?.tick === 'sent');
    assert.deepEqual(server.stored[0].attachment, { s3_ref: 'ref2', thumbnail: 'ref1' });
    assert.equal(state.announced.length, 2);
  });
}
