// What an application sees: the list, the loaded part of a conversation, unread counts, typing and presence.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeClock } from './clock.js';
import { inboxEntry, message } from './fake-server.js';
import { event, online, quiet, scene, until } from './setup.js';

const ID = 'alice~bob';
const seqs = (conversation) => conversation.messages.map(({ seq }) => seq);
const range = (from, to) => Array.from({ length: to - from + 1 }, (_, n) => from + n);

/** A server that has messages 1 to `last`, and answers pages of `limit` of them. */
function withHistory(server, last, limit = 50, own = () => false) {
  const state = { last };
  server.on.history = ({ ref, before_seq, after_seq }, session) => {
    const to = after_seq !== undefined ? state.last : before_seq === undefined ? state.last : before_seq - 1;
    const from = after_seq !== undefined ? after_seq + 1 : Math.max(1, to - limit + 1);
    const messages = range(from, to).map((seq) => message(seq, { sender: own(seq) ? 'bob' : 'alice' }));
    session.send({ type: 'history', ref, conversation_id: ID, messages, from_seq: from, to_seq: to, next: from > 1 ? from : null });
  };
  return state;
}

function withStatus(server, status) {
  server.on.status = ({ ref, conversation_id }, session) => {
    const none = { last_delivered_seq: 0, last_read_seq: 0 };
    session.send({ type: 'status', ref, conversation_id, last_seq: 0, unread_count: 0, own: none, peer: none, ...status() });
  };
}

test('the newest page, then earlier ones, then what comes live', async (t) => {
  const { server, client } = await scene(t);
  withHistory(server, 120);
  const bob = client();
  const session = await online(bob, server);
  const alice = bob.conversation('alice');
  assert.deepEqual([alice.loaded, alice.hasEarlier], [false, false]);
  const loading = alice.load();
  assert.deepEqual([alice.loading, alice.load()], [true, loading], 'asked once');
  await loading;
  assert.deepEqual([alice.loaded, alice.loading, alice.hasEarlier], [true, false, true]);
  assert.deepEqual(seqs(alice), range(71, 120));
  const [first] = alice.messages;
  session.message(121);
  await event(bob, 'message');
  await alice.loadEarlier();
  assert.deepEqual(seqs(alice), range(21, 121));
  assert.equal(alice.messages.find(({ seq }) => seq === 71), first, 'objects stay');
  await alice.loadEarlier();
  await alice.loadEarlier();
  assert.deepEqual(seqs(alice), range(1, 121));
  assert.equal(alice.hasEarlier, false);
  assert.equal(server.frames('history').length, 3);
});

test('a message that comes while the page is on its way is there once, in its place', async (t) => {
  const { server, client } = await scene(t);
  server.heads = [{ conversation_id: ID, last_seq: 2 }];
  const bob = client();
  const session = await online(bob, server);
  const alice = bob.conversation('alice');
  let answer;
  server.on.history = ({ ref }) => {
    answer = () => session.send({ type: 'history', ref, conversation_id: ID, messages: range(1, 3).map((seq) => message(seq)), from_seq: 1, to_seq: 3, next: null });
  };
  const loading = alice.load();
  await server.until('history');
  const arrived = event(bob, 'message', ({ seq }) => seq === 4);
  session.message(3);
  session.message(4);
  await arrived;
  answer();
  await loading;
  assert.deepEqual(seqs(alice), [1, 2, 3, 4]);
});

test('what the stream brings from before the loaded part makes no gap', async (t) => {
  const { server, client } = await scene(t);
  withHistory(server, 200);
  server.on.hello = (frame, session) => session.greet();
  const bob = client();
  bob.connect();
  const alice = bob.conversation('alice');
  await alice.load();
  for (let seq = 1; seq <= 40; seq += 1) server.session.message(seq);
  await event(bob, 'message', ({ seq }) => seq === 40);
  assert.deepEqual(seqs(alice), range(151, 200));
  await alice.loadEarlier();
  assert.deepEqual(seqs(alice), range(101, 200));
});

test('a conversation that does not exist yet is empty and loaded', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  await online(bob, server);
  const alice = bob.conversation('alice');
  await alice.load();
  assert.deepEqual([alice.loaded, alice.messages, alice.hasEarlier], [true, [], false]);
  const sent = alice.send('first');
  await sent.sent;
  assert.deepEqual(alice.messages, [sent]);
  assert.deepEqual(bob.conversations, [alice]);
});

