// The same client against the real server, through a proxy that cuts the connection at bad moments.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { WebSocket } from 'ws';
import { Client, memoryStorage } from '../src/index.js';
import { CutProxy } from './cut-proxy.js';
import { startServer } from './real-server.js';
import { event, until } from './setup.js';

let server;
before(async () => (server = await startServer({ BLUETICK_LIMITS__MAX_SESSIONS: '50' })));
after(() => server?.close());

/** Two people of this test alone, each behind a proxy of their own. */
let pairs = 0;
async function pair(t, options = {}) {
  pairs += 1;
  const people = [];
  for (const name of ['alice', 'bob']) {
    const user = `${name}${pairs}`;
    const proxy = await CutProxy.start(server.url);
    const client = new Client({ url: proxy.url, user, token: () => server.token(user), WebSocket, storage: memoryStorage(), random: () => 0, ...options });
    const got = [];
    client.on('message', (message) => got.push(message));
    people.push({ client, proxy, got, user });
    t.after(async () => {
      await client.close();
      proxy.close();
    });
  }
  const [alice, bob] = people;
  alice.with = alice.client.conversation(bob.user);
  bob.with = bob.client.conversation(alice.user);
  return { alice, bob };
}

async function online(...people) {
  for (const { client } of people) client.connect();
  for (const { client } of people) await until(() => client.caughtUp);
}

/** Cuts the first time a frame fits. */
function cutOnce(proxy, direction, when, fits) {
  let done = false;
  proxy.cutAt = (way, frame) => {
    if (done || way !== direction || !fits(frame)) return false;
    done = true;
    return when;
  };
  return () => done;
}

const bodies = (messages) => messages.map(({ body }) => body);

test('two clients chat, with ticks, typing, presence and unread counts', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice, bob);
  const hello = alice.with.send('hello');
  await until(() => bob.got.length === 1);
  await until(() => hello.tick === 'delivered');
  assert.deepEqual([bob.with.unread, bob.client.unread, bob.with.preview], [1, 1, 'hello']);
  await bob.with.load();
  bob.with.read();
  assert.equal(bob.with.unread, 0);
  await until(() => hello.tick === 'read');
  assert.notEqual(alice.with.presence?.online, true, 'who has not written is not seen');
  bob.with.setTyping();
  await until(() => alice.with.typing);
  const answer = bob.with.send('hi');
  await until(() => alice.got.length === 1);
  assert.equal(alice.with.typing, false, 'who has written has stopped typing');
  assert.equal(await answer.sent, answer);
  await until(() => alice.with.presence?.online);
  bob.client.disconnect();
  await until(() => alice.with.presence?.online === false);
  assert.deepEqual(bodies(alice.with.messages), ['hello', 'hi']);
});

test('cut after the send was taken and before sent came back', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice, bob);
  const wasCut = cutOnce(alice.proxy, 'down', 'before', ({ type }) => type === 'sent');
  const message = alice.with.send('once');
  await message.sent;
  assert.ok(wasCut());
  await until(() => message.tick === 'delivered');
  await until(() => alice.client.caughtUp && bob.client.caughtUp);
  assert.deepEqual(bodies(bob.got), ['once']);
  await bob.with.load();
  assert.deepEqual(bodies(bob.with.messages), ['once'], 'the server has it once');
  assert.deepEqual(alice.with.messages, [message]);
});

test('cut after the send went out and before the server had it', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice, bob);
  const wasCut = cutOnce(alice.proxy, 'up', 'before', ({ type }) => type === 'send');
  const messages = ['a', 'b', 'c'].map((body) => alice.with.send(body));
  await Promise.all(messages.map(({ sent }) => sent));
  assert.ok(wasCut());
  await until(() => bob.got.length === 3);
  assert.deepEqual(bodies(bob.got), ['a', 'b', 'c']);
});

