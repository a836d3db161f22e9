// The contract as plain state: each rule of docs/protocol.md, "The client's half of the contract".

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sync } from '../src/sync.js';
import { message } from './fake-server.js';

const WELCOME = { type: 'welcome', user_id: 'bob', session_id: 's1', max_body_bytes: 100 };
const ID = 'alice~bob';

/** A state that is driven by hand: everything that arrives is held at once. */
function driven() {
  const told = { messages: [], sent: [], failed: [], ticks: [] };
  const sync = new Sync('bob', {
    stored: (entry, wire) => told.sent.push([entry.send.client_msg_id, wire.seq]),
    done: () => {},
    failed: (entry, error) => told.failed.push([entry.send.client_msg_id, error.code]),
    ticks: (id, user) => told.ticks.push([id, user]),
    readConfirmed: () => {},
  });
  const handle = () => {
    for (let arrival = sync.arrivals.shift(); arrival; arrival = sync.arrivals.shift()) {
      sync.handled(arrival);
      if (arrival.kind === 'message' && arrival.fresh) told.messages.push(arrival.frame.seq);
    }
  };
  const frame = (...frames) => {
    for (const one of frames) {
      sync.frame(one);
      handle();
    }
  };
  const frames = () => {
    const out = sync.takeFrames();
    handle();
    return out;
  };
  const up = (heads = [], cursor = '1000') => {
    const hello = sync.connected('token', 'device');
    frame(WELCOME, { type: 'caught_up', cursor, heads });
    frames();
    return hello;
  };
  return { sync, told, frame, frames, up, handle };
}

const msg = (seq, more) => ({ type: 'message', ...message(seq, more) });
const head = (last_seq, conversation_id = ID) => ({ conversation_id, last_seq });
const acks = (frames) => frames.filter(({ type }) => type === 'ack').map(({ conversation_id, seq }) => [conversation_id, seq]);
const page = (ref, messages, from_seq, to_seq, next = null) => ({ type: 'history', ref, conversation_id: ID, messages, from_seq, to_seq, next });
const put = (sync, id, body = 'text') => sync.outbox.push({ client_msg_id: id, to: 'alice', body, seen_seq: 0 }, 'waiting', null);

test('one ack for many messages, and none for own ones', () => {
  const { frame, frames, up } = driven();
  up();
  frame(msg(1), msg(2), msg(3, { sender: 'bob' }), msg(1, { conversation_id: 'bob~carol', sender: 'carol' }));
  assert.deepEqual(acks(frames()), [[ID, 2], ['bob~carol', 1]]);
  assert.deepEqual(frames(), []);
});

test('a repetition is not told, but acked again', () => {
  const { frame, frames, up, told } = driven();
  up();
  frame(msg(1));
  frames();
  frame(msg(1));
  assert.deepEqual(acks(frames()), [[ID, 1]]);
  assert.deepEqual(told.messages, [1]);
});

test('what the device does not hold yet is not acked', () => {
  const { sync, frame, frames, up, handle } = driven();
  up();
  sync.frame(msg(1));
  assert.deepEqual(sync.takeFrames(), [], 'it is still being stored');
  sync.frame(msg(1));
  assert.equal(sync.arrivals.length, 1, 'the repetition waits for nothing');
  handle();
  assert.deepEqual(acks(frames()), [[ID, 1]]);
  frame();
});

test('a gap is asked for, and until it closes nothing behind it is told or acked', () => {
  const { frame, frames, up, told } = driven();
  up([head(10)]);
  frame(msg(12));
  const asked = frames();
  assert.deepEqual(asked.map(({ type, after_seq }) => [type, after_seq]), [['history', 10]]);
  assert.deepEqual(told.messages, []);
  frame(page(asked[0].ref, [message(11)], 11, 12));
  assert.deepEqual(told.messages, [11, 12]);
  assert.deepEqual(acks(frames()), [[ID, 12]]);
});

test('a void seq is settled by the history that leaves it out', () => {
  const { frame, frames, up, told } = driven();
  up([head(10)]);
  frame(msg(13));
  const [{ ref }] = frames();
  frame(page(ref, [message(12)], 11, 12));
  assert.deepEqual(told.messages, [12, 13]);
  frame(msg(14));
  assert.deepEqual(acks(frames()), [[ID, 14]]);
});

test('a long gap is read page by page', () => {
  const { frame, frames, up, told } = driven();
  up([head(0)]);
  frame(msg(4));
  let [{ ref, after_seq }] = frames();
  assert.equal(after_seq, 0);
  frame(page(ref, [message(1), message(2)], 1, 2, 2));
  [{ ref, after_seq }] = frames();
  assert.equal(after_seq, 2);
  frame(page(ref, [message(3)], 3, 3));
  assert.deepEqual(told.messages, [1, 2, 3, 4]);
});