test('loading waits while offline, and is asked again after a cut', async (t) => {
  const { server, client } = await scene(t);
  withHistory(server, 3);
  const answer = server.on.history;
  server.on.history = (frame, session) => {
    server.on.history = answer;
    session.cut();
  };
  const bob = client();
  const loading = bob.conversation('alice').load();
  bob.connect();
  await loading;
  assert.deepEqual(seqs(bob.conversation('alice')), [1, 2, 3]);
  assert.equal(server.frames('history').length, 2);
});

test('after a reset what was loaded is loaded anew', async (t) => {
  const { server, client } = await scene(t);
  const history = withHistory(server, 3);
  const bob = client();
  (await online(bob, server)).session;
  const alice = bob.conversation('alice');
  await alice.load();
  const [, , kept] = alice.messages;
  bob.disconnect();
  history.last = 5;
  server.on.hello = (frame, session) => {
    session.greet();
    session.send({ type: 'reset', reason: 'too old' });
    session.caughtUp('2000', [{ conversation_id: ID, last_seq: history.last }]);
  };
  const reset = event(bob, 'reset');
  await online(bob, server);
  await reset;
  await until(() => alice.messages.length === 5);
  assert.deepEqual(seqs(alice), [1, 2, 3, 4, 5]);
  assert.equal(alice.messages[2], kept);
  bob.disconnect();
  history.last = 500;
  await online(bob, server);
  await until(() => alice.messages.length === 50);
  assert.deepEqual(seqs(alice), range(451, 500), 'no gap: what is too far away goes');
  server.session.message(501);
  await until(() => alice.messages.length === 51);
});

test('the inbox makes the list: names, previews, order, ticks', async (t) => {
  const { server, client } = await scene(t);
  const entries = [
    inboxEntry('alice', { last_message_ts: 30, unread_count: 2, last_seq: 9 }),
    inboxEntry('carol', { last_message_ts: 20, last_sender: 'bob', last_seq: 4, peer_status: { last_delivered_seq: 4, last_read_seq: 3 } }),
  ];
  server.on.inbox = ({ ref }, session) => session.send({ type: 'inbox', ref, conversations: entries, next: null });
  const bob = client();
  const session = await online(bob, server);
  await until(() => bob.conversations.length === 2);
  const [alice, carol] = bob.conversations;
  assert.deepEqual([alice.peer.name, alice.preview, alice.unread, alice.lastTick, alice.lastSeq], ['ALICE', 'last', 2, null, 9]);
  assert.deepEqual([carol.peer.userId, carol.lastTick, carol.unread, bob.unread], ['carol', 'delivered', 0, 2]);
  const waiting = carol.send('x '.repeat(100));
  assert.deepEqual([bob.conversations[0], carol.lastTick, carol.lastSender], [carol, 'waiting', 'bob']);
  assert.equal([...carol.preview].length, 81);
  assert.equal(carol.preview.at(-1), '…');
  carol.discard(waiting);
  assert.equal(bob.conversations[0], alice);
  session.message(5, { conversation_id: 'bob~carol', sender: 'carol', ts: 40, body: 'two\nlines' });
  await event(bob, 'message');
  assert.deepEqual([bob.conversations[0], carol.preview, carol.unread, bob.unread], [carol, 'two lines', 1, 3]);
});

test('pages of the inbox, and all of them anew after a reconnect', async (t) => {
  const { server, client } = await scene(t);
  let unread = 5;
  server.on.inbox = ({ ref, before }, session) => {
    const conversations = before ? [inboxEntry('carol', { unread_count: unread, last_message_ts: 1 })] : [inboxEntry('alice')];
    session.send({ type: 'inbox', ref, conversations, next: before ? null : 'page 2' });
  };
  const bob = client();
  const first = bob.loadInbox();
  await online(bob, server);
  assert.deepEqual(await first, { more: true });
  assert.deepEqual(await bob.loadInbox(), { more: false });
  assert.deepEqual(await bob.loadInbox(), { more: false });
  assert.equal(bob.unread, 5);
  unread = 1;
  server.session.cut();
  await until(() => bob.unread === 1, 'what was read elsewhere meanwhile');
});