test('cut in the middle of a drain', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice);
  const count = 400;
  const sent = Array.from({ length: count }, (_, n) => alice.with.send(`m${n}`));
  await Promise.all(sent.map((message) => message.sent));
  let seen = 0;
  bob.proxy.cutAt = (way, { type }) => (way === 'down' && type === 'message' && (seen += 1) % 150 === 0 && seen < 1000 ? 'after' : false);
  await online(bob);
  await until(() => bob.got.length >= count);
  assert.ok(bob.proxy.cuts >= 2, `${bob.proxy.cuts} cuts`);
  await until(() => sent.every(({ tick }) => tick === 'delivered'));
  assert.deepEqual(bodies(bob.got), bodies(sent));
});

test('cut between the message and its ack', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice, bob);
  const wasCut = cutOnce(bob.proxy, 'up', 'before', ({ type }) => type === 'ack');
  const message = alice.with.send('ack me');
  await until(() => message.tick === 'delivered');
  assert.ok(wasCut());
  assert.deepEqual(bodies(bob.got), ['ack me']);
});

test('cut during hello, at every frame of it', async (t) => {
  const { alice, bob } = await pair(t);
  const wanted = [['up', 'before', 'hello'], ['up', 'after', 'hello'], ['down', 'before', 'welcome'], ['down', 'after', 'welcome'], ['down', 'before', 'caught_up']];
  bob.proxy.cutAt = (way, { type }) => {
    const next = wanted[0];
    if (!next || next[0] !== way || next[2] !== type) return false;
    return wanted.shift()[1];
  };
  await online(alice);
  const message = alice.with.send('still there?');
  bob.client.connect();
  await until(() => bob.client.caughtUp && wanted.length === 0);
  await until(() => message.tick === 'delivered');
  assert.deepEqual(bodies(bob.got), ['still there?']);
});

test('a read that is cut off is said again', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice, bob);
  const message = alice.with.send('read me');
  await until(() => bob.got.length === 1);
  const wasCut = cutOnce(bob.proxy, 'up', 'before', ({ type }) => type === 'read');
  bob.with.read();
  await until(() => message.tick === 'read');
  assert.ok(wasCut());
});

test('ticks that turned while one was away are there after coming back', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice);
  const message = alice.with.send('later');
  await message.sent;
  alice.client.disconnect();
  await online(bob);
  await until(() => bob.got.length === 1);
  bob.with.read();
  const status = event(bob.client, 'ticks', (_, user) => user === bob.user);
  await status;
  assert.equal(message.tick, 'sent');
  await online(alice);
  await until(() => message.tick === 'read');
});

test('a killed server loses nothing that it confirmed, and nothing is doubled', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice, bob);
  const sent = [];
  for (let n = 0; n < 60; n += 1) {
    sent.push(alice.with.send(`k${n}`));
    if (n === 30) await Promise.all([sent[5].sent, server.restart()]);
  }
  await Promise.all(sent.map((message) => message.sent));
  await until(() => sent.every(({ tick }) => tick === 'delivered'));
  assert.deepEqual(bodies(bob.got), bodies(sent));
});