test('a gap that cannot be read now is asked for again, one that never can is given up', () => {
  const { sync, frame, frames, up, told } = driven();
  up([head(1)]);
  frame(msg(3));
  let [{ ref }] = frames();
  frame({ type: 'error', ref, code: 'unavailable', retry_after_ms: 70 });
  assert.deepEqual(frames(), []);
  assert.equal(sync.takeRetryMs(), 70);
  sync.retry();
  [{ ref }] = frames();
  frame({ type: 'error', ref, code: 'not_found' });
  assert.deepEqual(told.messages, [3]);
});

test('heads tell of what the stream did not bring', () => {
  const { frame, frames, up, told, sync } = driven();
  up([head(2)]);
  sync.connected('token', 'device');
  frame(WELCOME, { type: 'caught_up', cursor: '1004', heads: [head(3)] });
  const [{ type, after_seq, ref }] = frames();
  assert.deepEqual([type, after_seq], ['history', 2]);
  frame(page(ref, [message(3)], 3, 3));
  assert.deepEqual(told.messages, [3]);
  assert.deepEqual(acks(frames()), [], 'what history brought is not acked');
});

test('a conversation that was not there before begins with 1', () => {
  const { frame, frames, up } = driven();
  up();
  frame(msg(2));
  assert.deepEqual(frames().map(({ type, after_seq }) => [type, after_seq]), [['history', 0]]);
});

test('a new device takes the heads as given', () => {
  const { frames, up } = driven();
  up([head(500)]);
  assert.deepEqual(frames(), []);
});

test('what history has loaded must not be followed by a gap', () => {
  const { sync, frame, frames, told } = driven();
  sync.connected('token', 'device');
  frame(WELCOME);
  sync.loaded(ID, 10);
  frame({ type: 'caught_up', cursor: '1000', heads: [head(11)] });
  const [{ type, after_seq, ref }] = frames();
  assert.deepEqual([type, after_seq], ['history', 10]);
  frame(page(ref, [message(11)], 11, 11));
  assert.deepEqual(told.messages, [11]);
});

test('the cursor comes from caught_up and follows the acks', () => {
  const { sync, frame, frames, up } = driven();
  assert.equal('cursor' in up([], '1000'), false);
  assert.equal(sync.cursor, '1000');
  frame(msg(1));
  assert.equal(sync.cursor, '1000', 'not before the ack');
  frames();
  assert.equal(sync.cursor, '1001');
  frame(msg(2, { message_id: '999' }));
  frames();
  assert.equal(sync.cursor, '1001', 'never back: ids are compared as numbers');
  assert.equal(sync.connected('token', 'device').cursor, '1001');
});

test('the cursor does not move between welcome and caught_up', () => {
  const { sync, frame, frames, up } = driven();
  up([], '1000');
  sync.connected('token', 'device');
  frame(WELCOME, msg(1));
  assert.deepEqual(acks(frames()), [[ID, 1]]);
  assert.equal(sync.cursor, '1000');
  frame({ type: 'caught_up', cursor: '1005', heads: [head(1)] });
  assert.equal(sync.cursor, '1005');
});

test('the cursor stands still while a gap is open', () => {
  const { sync, frame, frames, up } = driven();
  up([head(1), head(1, 'bob~carol')], '1000');
  frame(msg(3), msg(2, { conversation_id: 'bob~carol', sender: 'carol', message_id: '1500' }));
  const [history, ack] = frames();
  assert.deepEqual([history.type, ack.type], ['history', 'ack']);
  assert.equal(sync.cursor, '1000');
  frame(page(history.ref, [message(2)], 2, 3));
  assert.equal(sync.cursor, '1500');
});

test('the cursor never covers what is still being stored', () => {
  const { sync, handle } = driven();
  sync.connected('token', 'device');
  sync.frame(WELCOME);
  sync.frame(msg(1));
  sync.frame({ type: 'caught_up', cursor: '1001', heads: [head(1)] });
  sync.takeFrames();
  assert.equal(sync.cursor, null);
  handle();
  assert.equal(sync.cursor, '1001');
});

test('resumes names the session before, in this life only', () => {
  const { sync, up } = driven();
  assert.equal('resumes' in up(), false);
  assert.equal(sync.connected('token', 'device').resumes, 's1');
  const again = driven();
  again.sync.restore({ cursor: '1000', knowsAll: true, threads: new Map() });
  const hello = again.sync.connected('token', 'device');
  assert.deepEqual([hello.cursor, 'resumes' in hello], ['1000', false]);
});