test('unread: counted where the messages are here, the server\'s word where not', async (t) => {
  const { server, client } = await scene(t);
  const history = withHistory(server, 60);
  server.heads = [{ conversation_id: ID, last_seq: 60 }];
  withStatus(server, () => ({ last_seq: 60, unread_count: 60 }));
  server.on.inbox = ({ ref }, session) => session.send({ type: 'inbox', ref, conversations: [inboxEntry('alice', { last_seq: 60, unread_count: 60 })], next: null });
  const bob = client();
  const session = await online(bob, server);
  const alice = bob.conversation('alice');
  await until(() => alice.unread === 60);
  for (const seq of [59, 60, 61, 61]) session.message(seq);
  await event(bob, 'message', ({ seq }) => seq === 61);
  assert.equal(alice.unread, 61, 'what the server has counted counts once');
  server.on.status = ({ ref }, to) => to.send({ type: 'status', ref, conversation_id: ID, last_seq: 61, unread_count: 41, own: { last_delivered_seq: 61, last_read_seq: 20 }, peer: { last_delivered_seq: 0, last_read_seq: 0 } });
  session.send({ type: 'ticks', conversation_id: ID, user_id: 'bob', last_delivered_seq: 61, last_read_seq: 20 });
  await until(() => alice.unread === 41, 'a part was read elsewhere: only the server knows');
  history.last = 61;
  await alice.load();
  assert.equal(alice.unread, 41);
  const asked = server.frames('status').length;
  alice.read(30);
  assert.equal(alice.unread, 31, 'counted');
  await server.until('read');
  await quiet();
  assert.equal(server.frames('status').length, asked, 'and nobody asked');
  alice.read();
  assert.deepEqual([alice.unread, alice.ownRead], [0, 61]);
  session.message(62);
  await event(bob, 'message');
  assert.equal(alice.unread, 1);
});

test('a read of everything counts at once, though the server\'s answer is older', async (t) => {
  const { server, client } = await scene(t);
  server.on.read = () => {};
  server.on.inbox = ({ ref }, session) => session.send({ type: 'inbox', ref, conversations: [inboxEntry('alice', { last_seq: 3, unread_count: 3 })], next: null });
  const bob = client();
  await online(bob, server);
  await until(() => bob.unread === 3);
  bob.disconnect();
  bob.conversation('alice').read(3);
  assert.equal(bob.unread, 0);
  await online(bob, server);
  await server.until('read');
  await quiet();
  assert.equal(bob.unread, 0);
});

test('typing is said every three seconds at most, shown for six, and ends with a message', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  const bob = client(clock.options);
  const session = await online(bob, server);
  const alice = bob.conversation('alice');
  alice.setTyping();
  await quiet();
  assert.deepEqual(server.frames('typing'), [], 'there is no conversation yet');
  session.message(1);
  await event(bob, 'message');
  alice.setTyping();
  alice.setTyping();
  clock.advance(2_999);
  alice.setTyping();
  await server.until('typing');
  clock.advance(1);
  alice.setTyping();
  await server.until('typing', 2);
  await quiet();
  assert.equal(server.frames('typing').length, 2);
  session.send({ type: 'typing', conversation_id: ID, user_id: 'alice' });
  assert.equal(await event(bob, 'typing'), alice);
  assert.equal(alice.typing, true);
  clock.advance(5_000);
  session.send({ type: 'typing', conversation_id: ID, user_id: 'alice' });
  await quiet();
  clock.advance(5_000);
  assert.equal(alice.typing, true, 'said again');
  clock.advance(1_000);
  assert.equal(alice.typing, false);
  session.send({ type: 'typing', conversation_id: ID, user_id: 'alice' });
  await event(bob, 'typing');
  session.message(2);
  await event(bob, 'message');
  assert.equal(alice.typing, false);
});

test('the peers are watched, new ones too, and again after a reconnect', async (t) => {
  const { server, client } = await scene(t);
  server.on.inbox = ({ ref }, session) => session.send({ type: 'inbox', ref, conversations: [inboxEntry('alice')], next: null });
  server.on.watch = ({ users }, session) => users.forEach((user_id) => session.send({ type: 'presence', user_id, online: true, last_seen: 5 }));
  const bob = client();
  const session = await online(bob, server);
  await until(() => bob.conversation('alice').presence?.online);
  assert.deepEqual(server.frames('watch').map(({ users }) => users), [['alice']]);
  session.message(1, { conversation_id: 'bob~carol', sender: 'carol' });
  await until(() => bob.conversation('carol').presence?.online);
  session.send({ type: 'presence', user_id: 'alice', online: false, last_seen: 9 });
  await until(() => bob.conversation('alice').presence?.online === false);
  assert.deepEqual(bob.conversation('alice').presence, { online: false, lastSeen: 9 });
  session.cut();
  await until(() => bob.state === 'waiting');
  assert.equal(bob.conversation('alice').presence, null, 'unknown while offline');
  await until(() => bob.conversation('carol').presence?.online);
  assert.deepEqual(server.frames('watch').at(-1).users.sort(), ['alice', 'carol']);
  const shy = client({ presence: false });
  await online(shy, server);
  await quiet();
  await quiet();
  assert.equal(server.frames('watch').length, 3);
});