test('many random cuts, both sending: everything once, in order, all blue, nothing unread', async (t) => {
  const { alice, bob } = await pair(t);
  const seed = Number(process.env.SEED ?? Date.now() % 1e6);
  t.diagnostic(`SEED=${seed}`);
  const random = mulberry32(seed);
  let cutting = true;
  for (const { proxy } of [alice, bob]) {
    proxy.cutAt = () => (!cutting || random() > 0.05 ? false : random() < 0.5 ? 'before' : 'after');
  }
  alice.client.connect();
  bob.client.connect();
  await Promise.all([alice.with.load().catch(() => {}), bob.with.load().catch(() => {})]);
  const count = 150;
  const sent = { alice: [], bob: [] };
  for (let n = 0; n < count; n += 1) {
    sent.alice.push(alice.with.send(`a${n}`));
    sent.bob.push(bob.with.send(`b${n}`));
    if (random() < 0.3) await new Promise((resolve) => setTimeout(resolve, random() * 30));
    if (random() < 0.2) alice.with.read();
    if (random() < 0.2) bob.with.read();
  }
  for (let n = 0; n < 40 && alice.proxy.cuts + bob.proxy.cuts < 40; n += 1) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    alice.with.setTyping();
    bob.with.read();
  }
  cutting = false;
  t.diagnostic(`${alice.proxy.cuts + bob.proxy.cuts} cuts`);
  assert.ok(alice.proxy.cuts + bob.proxy.cuts > 10, 'enough cuts');
  await until(() => alice.got.length >= count && bob.got.length >= count, `all of it: ${alice.got.length}, ${bob.got.length}`);
  await until(() => alice.client.caughtUp && bob.client.caughtUp && alice.with.loaded && bob.with.loaded);
  assert.deepEqual(bodies(bob.got), bodies(sent.alice));
  assert.deepEqual(bodies(alice.got), bodies(sent.bob));
  alice.with.read();
  bob.with.read();
  await until(() => [...sent.alice, ...sent.bob].every(({ tick }) => tick === 'read'), 'all blue');
  assert.deepEqual([alice.client.unread, bob.client.unread], [0, 0]);
  for (const { with: conversation } of [alice, bob]) {
    while (conversation.hasEarlier) await conversation.loadEarlier();
    assert.deepEqual(conversation.messages.map(({ seq }) => seq), Array.from({ length: 2 * count }, (_, n) => n + 1));
  }
  assert.deepEqual(bodies(alice.with.messages), bodies(bob.with.messages));
  await fromServer(alice, 0);
  await fromServer(bob, 0);
});

/** What the server itself says of the unread messages. */
async function fromServer({ user, with: conversation }, unread) {
  const headers = { authorization: `Bearer ${await server.token(user)}` };
  const inbox = await (await fetch(`${server.url}/v1/inbox`, { headers })).json();
  const entry = inbox.conversations.find(({ conversation_id }) => conversation_id === conversation.id);
  assert.equal(entry.unread_count, unread);
}

test('unread counts agree with the server, whoever reads', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice, bob);
  const other = new Client({ url: server.url, user: bob.user, token: () => server.token(bob.user), WebSocket, storage: memoryStorage() });
  t.after(() => other.close());
  other.connect();
  await until(() => other.caughtUp);
  for (let n = 0; n < 10; n += 1) alice.with.send(`u${n}`);
  await until(() => bob.with.unread === 10 && other.unread === 10, 'both count');
  other.conversation(alice.user).read(4);
  await until(() => bob.with.unread === 6 && other.unread === 6, 'a part is read elsewhere');
  await fromServer(bob, 6);
  bob.client.disconnect();
  bob.with.read(8);
  assert.equal(bob.with.ownRead, 8);
  await online(bob);
  await until(() => bob.with.unread === 2 && other.unread === 2, 'said offline, told later');
  await fromServer(bob, 2);
  bob.with.read();
  await until(() => bob.client.unread === 0 && other.unread === 0);
  await fromServer(bob, 0);
});

test('own messages from another device come too', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice, bob);
  const second = new Client({ url: server.url, user: alice.user, token: () => server.token(alice.user), WebSocket, storage: memoryStorage() });
  t.after(() => second.close());
  second.connect();
  await until(() => second.caughtUp);
  second.send(bob.user, 'from the tablet');
  await until(() => alice.got.length === 1 && bob.got.length === 1);
  assert.deepEqual([alice.got[0].own, alice.got[0].body, alice.with.lastTick !== null], [true, 'from the tablet', true]);
  await until(() => alice.got[0].tick === 'delivered');
});

