// The parts of the tour that need no browser: the timeline, the phones' sockets, the rows after a step, the sorting into
// runs, the texts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { afterStep } from '../src/tour/rows.js';
import { Runs } from '../src/tour/runs.js';
import { TABLES, written } from '../src/tour/schema.js';
import { replayedSocket } from '../src/tour/socket.js';
import { LANES, STEPS, laneOf, line, placeOf, tell } from '../src/tour/steps.js';
import { Timeline } from '../src/tour/timeline.js';

const event = (step, more = {}) => ({ at: 1794780613926, step, conversation_id: null, seq: null, user: null, device: null, count: null, ...more });
const chat = 'alice~bob';

/** The events of a send to Bob, who is offline. */
const offlineSend = (seq) => [
  event('looked_up', { conversation_id: chat, user: 'bob', count: 0 }),
  event('stored', { conversation_id: chat, seq, user: 'alice' }),
  event('pending_row', { conversation_id: chat, seq, user: 'bob' }),
  event('looked_again', { conversation_id: chat, seq, user: 'bob', count: 0 }),
  event('sent', { conversation_id: chat, seq, user: 'alice' }),
];

/** A clock with timers that only moves when a test moves it. */
function handClock() {
  const clock = { time: 0, timers: [] };
  clock.setTimeout = (f, ms) => { const timer = { at: clock.time + ms, f }; clock.timers.push(timer); return timer; };
  clock.clearTimeout = (timer) => { clock.timers = clock.timers.filter((one) => one !== timer); };
  clock.now = () => clock.time;
  clock.to = (time) => {
    for (;;) {
      const [next] = clock.timers.sort((a, b) => a.at - b.at);
      if (!next || next.at > time) break;
      clock.clearTimeout(next);
      clock.time = Math.max(clock.time, next.at);
      next.f();
    }
    clock.time = time;
  };
  return clock;
}

function timeline() {
  const clock = handClock();
  const shown = [];
  const line = new Timeline(() => {}, clock);
  const addStep = (name, at = clock.time) => line.addStep(at, () => shown.push([clock.time, name]));
  const addFrame = (name, owner = 'bob') => line.addFrame(owner, () => shown.push([clock.time, name]));
  const names = () => shown.map(([, name]) => name);
  return { clock, shown, line, addStep, addFrame, names };
}

test('the timeline spreads a burst out and keeps its order', () => {
  const { clock, shown, addStep, names } = timeline();
  const burst = ['looked_up', 'stored', 'pending_row', 'looked_again', 'sent'];
  for (const step of burst) addStep(step);
  clock.to(10_000);
  assert.deepEqual(names(), burst);
  const gaps = shown.slice(1).map(([time], n) => time - shown[n][0]);
  for (const gap of gaps) assert.ok(gap >= 300 && gap <= 600, `a gap of ${gap} ms`);
});

test('live, the timeline is never far behind', () => {
  const { clock, shown, addStep, names } = timeline();
  for (let n = 0; n < 90; n += 1) addStep(n);
  clock.to(15_000);
  assert.deepEqual(names(), [...Array(90).keys()]);
  assert.ok(shown.at(-1)[0] < 3500, `the last was shown after ${shown.at(-1)[0]} ms`);
});

test('a long queue is bounded: the oldest are shown at once', () => {
  const { line, addStep, names } = timeline();
  line.pause();
  for (let n = 0; n < 2500; n += 1) addStep(n);
  assert.equal(line.waiting, 2000);
  assert.deepEqual(names(), [...Array(500).keys()]);
});

test('what comes slowly is shown at once', () => {
  const { clock, shown, addStep } = timeline();
  for (let n = 0; n < 5; n += 1) { clock.to(n * 1200); addStep(n); clock.to(n * 1200 + 1); }
  assert.deepEqual(shown.map(([time]) => time), [0, 1200, 2400, 3600, 4800]);
});

