// Ids as the server takes them: docs/protocol.md, "Ids".

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkDevice, checkId, conversationId, peerOf } from '../src/ids.js';
import { scene } from './setup.js';

const PROVIDERS = ['auth0|5f7c8ec7c33c6c004bbafe82', 'google-oauth2|108251222085688410292', 'ann+test@x.org', 'urn:oid:1=2', `${'0'.repeat(36)}.${'f'.repeat(36)}`, 'x'.repeat(128)];

test('ids of identity providers are user ids, and no device ids', () => {
  for (const id of PROVIDERS) assert.equal(checkId(id, 'user'), id);
  for (const id of ['', 'a b', 'a~b', 'a/b', 'a,b', 'é', 'x'.repeat(129), 7]) assert.throws(() => checkId(id, 'user'), { code: 'invalid_id' }, String(id));
  for (const id of ['a|b', 'a+b', 'x'.repeat(65)]) assert.throws(() => checkDevice(id), { code: 'invalid_id' }, id);
});

test('conversations are computed in byte order, as the server does', () => {
  assert.equal(conversationId('a|', 'az'), 'az~a|');
  assert.equal(conversationId('a0', 'a+'), 'a+~a0');
  for (const id of PROVIDERS) {
    assert.equal(conversationId(id, 'Bob'), conversationId('Bob', id));
    assert.equal(peerOf(conversationId(id, 'Bob'), 'Bob'), id);
  }
});

test('an id in an address is encoded', async (t) => {
  const { client } = await scene(t);
  const paths = [];
  const fetch = async (address) => {
    paths.push(new URL(address).pathname);
    return new Response(null, { status: 204 });
  };
  const bob = client({ user: 'auth0|bob', fetch });
  await bob.block('ann+test@x.org');
  await bob.mute(conversationId('auth0|bob', 'ann+test@x.org'));
  assert.deepEqual(paths, ['/v1/blocks/ann%2Btest%40x.org', '/v1/conversations/ann%2Btest%40x.org~auth0%7Cbob/mute']);
});