test('changes are told once for a burst', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  await online(bob, server);
  await quiet();
  const changes = [];
  bob.on('change', (what) => changes.push(what));
  const alice = bob.conversation('alice');
  for (let n = 0; n < 10; n += 1) bob.send('alice', `n${n}`);
  assert.equal(changes.length, 0);
  await Promise.resolve();
  assert.deepEqual(changes, [alice, null]);
});

test('autoRead: every message counts as read', async (t) => {
  const { server, client } = await scene(t);
  const bob = client({ autoRead: true });
  const session = await online(bob, server);
  session.message(1);
  session.message(2);
  await server.until('read');
  assert.equal(server.frames('read').at(-1).seq, 2);
  assert.equal(bob.unread, 0);
});

test('a page that the server cannot give now is asked for again, one that never comes fails', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  const bob = client(clock.options);
  await online(bob, server);
  server.on.history = ({ ref }, session) => session.error(ref, 'unavailable', { retry_after_ms: 300 });
  const loading = bob.conversation('alice').load();
  await server.until('history');
  await until(() => clock.waits.includes(300));
  withHistory(server, 2);
  clock.advance(300);
  await loading;
  server.on.history = () => {};
  const never = bob.conversation('carol').load();
  await server.until('history', 3);
  clock.advance(30_000);
  await assert.rejects(never, { code: 'timeout' });
  assert.equal(bob.conversation('carol').loading, false);
});

test('a first message that was sent long ago does not stand for the whole conversation', async (t) => {
  const { server, client } = await scene(t);
  withHistory(server, 60);
  server.heads = [{ conversation_id: ID, last_seq: 60 }];
  server.on.send = ({ ref, client_msg_id }, session) => session.send({ type: 'sent', ref, client_msg_id, conversation_id: ID, seq: 1, message_id: '1001', ts: 7, duplicate: true });
  const bob = client();
  const old = bob.send('alice', 'from a tab that is closed');
  const session = await online(bob, server);
  await old.sent;
  const alice = bob.conversation('alice');
  assert.deepEqual([alice.loaded, alice.messages], [false, []]);
  await alice.load();
  assert.deepEqual([seqs(alice), alice.hasEarlier], [range(11, 60), true]);
  session.message(61);
  await event(bob, 'message');
  await alice.loadEarlier();
  assert.deepEqual(seqs(alice), range(1, 61));
});

test('a first message that comes late does not either', async (t) => {
  const { server, client } = await scene(t);
  server.heads = [{ conversation_id: ID, last_seq: 60 }];
  const bob = client();
  const session = await online(bob, server);
  session.message(1);
  await event(bob, 'message');
  const alice = bob.conversation('alice');
  assert.deepEqual([alice.loaded, alice.messages], [false, []]);
  session.message(1, { conversation_id: 'bob~carol', sender: 'carol' });
  await event(bob, 'message');
  assert.deepEqual([bob.conversation('carol').loaded, seqs(bob.conversation('carol'))], [true, [1]], 'one that begins now is all there is');
});

const fast = { setTimeout: (then, ms) => setTimeout(then, ms >= 15_000 ? ms : Math.min(ms, 5)) };

test('what has to be loaded anew after a reset is asked for until it comes', async (t) => {
  const { server, client } = await scene(t);
  const history = withHistory(server, 3);
  const answer = server.on.history;
  const bob = client(fast);
  const errors = [];
  bob.on('error', (error) => errors.push(error.code));
  await online(bob, server);
  const alice = bob.conversation('alice');
  await alice.load();
  let refused = 0;
  server.on.history = (frame, session) => (++refused <= 8 ? session.error(frame.ref, 'unavailable', { retry_after_ms: 1 }) : answer(frame, session));
  server.on.status = ({ ref }, session) => session.error(ref, refused <= 8 ? 'unavailable' : 'not_found');
  history.last = 4;
  server.on.hello = (frame, session) => {
    session.greet();
    session.send({ type: 'reset', reason: 'too old' });
    session.caughtUp('2000', [{ conversation_id: ID, last_seq: 4 }]);
  };
  server.session.cut();
  await until(() => refused > 4);
  server.session.message(5);
  await until(() => alice.messages.length === 5);
  assert.deepEqual([seqs(alice), alice.loading, errors], [range(1, 5), false, []]);
});

