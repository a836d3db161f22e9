// The parts of the tour that need no browser: the player of events, the sorting into runs, the texts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Player } from '../src/tour/player.js';
import { Runs } from '../src/tour/runs.js';
import { TABLES, written } from '../src/tour/schema.js';
import { LANES, STEPS, laneOf, line, placeOf, tell } from '../src/tour/steps.js';

const event = (step, more = {}) => ({ at: 1794780613926, step, conversation_id: null, seq: null, user: null, device: null, count: null, ...more });
const chat = 'alice~bob';

/** What the server says when Alice writes and Bob is away. */
const offlineSend = (seq) => [
  event('looked_up', { conversation_id: chat, user: 'bob', count: 0 }),
  event('stored', { conversation_id: chat, seq, user: 'alice' }),
  event('pending_row', { conversation_id: chat, seq, user: 'bob' }),
  event('looked_again', { conversation_id: chat, seq, user: 'bob', count: 0 }),
  event('sent', { conversation_id: chat, seq, user: 'alice' }),
];

/** A clock that only moves when told to, with its timers. */
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

function playing() {
  const clock = handClock();
  const shown = [];
  const player = new Player((one) => shown.push([clock.time, one]), clock);
  return { clock, shown, player };
}

test('the player spreads a burst out and keeps its order', () => {
  const { clock, shown, player } = playing();
  const burst = offlineSend(1);
  for (const one of burst) player.push(one);
  clock.to(10_000);
  assert.deepEqual(shown.map(([, one]) => one), burst);
  const gaps = shown.slice(1).map(([time], n) => time - shown[n][0]);
  for (const gap of gaps) assert.ok(gap >= 300 && gap <= 600, `a gap of ${gap} ms`);
});

test('the player is never far behind', () => {
  const { clock, shown, player } = playing();
  for (let n = 0; n < 500; n += 1) player.push(event('stored', { seq: n }));
  assert.ok(player.queue.length <= 80);
  clock.to(15_000);
  assert.equal(shown.length, 500);
  assert.ok(shown.at(-1)[0] < 3500, `the last was shown after ${shown.at(-1)[0]} ms`);
  assert.deepEqual(shown.map(([, one]) => one.seq), [...Array(500).keys()]);
});

test('what comes at its own pace is shown at once', () => {
  const { clock, shown, player } = playing();
  for (let n = 0; n < 5; n += 1) { clock.to(n * 1200); player.push(event('stored', { seq: n })); clock.to(n * 1200 + 1); }
  assert.deepEqual(shown.map(([time]) => time), [0, 1200, 2400, 3600, 4800]);
});

test('with a pace, two steps between two waits of the server do not make the player late', () => {
  const { clock, shown, player } = playing();
  player.pace = 500;
  for (let n = 0; n < 20; n += 1) {
    clock.to(n * 500);
    player.push(event('drained', { seq: n }));
    clock.to(n * 500 + 7);
    player.push(event('acked', { seq: n }));
  }
  clock.to(20_000);
  for (const [time, { seq }] of shown) assert.ok(time - seq * 500 < 500, `${seq} at ${time}`);
});

test('a cleared player shows nothing more', () => {
  const { clock, shown, player } = playing();
  for (const one of offlineSend(1)) player.push(one);
  player.clear();
  clock.to(10_000);
  assert.deepEqual(shown, []);
  assert.ok(player.idle);
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