test('after a reset gaps mean nothing', () => {
  const { sync, frame, frames, up, told } = driven();
  up([head(1)]);
  sync.connected('token', 'device');
  frame(WELCOME, { type: 'reset', reason: 'old' }, msg(50), { type: 'caught_up', cursor: '2000', heads: [head(50), head(9, 'bob~carol')] });
  assert.deepEqual(told.messages, [50]);
  assert.deepEqual(frames().map(({ type }) => type), ['ack']);
  frame(msg(52));
  assert.deepEqual(frames().map(({ type, after_seq }) => [type, after_seq]), [['history', 50]], 'then they do again');
});

test('an ack that may be lost is said again', () => {
  const { sync, frame, frames, up } = driven();
  up();
  frame(msg(1));
  frames();
  up([head(1)]);
  sync.connected('token', 'device');
  frame(WELCOME, { type: 'caught_up', cursor: '1001', heads: [head(1)] });
  assert.deepEqual(acks(frames()), [[ID, 1]]);
  frame({ type: 'ticks', conversation_id: ID, user_id: 'bob', last_delivered_seq: 1, last_read_seq: 0 });
  sync.connected('token', 'device');
  frame(WELCOME, { type: 'caught_up', cursor: '1001', heads: [head(1)] });
  assert.deepEqual(acks(frames()), [], 'not once the server has it');
});

test('sends go out in order, 32 at most, and again after a reconnect with the same ids', () => {
  const { sync, frame, frames, up } = driven();
  up();
  for (let n = 1; n <= 40; n += 1) put(sync, `m${n}`);
  const first = frames().map(({ ref, client_msg_id }) => (assert.equal(ref, client_msg_id), client_msg_id));
  assert.deepEqual(first, Array.from({ length: 32 }, (_, n) => `m${n + 1}`));
  frame({ type: 'sent', ref: 'm1', client_msg_id: 'm1', conversation_id: ID, seq: 1, message_id: '1', ts: 1 });
  assert.deepEqual(frames().map(({ client_msg_id }) => client_msg_id), ['m33']);
  sync.connected('token', 'device');
  frame(WELCOME);
  assert.deepEqual(frames().map(({ client_msg_id }) => client_msg_id), Array.from({ length: 32 }, (_, n) => `m${n + 2}`));
});

test('a code that may pass later holds the message and those behind it', () => {
  const { sync, frame, frames, up, told } = driven();
  up();
  put(sync, 'a');
  frames();
  put(sync, 'b');
  frame({ type: 'error', ref: 'a', code: 'rate_limited', retry_after_ms: 5 });
  assert.deepEqual(frames(), []);
  assert.equal(sync.takeRetryMs(), 5);
  sync.retry();
  assert.deepEqual(frames().map(({ client_msg_id }) => client_msg_id), ['a', 'b']);
  for (const code of ['unavailable', 'storage_full', 'internal', 'shutting_down']) {
    frame({ type: 'error', ref: 'a', code });
    assert.ok(sync.takeRetryMs() >= 1000);
    sync.retry();
    frames();
  }
  assert.deepEqual(told.failed, []);
});

test('any other code is final, and does not hold up the rest', () => {
  const { sync, frame, frames, up, told } = driven();
  up();
  put(sync, 'a');
  frames();
  put(sync, 'b');
  frame({ type: 'error', ref: 'a', code: 'blocked', message: 'no' });
  assert.deepEqual(told.failed, [['a', 'blocked']]);
  assert.deepEqual(frames().map(({ client_msg_id }) => client_msg_id), ['b']);
  assert.equal(sync.outbox.get('a').progress, 'failed', 'it stays to be seen');
});

test('a message of the outbox that comes back is sent, and told once', () => {
  const { sync, frame, frames, up, told } = driven();
  up();
  put(sync, 'a');
  frames();
  frame(msg(1, { sender: 'bob', client_msg_id: 'a' }));
  assert.deepEqual(told.sent, [['a', 1]]);
  frame({ type: 'sent', ref: 'a', client_msg_id: 'a', conversation_id: ID, seq: 1, message_id: '1001', ts: 1 });
  assert.deepEqual(told.sent, [['a', 1]]);
  assert.deepEqual(told.messages, []);
});

test('a first message that was sent long ago says nothing of what came since', () => {
  const { sync, told, frame, frames, up } = driven();
  put(sync, 'c1');
  sync.connected('token', 'device');
  frame(WELCOME);
  frames();
  frame({ type: 'sent', ref: 'c1', client_msg_id: 'c1', conversation_id: ID, seq: 1, message_id: '1001', ts: 1, duplicate: true });
  frame({ type: 'caught_up', cursor: '2000', heads: [head(60)] });
  assert.deepEqual([frames().filter(({ type }) => type === 'history'), told.sent], [[], [['c1', 1]]]);
});

test('a message of one\'s own from another device is told', () => {
  const { frame, up, told } = driven();
  up();
  frame(msg(1, { sender: 'bob' }));
  assert.deepEqual(told.messages, [1]);
});