test('a file goes up, comes down, and is what it was', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice, bob);
  const bytes = Uint8Array.from({ length: 300_000 }, (_, n) => (n * 31) % 251);
  const sent = alice.with.send({ body: 'look', file: new File([bytes], 'a.png', { type: 'image/png' }), thumbnail: new Blob([bytes.slice(0, 99)], { type: 'image/png' }) });
  assert.deepEqual([sent.tick, sent.progress, alice.with.preview], ['waiting', 0, 'Photo: look']);
  await sent.sent;
  await until(() => bob.got.length === 1);
  const [got] = bob.got;
  assert.deepEqual([got.attachment.name, got.attachment.mime, got.attachment.bytes], ['a.png', 'image/png', 300_000]);
  assert.equal(got.attachment.sha256, sent.attachment.sha256);
  const { url } = await bob.with.attachmentUrl(got);
  assert.deepEqual(new Uint8Array(await (await fetch(url)).arrayBuffer()), bytes);
  const small = await bob.with.thumbnailUrl(got);
  assert.equal((await (await fetch(small.url)).arrayBuffer()).byteLength, 99);
  assert.equal(await bob.with.attachmentUrl(got), await bob.with.attachmentUrl(got), 'the address is kept');
  assert.equal(bob.with.preview, 'Photo: look');
  assert.equal((await (await fetch(`${server.url}/v1/inbox`, { headers: { authorization: `Bearer ${await server.token(bob.user)}` } })).json()).conversations[0].last_message_preview, 'Photo: look');
});

test('profile, blocks, mutes and the rest over HTTP', async (t) => {
  const { alice, bob } = await pair(t);
  await online(alice, bob);
  await alice.with.send('hello').sent;
  assert.deepEqual(await alice.client.setProfile({ name: 'Alice' }), { userId: alice.user, name: 'Alice', avatarUrl: null });
  assert.equal((await alice.client.profile()).name, 'Alice');
  assert.equal((await bob.client.userProfile(alice.user)).name, 'Alice');
  await bob.client.block(alice.user);
  assert.deepEqual(await bob.client.blocks(), [alice.user]);
  const refused = bob.with.send('no');
  await assert.rejects(refused.sent, { code: 'blocked' });
  await bob.client.unblock(alice.user);
  bob.with.retry(refused);
  await refused.sent;
  await bob.client.mute(bob.with.id);
  assert.deepEqual(await bob.client.mutes(), [{ conversationId: bob.with.id, until: null }]);
  await bob.client.unmute(bob.with.id);
  assert.deepEqual(await bob.client.mutes(), []);
  assert.deepEqual(await bob.client.devices(), []);
  assert.ok(Array.isArray((await bob.client.push()).providers));
  await assert.rejects(bob.client.userProfile('nobody-at-all'), { code: 'not_found', status: 404 });
});

test('pages of the inbox and of history', async (t) => {
  const { alice } = await pair(t);
  await online(alice);
  const peers = Array.from({ length: 60 }, (_, n) => `peer${pairs}-${n}`);
  await Promise.all(peers.map((peer) => alice.client.send(peer, `to ${peer}`).sent));
  await Promise.all(Array.from({ length: 120 }, (_, n) => alice.client.send(peers[0], `h${n}`).sent));
  const fresh = new Client({ url: server.url, user: alice.user, token: () => server.token(alice.user), WebSocket, storage: memoryStorage() });
  t.after(() => fresh.close());
  fresh.connect();
  assert.deepEqual(await fresh.loadInbox(), { more: true });
  assert.equal(fresh.conversations.length, 50);
  assert.deepEqual(await fresh.loadInbox(), { more: false });
  assert.equal(fresh.conversations.length, 60);
  assert.equal(fresh.conversations[0].peer.userId, peers[0]);
  const long = fresh.conversation(peers[0]);
  await long.load();
  assert.deepEqual([long.messages.length, long.hasEarlier, long.messages.at(-1).body], [50, true, 'h119']);
  await Promise.all([long.loadEarlier(), long.loadEarlier()]);
  assert.equal(long.messages.length, 100);
  await long.loadEarlier();
  assert.deepEqual([long.messages.length, long.hasEarlier, long.messages[0].body], [121, false, `to ${peers[0]}`]);
});

/** Small and seeded: a failed run can be had again. */
function mulberry32(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