test('at a speed, every gap is the same, however many wait', () => {
  const { clock, shown, line, addStep } = timeline();
  line.setGap(2000);
  for (let n = 0; n < 20; n += 1) addStep(n);
  clock.to(100_000);
  assert.deepEqual(shown.map(([time]) => time), [...Array(20).keys()].map((n) => n * 2000));
});

test('a frame is shown with the step that caused it, though it arrived before the event', () => {
  const { clock, shown, line, addStep, addFrame } = timeline();
  line.setGap(1000);
  addStep('stored', 0);
  clock.to(4);
  addFrame('one tick');
  clock.to(6);
  addStep('sent', 3);
  clock.to(9);
  addFrame('two ticks');
  clock.to(10);
  addStep('acked', 8);
  clock.to(10_000);
  assert.deepEqual(shown, [[0, 'stored'], [1000, 'sent'], [1000, 'one tick'], [2000, 'acked'], [2000, 'two ticks']]);
});

test('steps keep the order of the stream, whatever their times', () => {
  const { clock, addStep, names } = timeline();
  for (const [name, at] of [['stored', 50], ['looked_again', 20], ['sent', 60]]) addStep(name, at);
  clock.to(10_000);
  assert.deepEqual(names(), ['stored', 'looked_again', 'sent']);
});

test('frames go on without steps, and wait for the step that is on its way', () => {
  const { clock, shown, addStep, addFrame } = timeline();
  clock.to(100);
  addFrame('typing');
  clock.to(120);
  addStep('written', 99);
  clock.to(1000);
  assert.deepEqual(shown, [[120, 'written'], [150, 'typing']]);
});

test('paused, nothing is shown until it is stepped or goes on', () => {
  const { clock, line, addStep, addFrame, names } = timeline();
  line.pause();
  addStep('looked_up', 0);
  addStep('sent', 1);
  clock.to(2);
  addFrame('one tick');
  clock.to(3);
  addStep('acked', 3);
  clock.to(60_000);
  assert.deepEqual(names(), []);
  line.step();
  assert.deepEqual(names(), ['looked_up']);
  line.step();
  assert.deepEqual(names(), ['looked_up', 'sent', 'one tick'], 'a step and the frames it caused');
  clock.to(120_000);
  assert.equal(names().length, 3);
  line.play();
  clock.to(180_000);
  assert.equal(names().at(-1), 'acked');
  assert.ok(line.isEmpty);
});

test('a flush shows the frames of one phone, and of no other', () => {
  const { line, addStep, addFrame, names } = timeline();
  line.pause();
  addStep('stored');
  addFrame('his', 'bob');
  addFrame('hers', 'alice');
  line.flush('bob');
  assert.deepEqual(names(), ['his']);
  line.step();
  assert.deepEqual(names(), ['his', 'stored', 'hers']);
});

test('a cleared timeline shows nothing more', () => {
  const { clock, shown, line, addStep } = timeline();
  for (const n of [1, 2, 3]) addStep(n);
  line.clear();
  clock.to(10_000);
  assert.deepEqual(shown, []);
  assert.ok(line.isEmpty);
});

/** A socket that records what it is given; the test plays the server. */
class FakeSocket {
  sent = [];
  readyState = 1;
  send(data) { this.sent.push(JSON.parse(data)); }
  close() { this.readyState = 3; }
  receive(frame) { this.onmessage({ data: JSON.stringify(frame) }); }
}

test('a phone acks a message at once and shows it when its turn comes', () => {
  const { line } = timeline();
  line.pause();
  const Socket = replayedSocket(line, 'bob', 'his phone', FakeSocket);
  const phone = new Socket('ws://here');
  const heard = [];
  phone.onmessage = ({ data }) => heard.push(JSON.parse(data).type);
  phone.socket.receive({ type: 'welcome' });
  phone.socket.receive({ type: 'message', conversation_id: chat, seq: 4, sender: 'alice' });
  phone.socket.receive({ type: 'message', conversation_id: chat, seq: 5, sender: 'bob' });
  phone.socket.receive({ type: 'pong' });
  assert.deepEqual(phone.socket.sent, [{ type: 'ack', conversation_id: chat, seq: 4 }], 'own messages need no ack');
  assert.deepEqual(heard, ['welcome', 'pong']);
  line.step();
  assert.deepEqual(heard, ['welcome', 'pong', 'message', 'message']);
  phone.socket.receive({ type: 'ticks' });
  phone.onmessage = null;
  line.step();
  phone.close();
  assert.equal(phone.readyState, 3);
});

