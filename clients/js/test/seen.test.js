import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Seen } from '../src/seen.js';

const from = (settled) => new Seen({ settled, ranges: [] });

test('a conversation in order stays one range', () => {
  const seen = from(40);
  for (let seq = 41; seq < 5000; seq += 1) {
    assert.equal(seen.lacksBefore(seq), false);
    assert.equal(seen.insert(seq), true);
    assert.equal(seen.insert(seq), false);
  }
  assert.equal(seen.settled, 4999);
  assert.deepEqual(seen.save().ranges, [[41, 4999]]);
});

test('a hole holds back what is settled until it closes', () => {
  const seen = from(0);
  seen.insert(1);
  seen.insert(4);
  assert.equal(seen.settled, 1);
  assert.equal(seen.lacksBefore(6), true);
  seen.insert(3);
  seen.insert(2);
  assert.equal(seen.settled, 4);
  assert.equal(seen.lacksBefore(5), false);
  assert.deepEqual(seen.save().ranges, [[1, 4]]);
});

test('what is settled without being received is still new when it comes', () => {
  const seen = from(50);
  assert.equal(seen.insert(51), true);
  assert.equal(seen.insert(49), true);
  assert.equal(seen.insert(49), false);
  seen.settle(60);
  assert.equal(seen.insert(55), true);
  assert.equal(seen.settled, 60);
});

test('own messages say nothing of what comes before them', () => {
  const seen = new Seen();
  seen.insert(3);
  assert.equal(seen.settled, 0);
  assert.equal(seen.lacksBefore(9), false);
  seen.found(1);
  assert.equal(seen.lacksBefore(3), true);
  seen.insert(2);
  assert.equal(seen.settled, 3);
  seen.found(7);
  assert.equal(seen.settled, 3, 'what is known stays');
});

test('many holes stay small, and survive being saved', () => {
  const seen = from(0);
  for (let seq = 1; seq < 20_000; seq += 2) seen.insert(seq);
  assert.equal(seen.save().ranges.length, 256);
  const again = new Seen(JSON.parse(JSON.stringify(seen.save())));
  assert.equal(again.insert(19_999), false);
  assert.equal(again.insert(19_998), true);
});

test('what is not held yet is left out of what is saved', () => {
  const seen = new Seen();
  seen.found(2);
  for (const seq of [3, 4, 5, 6, 9]) seen.insert(seq);
  assert.deepEqual(seen.save([5]), { settled: 4, ranges: [[3, 4], [6, 6], [9, 9]] });
  assert.deepEqual(seen.save([3, 9]), { settled: 2, ranges: [[4, 6]] });
  assert.deepEqual(seen.save([1]), { settled: 0, ranges: [[3, 6], [9, 9]] });
  assert.deepEqual(seen.save(), { settled: 6, ranges: [[3, 6], [9, 9]] }, 'and it is as it was');
});
