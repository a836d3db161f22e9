// Handlers by event name.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Emitter } from '../src/emitter.js';
import { BluetickError } from '../src/index.js';

test('what a handler throws is told as an error of its own, with the thrown as its cause', async () => {
  const emitter = new Emitter();
  const errors = [];
  emitter.on('error', (error) => errors.push(error));
  const thrown = [new TypeError('mine'), new BluetickError('closed'), 'text'];
  for (const cause of thrown) {
    emitter.on('x', () => {
      throw cause;
    });
    emitter.on('x', async () => {
      throw cause;
    });
  }
  emitter.emit('x');
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(errors.map(({ cause }) => cause), [...thrown, ...thrown]);
  for (const error of errors) assert.ok(error instanceof BluetickError && error.code === 'handler_failed', String(error));
  assert.equal(errors[0].message, "a handler of 'x' threw: mine");
});