const noRows = () => ({ messages: [], pending_deliveries: [], message_status: [], conversations: [], inbox: { alice: [], bob: [] }, ws: { alice: [], bob: [] } });

test('a step brings the rows that it wrote, and no other row changes', () => {
  const first = { receiver_id: 'bob', conversation_id: chat, first_undelivered_seq: 1 };
  const other = { receiver_id: 'bob', conversation_id: 'bob~carol', first_undelivered_seq: 7 };
  const before = { ...noRows(), pending_deliveries: [other] };
  const noted = afterStep(before, event('pending_row', { user: 'bob', conversation_id: chat, seq: 1, rows: { pending_deliveries: [first] } }));
  assert.deepEqual(noted, { ...before, pending_deliveries: [first, other] }, 'in the order of the keys');
  const again = afterStep(noted, event('pending_row', { user: 'bob', conversation_id: chat, seq: 2, rows: { pending_deliveries: [first] } }));
  assert.deepEqual(again, noted, 'still one row');
  const gone = afterStep(again, event('row_gone', { user: 'bob', conversation_id: chat, seq: 1, rows: { pending_deliveries: [] } }));
  assert.deepEqual(gone, before);
  assert.deepEqual(afterStep(before, event('looked_up', { user: 'bob', rows: {} })), before);
});

test('a stored message brings its row, both conversations rows and the order of the inboxes', () => {
  const entry = (id, ts) => ({ conversation_id: id, last_message_ts: ts });
  const before = { ...noRows(), inbox: { alice: [entry('alice~carol', 5), entry(chat, 3)], bob: [] } };
  const message = { conversation_id: chat, seq: 2, body: 'hi' };
  const conversations = ['alice', 'bob'].map((user_id) => ({ user_id, conversation_id: chat, last_seq: 2 }));
  const rows = { messages: [message], message_status: [], conversations, inbox: { alice: [entry(chat, 9)], bob: [entry(chat, 9)] } };
  const after = afterStep(before, event('stored', { user: 'alice', conversation_id: chat, seq: 2, rows }));
  assert.deepEqual(after.messages, [message]);
  assert.deepEqual(after.conversations, conversations);
  assert.deepEqual(after.inbox, { alice: [entry(chat, 9), entry('alice~carol', 5)], bob: [entry(chat, 9)] });
  const later = conversations.map((row) => ({ ...row, last_seq: 3 }));
  const next = afterStep(after, event('stored', { user: 'alice', conversation_id: chat, seq: 3, rows: { ...rows, messages: [{ ...message, seq: 3 }], conversations: later } }));
  assert.deepEqual(next.messages.map(({ seq }) => seq), [2, 3]);
  assert.deepEqual(next.conversations, later);
});

test('sessions come and go by user', () => {
  const there = afterStep(noRows(), event('registered', { user: 'bob', rows: { ws: { bob: [{ session_id: '1' }] } } }));
  assert.deepEqual(there.ws, { alice: [], bob: [{ session_id: '1' }] });
  assert.deepEqual(afterStep(there, event('unregistered', { user: 'bob', rows: { ws: { bob: [] } } })), noRows());
});

test('a send is one run, from the look to the tick', () => {
  const runs = new Runs();
  const seen = offlineSend(7).map((one) => runs.take(one));
  assert.equal(new Set(seen).size, 1);
  assert.deepEqual([...seen[0].steps.keys()], ['looked_up', 'stored', 'pending_row', 'looked_again', 'sent']);
  assert.deepEqual([seen[0].from, seen[0].to, seen[0].seq], ['alice', 'bob', 7]);
});