test('what was sent from here is no gap', () => {
  const { sync, frame, frames, up, told } = driven();
  up([head(1)]);
  put(sync, 'a');
  frames();
  frame({ type: 'sent', ref: 'a', client_msg_id: 'a', conversation_id: ID, seq: 2, message_id: '1002', ts: 1 }, msg(3));
  assert.deepEqual(told.messages, [3]);
  assert.deepEqual(frames().map(({ type }) => type), ['ack']);
});

test('a message that makes the server hang up fails', () => {
  for (const code of ['frame_too_large', 'not_json']) {
    const { sync, frame, frames, up, told } = driven();
    up();
    put(sync, 'short');
    put(sync, 'long', 'x'.repeat(90));
    frames();
    frame({ type: 'bye', code, reason: 'no', reconnect_after_ms: 0 });
    assert.deepEqual(told.failed, [['long', code]]);
  }
});

test('a body that this server does not take fails before it goes out', () => {
  const { sync, frames, up, told } = driven();
  put(sync, 'long', 'é'.repeat(51));
  put(sync, 'fits', 'é'.repeat(50));
  up();
  sync.outbox.disconnected();
  assert.deepEqual(told.failed, [['long', 'body_too_large']]);
  assert.deepEqual(frames().map(({ client_msg_id }) => client_msg_id), ['fits']);
});

test('boundaries merge by maximum, and read implies delivered', () => {
  const { sync, frame, up, told } = driven();
  up();
  const ticks = (user_id, last_delivered_seq, last_read_seq) => frame({ type: 'ticks', conversation_id: ID, user_id, last_delivered_seq, last_read_seq });
  ticks('alice', 5, 2);
  ticks('alice', 3, 1);
  assert.equal(told.ticks.length, 1, 'what is no news is not told');
  ticks('alice', 0, 7);
  const { peer } = sync.thread(ID);
  assert.deepEqual(peer, { delivered: 7, read: 7 });
  assert.deepEqual([1, 7, 8].map((seq) => sync.thread(ID).tickOf(seq)), ['read', 'read', 'sent']);
});

test('ticks that are not blue are asked for after a reconnect', () => {
  const { sync, frame, frames, up } = driven();
  up();
  put(sync, 'a');
  frames();
  frame({ type: 'sent', ref: 'a', client_msg_id: 'a', conversation_id: ID, seq: 1, message_id: '1001', ts: 1 });
  sync.connected('token', 'device');
  frame(WELCOME, { type: 'caught_up', cursor: '1001', heads: [head(1)] });
  const asked = frames();
  assert.deepEqual(asked.map(({ type, conversation_id }) => [type, conversation_id]), [['status', ID]]);
  const boundaries = { last_delivered_seq: 1, last_read_seq: 1 };
  frame({ type: 'status', ref: asked[0].ref, conversation_id: ID, last_seq: 1, unread_count: 0, own: boundaries, peer: boundaries });
  assert.equal(sync.thread(ID).tickOf(1), 'read');
  sync.connected('token', 'device');
  frame(WELCOME, { type: 'caught_up', cursor: '1001', heads: [head(1)] });
  assert.deepEqual(frames(), []);
});

test('a read said offline is kept, said once, and again until it is confirmed', () => {
  const { sync, frame, frames, up } = driven();
  sync.read(ID, 4);
  sync.connected('token', 'device');
  frame(WELCOME);
  assert.deepEqual(frames().map(({ type, seq }) => [type, seq]), [['read', 4]]);
  sync.read(ID, 3);
  assert.deepEqual(frames(), [], 'less than what was said is nothing new');
  sync.connected('token', 'device');
  frame(WELCOME);
  let [{ ref }] = frames();
  frame({ type: 'error', ref, code: 'unavailable', retry_after_ms: 9 });
  assert.equal(sync.takeRetryMs(), 9);
  sync.retry();
  [{ ref }] = frames();
  frame({ type: 'done', ref });
  up();
  assert.deepEqual(frames(), []);
});

test('a read that the server will never take is forgotten', () => {
  const { sync, frame, frames, up } = driven();
  up();
  sync.read(ID, 4);
  const [{ ref }] = frames();
  frame({ type: 'error', ref, code: 'not_found' });
  assert.equal(sync.thread(ID).readPending, false);
});

test('what is saved goes on where it was', () => {
  const { sync, frame, frames, up } = driven();
  up([head(5)]);
  frame(msg(6));
  frames();
  const threads = new Map([[ID, JSON.parse(JSON.stringify(sync.thread(ID).save()))]]);
  const again = driven();
  again.sync.restore({ cursor: sync.cursor, knowsAll: sync.knowsAll, threads });
  again.sync.connected('token', 'device');
  again.frame(WELCOME, msg(6), msg(7));
  assert.deepEqual(again.told.messages, [7]);
  assert.equal(again.sync.thread(ID).heard, 7);
});
