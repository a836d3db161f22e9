// Times, sizes and ids as people read them. No browser needed.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fit, kindOf, sizeWords, wrongFile } from '../src/chat/files.js';
import { wrongUserId } from '../src/chat/people.js';
import { isOnlyEmoji } from '../src/chat/text.js';
import { dayName, daysAgo, lastSeen, shortTime } from '../src/lib/time.js';

const at = (text) => new Date(text).getTime();

test('days are counted by midnights, also across a change of the clock', () => {
  const now = at('2026-03-30T00:30:00');
  assert.equal(daysAgo(at('2026-03-30T00:01:00'), now), 0);
  assert.equal(daysAgo(at('2026-03-29T23:59:00'), now), 1);
  assert.equal(daysAgo(at('2026-03-28T12:00:00'), now), 2);
  assert.equal(dayName(at('2026-03-29T23:59:00'), now), 'Yesterday');
  assert.equal(shortTime(at('2026-03-29T23:59:00'), now), 'Yesterday');
  assert.match(dayName(at('2024-05-03T12:00:00'), now), /2024/);
  assert.match(lastSeen(at('2026-03-29T23:59:00'), at('2026-03-30T09:00:00')), /^last seen yesterday at /);
  assert.equal(lastSeen(now - 5000, now), 'last seen just now');
});

test('sizes of files', () => {
  assert.deepEqual([0, 999, 1000, 48_211, 999_600, 2_500_000, 3 * 2 ** 30].map(sizeWords), ['0 B', '999 B', '1.0 KB', '48 KB', '1.0 MB', '2.5 MB', '3.2 GB']);
  assert.match(wrongFile({ name: 'a.txt', size: 0 }), /empty/);
  assert.match(wrongFile({ name: 'a.iso', size: 2 ** 40 }), /too large/);
  assert.equal(wrongFile({ name: 'a.txt', size: 1 }), null);
});

test('only types that are safe to show are shown', () => {
  assert.deepEqual(['image/png', 'IMAGE/JPEG', 'image/svg+xml', 'text/html', 'video/mp4', 'audio/ogg; codecs=opus', undefined].map((m) => kindOf(m)),
    ['image', 'image', 'file', 'file', 'video', 'audio', 'file']);
});

test('a picture keeps its shape, within a box', () => {
  assert.deepEqual(fit({ width: 3000, height: 2000 }), { width: 300, height: 200 });
  assert.deepEqual(fit({ width: 200, height: 100 }), { width: 200, height: 110 });
  assert.deepEqual(fit(undefined), fit({ width: 0, height: 5 }));
});

test('emoji alone are large, words and digits are not', () => {
  for (const text of ['🎉', '👍🏽 👍', '🇨🇭', '👩‍👩‍👧‍👦', '❤️']) assert.ok(isOnlyEmoji(text), text);
  for (const text of ['', ' ', '1', '#', 'ok 🎉', '🎉'.repeat(6), undefined]) assert.ok(!isOnlyEmoji(text), String(text));
});

test('user ids', () => {
  for (const id of ['a', 'Alice.B-2_c@example', 'auth0|5f7c', 'ann+test@x.org', 'urn:x=1', 'x'.repeat(128)]) assert.equal(wrongUserId(id), null);
  for (const id of ['', 'a b', 'ä', 'a~b', 'a/b', 'x'.repeat(129)]) assert.ok(wrongUserId(id), id);
});