test('a page for the client itself that is never answered is asked for again', async (t) => {
  const { server, client } = await scene(t);
  const clock = new FakeClock();
  const bob = client(clock.options);
  let lost = true;
  server.on.inbox = ({ ref }, session) => lost || session.send({ type: 'inbox', ref, conversations: [inboxEntry('alice')], next: null });
  bob.connect();
  await server.until('inbox');
  lost = false;
  // The connection is alive all the while.
  for (let n = 0; n < 4; n += 1) {
    clock.advance(10_000);
    await quiet();
  }
  await until(() => bob.conversations.length === 1);
  assert.equal(server.sessions.length, 1);
});

test('the list is asked for until it comes', async (t) => {
  const { server, client } = await scene(t);
  let refused = 0;
  server.on.inbox = ({ ref }, session) =>
    ++refused <= 8 ? session.error(ref, 'unavailable', { retry_after_ms: 1 }) : session.send({ type: 'inbox', ref, conversations: [inboxEntry('alice')], next: null });
  const bob = client(fast);
  await online(bob, server);
  await until(() => bob.conversations.length === 1);
});

test('what was read elsewhere while away counts as read, also beyond the loaded pages', async (t) => {
  const { server, client } = await scene(t);
  server.on.inbox = ({ ref }, session) => session.send({ type: 'inbox', ref, conversations: [inboxEntry('alice', { unread_count: 1 })], next: 'page 2' });
  const bob = client();
  const session = await online(bob, server);
  const peers = Array.from({ length: 20 }, (_, n) => `u${n}`);
  for (const peer of peers) session.message(1, { conversation_id: ['bob', peer].sort().join('~'), sender: peer });
  await until(() => bob.unread === 21);
  let asking = 0;
  let most = 0;
  server.on.status = ({ ref, conversation_id }, to) => {
    most = Math.max(most, ++asking);
    const own = { last_delivered_seq: 1, last_read_seq: 1 };
    setTimeout(() => (asking--, to.send({ type: 'status', ref, conversation_id, last_seq: 1, unread_count: 0, own, peer: own })), 5);
  };
  session.cut();
  await until(() => bob.unread === 1, 'the one of the page is the page\'s');
  assert.deepEqual([most, server.frames('status').length], [4, 20]);
});

test('nobody has read what is not there yet', async (t) => {
  const { server, client } = await scene(t);
  const bob = client();
  const session = await online(bob, server);
  const alice = bob.conversation('alice');
  for (const wrong of [0, -1, 1.5, NaN, Infinity, '1', null]) assert.throws(() => alice.read(wrong), { code: 'bad_request' }, String(wrong));
  alice.read(5);
  assert.equal(alice.ownRead, 0);
  session.message(1);
  await event(bob, 'message');
  alice.read(Number.MAX_SAFE_INTEGER);
  assert.deepEqual([alice.ownRead, (await server.until('read')).seq], [1, 1]);
  session.message(2);
  await event(bob, 'message');
  assert.equal(alice.unread, 1);
});

test('own acks that come back as ticks are no reason to ask', async (t) => {
  const { server, client } = await scene(t);
  server.heads = [{ conversation_id: ID, last_seq: 100 }];
  server.on.inbox = ({ ref }, session) => session.send({ type: 'inbox', ref, conversations: [inboxEntry('alice', { last_seq: 100, unread_count: 10 })], next: null });
  server.on.ack = ({ conversation_id, seq }, session) => session.send({ type: 'ticks', conversation_id, user_id: 'bob', last_delivered_seq: seq, last_read_seq: 0 });
  withStatus(server, () => ({ last_seq: 103, unread_count: 5, own: { last_delivered_seq: 103, last_read_seq: 98 } }));
  const bob = client();
  const session = await online(bob, server);
  const alice = bob.conversation('alice');
  for (const seq of [101, 102, 103]) {
    const ticks = event(bob, 'ticks');
    session.message(seq);
    await ticks;
  }
  await quiet();
  assert.deepEqual([server.frames('status').length, alice.unread], [0, 13]);
  session.send({ type: 'ticks', conversation_id: ID, user_id: 'bob', last_delivered_seq: 103, last_read_seq: 98 });
  await until(() => alice.unread === 5, 'a read elsewhere is one');
  await quiet();
  assert.equal(server.frames('status').length, 1);
});
