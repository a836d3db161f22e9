// The arithmetic of the operator's page.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bound, gauge, mean, quantile, rate } from '../src/admin/figures.js';
import { after, bytes, duration, seconds, short } from '../src/admin/format.js';
import { History } from '../src/admin/history.js';
import { collect, isShown, SECTIONS } from '../src/admin/panels.js';
import { roof } from '../src/admin/plot.js';
import { parse } from '../src/admin/prometheus.js';
import { readEvents } from '../src/admin/steps.js';
import { telling, tracePath } from '../src/admin/trace.js';

const FIRST = parse(`# HELP bluetick_sends_total Sends answered
# TYPE bluetick_sends_total counter
bluetick_sends_total 10
bluetick_errors_total{code="not_found",via="http"} 3
bluetick_errors_total{code="odd\\"\\\\name"} 1
bluetick_fsync_seconds_bucket{le="0.001"} 10
bluetick_fsync_seconds_bucket{le="0.01"} 10
bluetick_fsync_seconds_bucket{le="+Inf"} 10
bluetick_fsync_seconds_sum 0.005
bluetick_fsync_seconds_count 10
`, 1_000);
const SECOND = parse(`bluetick_sends_total 16
bluetick_connections 4
bluetick_errors_total{code="not_found",via="http"} 5
bluetick_errors_total{code="not_found"} 2
bluetick_fsync_seconds_bucket{le="0.001"} 15
bluetick_fsync_seconds_bucket{le="0.01"} 20
bluetick_fsync_seconds_bucket{le="+Inf"} 20
bluetick_fsync_seconds_sum 0.045
bluetick_fsync_seconds_count 20
`, 3_000);

test('the text of /metrics is read, labels and all', () => {
  assert.equal(FIRST.help.get('bluetick_sends_total'), 'Sends answered');
  assert.deepEqual(FIRST.families.get('bluetick_errors_total')[1], { labels: { code: 'odd"\\name' }, value: 1 });
  assert.equal(parse('x{le="+Inf"} +Inf', 0).families.get('x')[0].value, Infinity);
});

test('rates count what came between two looks', () => {
  assert.equal(rate('bluetick_sends_total')(SECOND, FIRST), 3);
  assert.equal(rate('bluetick_sends_total')(FIRST, null), null);
  assert.equal(rate('bluetick_never_total')(SECOND, FIRST), 0);
  assert.equal(rate('bluetick_errors_total', ({ code }) => code === 'not_found')(SECOND, FIRST), 2);
  // A restarted server counts from zero.
  assert.equal(rate('bluetick_sends_total')({ ...FIRST, at: 5_000 }, SECOND), 5);
});

test('a gauge that the server does not have is not zero', () => {
  assert.equal(gauge('bluetick_connections')(SECOND), 4);
  assert.equal(gauge('bluetick_connections')(FIRST), null);
});

test('quantiles come from what the buckets gained', () => {
  assert.equal(quantile('bluetick_fsync_seconds', 0.5)(SECOND, FIRST), 0.001);
  assert.ok(Math.abs(quantile('bluetick_fsync_seconds', 0.75)(SECOND, FIRST) - 0.0055) < 1e-12);
  assert.equal(bound('bluetick_fsync_seconds', 0.75)(SECOND, FIRST), 0.01);
  assert.equal(quantile('bluetick_fsync_seconds', 0.5)(FIRST, FIRST), null);
  assert.ok(Math.abs(mean('bluetick_fsync_seconds')(SECOND, FIRST) - 0.004) < 1e-12);
  const beyond = parse('x_bucket{le="10"} 0\nx_bucket{le="+Inf"} 2', 5);
  assert.equal(quantile('x', 0.99)(beyond, parse('', 0)), 10);
});

test('every plot gets a series from a real sample', () => {
  const values = collect(SECOND, FIRST);
  assert.equal(values.get('messages/sends'), 3);
  assert.equal(values.get('errors/not_found'), 2);
  const plots = SECTIONS.flatMap((section) => section.plots);
  assert.equal(new Set(plots.map(({ id }) => id)).size, plots.length);
  assert.equal(isShown(SECTIONS.find(({ id }) => id === 'cluster'), SECOND), false);
  assert.equal(isShown(SECTIONS.find(({ id }) => id === 'cluster'), parse('bluetick_redis_errors_total 0', 0)), true);
});

test('history keeps a quarter of an hour, and holes as holes', () => {
  const history = new History();
  history.add(0, new Map([['a', 1]]));
  history.add(10_000, new Map([['b', 5]]));
  assert.deepEqual([history.of('a'), history.of('b'), history.of('c')], [[1, null], [null, 5], [null, null]]);
  assert.equal(history.last('a'), 1);
  assert.equal(history.last('a', 5_000), null);
  history.add(16 * 60_000, new Map([['a', 2]]));
  assert.deepEqual([history.times, history.of('a')], [[16 * 60_000], [2]]);
});

test('numbers are short and scales are round', () => {
  assert.deepEqual([0, 0.042, 3.456, 17, 1204, 48_210, 3.1e6].map(short), ['0', '0.042', '3.46', '17', '1,204', '48.2k', '3.1M']);
  assert.deepEqual([0, 512, 1536, 5e10].map(bytes), ['0 B', '512 B', '1.5 KiB', '46.6 GiB']);
  assert.deepEqual([0.00042, 0.0125, 2].map(seconds), ['420 µs', '12.5 ms', '2 s']);
  assert.deepEqual([5, 62, 7_400, 200_000].map(duration), ['5 s', '1 min 2 s', '2 h 3 min', '2 d 7 h']);
  assert.deepEqual([3, 2_100, 184_000].map(after), ['+3 ms', '+2.1 s', '+3 min 4 s']);
  assert.deepEqual([roof(0, 'count'), roof(7, 'count'), roof(0.013, 'seconds'), roof(1500, 'bytes')], [1, 8, 0.02, 2048]);
});

test('a message is named by id or by place', () => {
  assert.equal(tracePath(' 380479634883477504 '), 'trace/380479634883477504');
  assert.equal(tracePath('alice~bob 7'), 'trace/alice~bob/7');
  assert.equal(tracePath('alice~bob/7'), 'trace/alice~bob/7');
  for (const wrong of ['', 'alice', 'alice~bob', 'alice~bob 0', 'alice~bob x']) assert.throws(() => tracePath(wrong), wrong);
});

test('of the receipts that cover a message, those are told that moved its tick', () => {
  const step = (name, who, seq) => ({ step: name, who, seq });
  const events = [step('stored', 'alice', 7), step('acked', 'alice', 8), step('acked', 'bob', 7), step('acked', 'bob', 9), step('read', 'bob', 9), step('read', 'bob', 10)];
  assert.deepEqual(telling(events, 'alice'), [events[0], events[2], events[4]]);
});

test('events are read however the bytes are cut', async () => {
  const bytesOf = new TextEncoder().encode('data: {"step":"stored"}\n\n: still here\n\ndata: {"step":"grüß"}\n\n');
  for (const size of [1, 3, 1000]) {
    const pieces = [];
    for (let i = 0; i < bytesOf.length; i += size) pieces.push(bytesOf.slice(i, i + size));
    const seen = [];
    await readEvents(ReadableStream.from(pieces), (event) => seen.push(event.step));
    assert.deepEqual(seen, ['stored', 'grüß']);
  }
});