test('two sends at once are two runs, in the order of their looks', () => {
  const runs = new Runs();
  const [a, b] = [offlineSend(1), offlineSend(2)];
  const first = runs.take(a[0]);
  const second = runs.take(b[0]);
  assert.equal(runs.take(a[1]), first);
  assert.equal(runs.take(b[1]), second);
  assert.equal(runs.take(a[4]), first);
  assert.equal(second.steps.has('sent'), false);
});

test('a phone that comes back goes on with the run in which it left, and a further return begins anew', () => {
  const runs = new Runs();
  const left = runs.take(event('unregistered', { user: 'bob' }));
  assert.equal(runs.take(event('registered', { user: 'bob' })), left);
  for (const seq of [1, 2, 3]) runs.take(event('drained', { user: 'bob', conversation_id: chat, seq }));
  assert.equal(left.steps.get('drained'), 3);
  assert.notEqual(runs.take(event('registered', { user: 'bob' })), left);
});

test('a message handed over begins the receiver’s run anew', () => {
  const runs = new Runs();
  const before = runs.take(event('registered', { user: 'bob' }));
  runs.take(event('handed_over', { conversation_id: chat, seq: 4, user: 'bob' }));
  const after = runs.take(event('acked', { conversation_id: chat, seq: 4, user: 'bob' }));
  assert.notEqual(after, before);
  assert.deepEqual([...after.steps.keys()], ['acked']);
});

test('a step of a later server is no run', () => {
  assert.equal(new Runs().take(event('something_new')), null);
});

test('every step has its place, its rule and its two texts', () => {
  const lanes = Object.values(LANES).flat();
  assert.deepEqual([...lanes].sort(), [...new Set(Object.keys(STEPS).map(placeOf))].sort());
  const tables = new Set(TABLES.map(({ id }) => id));
  for (const [step, { tables: touched }] of Object.entries(STEPS)) {
    assert.ok(laneOf(step));
    for (const id of touched) assert.ok(tables.has(id), `${step} touches ${id}`);
    for (const one of [null, event(step, { seq: 3, user: 'bob', device: 'phone', count: 1 }), event(step)]) {
      const told = tell(step, { event: one, from: 'alice', to: 'bob', row: null });
      for (const text of [told.name, told.rule, told.what, told.why]) assert.match(text, /^\S.*\S$/);
      assert.doesNotMatch(told.what + told.why, /undefined|null|  | \./, step);
    }
  }
});

test('the texts have the numbers of the event', () => {
  const scene = { from: 'alice', to: 'bob', row: null };
  assert.match(tell('looked_up', { ...scene, event: event('looked_up', { count: 0 }) }).what, /found 0 live sessions of bob/);
  assert.match(tell('looked_again', { ...scene, event: event('looked_again', { count: 1 }) }).what, /found 1 live session\./);
  const row = { first_undelivered_seq: 4 };
  assert.match(tell('pending_row', { ...scene, row, event: event('pending_row', { seq: 6 }) }).what, /already has a row\. It says 4/);
  assert.match(tell('pending_row', { ...scene, row, event: event('pending_row', { seq: 4 }) }).what, /from message 4 on/);
  assert.deepEqual(line(event('looked_up', { user: 'bob', count: 0 })), { name: 'looked up', user: 'bob', detail: '0 live' });
});

test('cells are short, and the whole is in the tooltip', () => {
  assert.deepEqual(written('380714932024377344', 'id'), { text: '…377344', whole: '380714932024377344' });
  assert.deepEqual(written('phone', 'id'), { text: 'phone', whole: 'phone' });
  assert.match(written(1794836713136, 'time').text, /^\d\d:\d\d:\d\d$/);
  assert.match(written(1794836713136, 'time').whole, /^1794836713136 = 2026-11-16T/);
  assert.equal(written(null, 'text').text, '–');
});
