// Every storage keeps the same promises; the browser's also those about tabs.

import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { appendFile, mkdtemp, open, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { indexedDbStorage, memoryStorage } from '../src/index.js';
import { fileStorage } from '../src/node.js';
import { defaultStorage } from '../src/storage/default.js';

const row = (id, n, more = {}) => ({ id, n, ts: n, send: { client_msg_id: id, to: 'alice', body: id, seen_seq: 0 }, ...more });
const bodies = (saved) => saved.outbox.sort((a, b) => a.n - b.n).map(({ send }) => send.body);

/** The part of the browser's lock manager that is used, for pages of one test. */
class Locks {
  #held = new Map();

  request(name, { ifAvailable, signal }, callback) {
    const grant = async () => {
      const done = Promise.resolve(callback({ name }));
      this.#held.set(name, done);
      try {
        return await done;
      } finally {
        this.#held.delete(name);
      }
    };
    if (!this.#held.has(name)) return grant();
    if (ifAvailable) return Promise.resolve(callback(null));
    return new Promise((resolve, reject) => {
      signal?.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError')));
      this.#held.get(name).then(() => !signal?.aborted && resolve(grant()));
    });
  }
}

let databases = 0;
const kinds = {
  memory: async () => memoryStorage(),
  indexeddb: async () => indexedDbStorage({ name: `test-${++databases}`, locks: new Locks() }),
  file: async (t) => {
    const directory = await mkdtemp(join(tmpdir(), 'bluetick-js-'));
    t.after(() => rm(directory, { recursive: true }));
    return fileStorage(join(directory, 'below', 'outbox.log'));
  },
};

for (const [kind, make] of Object.entries(kinds)) {
  test(`${kind}: the device, the outbox and what is kept are there again`, async (t) => {
    const storage = await make(t);
    const first = await storage.open('bob');
    assert.deepEqual([first.outbox, first.kept], [[], {}]);
    await Promise.all([first.put(row('a', 1)), first.put(row('b', 2)), first.put(row('c', 3))]);
    await first.put(row('b', 2, { failed: { code: 'blocked', message: 'no' } }));
    await first.remove('a');
    await first.keep({ device: { cursor: '1' }, 'alice~bob': { read: 1 } });
    await first.keep({ device: { cursor: '2' }, 'alice~bob': null, 'bob~carol': { read: 3 } });
    await first.close();
    const second = await storage.open('bob');
    assert.equal(second.device, first.device);
    assert.match(second.device, /^[A-Za-z0-9._@-]{1,64}$/);
    assert.deepEqual(bodies(second), ['b', 'c']);
    assert.equal(second.outbox.find(({ id }) => id === 'b').failed.code, 'blocked');
    assert.deepEqual(second.kept, { device: { cursor: '2' }, 'bob~carol': { read: 3 } });
    await second.close();
    const named = await storage.open('bob', 'my-device');
    assert.equal(named.device, 'my-device');
    await named.close();
  });
}

for (const kind of ['memory', 'indexeddb']) {
  test(`${kind}: two users have nothing in common`, async (t) => {
    const storage = await kinds[kind](t);
    const bob = await storage.open('bob');
    await bob.put(row('a', 1));
    const carol = await storage.open('carol');
    assert.deepEqual(carol.outbox, []);
    assert.notEqual(carol.device, bob.device);
  });
}

test('indexeddb: tabs never share a device; a closed tab\'s place and outbox are taken over', async () => {
  const options = { name: `test-${++databases}`, locks: new Locks() };
  const tab = () => indexedDbStorage(options).open('bob');
  const first = await tab();
  const second = await tab();
  const third = await tab();
  assert.equal(new Set([first.device, second.device, third.device]).size, 3);
  await second.put(row('left', 5));
  await third.put(row('also', 6));
  await first.put(row('mine', 1));
  await second.close();
  const fourth = await tab();
  assert.equal(fourth.device, second.device, 'its slot is free');
  assert.deepEqual(bodies(fourth), ['left'], 'what an open tab has is its own');
  await Promise.all([first.close(), third.close(), fourth.close()]);
  const fifth = await tab();
  assert.equal(fifth.device, first.device);
  assert.deepEqual(bodies(fifth), ['mine', 'left', 'also'], 'all that nobody has any more, in the order of writing');
  await fifth.close();
  const sixth = await tab();
  assert.deepEqual(bodies(sixth), ['mine', 'left', 'also'], 'moved, not copied');
});

test('indexeddb: without locks each page is a device of its own, and takes over what was left', async () => {
  const options = { name: `test-${++databases}`, locks: null };
  const first = await indexedDbStorage(options).open('bob');
  await first.put(row('left', 1));
  await first.close();
  const second = await indexedDbStorage(options).open('bob');
  assert.notEqual(second.device, first.device);
  assert.deepEqual(bodies(second), ['left']);
});

test('indexeddb: a fixed device is nobody else\'s to take over', async () => {
  const options = { name: `test-${++databases}`, locks: new Locks() };
  const fixed = await indexedDbStorage(options).open('bob', 'kiosk');
  await fixed.put(row('mine', 1));
  assert.deepEqual((await indexedDbStorage(options).open('bob')).outbox, []);
  await fixed.close();
  assert.deepEqual(bodies(await indexedDbStorage(options).open('bob', 'kiosk')), ['mine']);
});

test('indexeddb: a write that fails is told', async () => {
  const saved = await indexedDbStorage({ name: `test-${++databases}`, locks: null }).open('bob');
  await assert.rejects(saved.put(row('a', 1, { file: () => {} })), 'a function cannot be stored');
});

/** IndexedDB whose connections a test can take away. */
function watched() {
  const connections = [];
  const open = (...args) => {
    const request = indexedDB.open(...args);
    request.addEventListener('success', () => connections.push(request.result));
    return request;
  };
  return { connections, options: { name: `test-${++databases}`, locks: null, indexedDB: { open } } };
}

test('indexeddb: a connection that the browser took away is opened again', async () => {
  const { connections, options } = watched();
  const saved = await indexedDbStorage(options).open('bob', 'd');
  connections[0].close();
  await Promise.all([saved.put(row('a', 1)), saved.put(row('b', 2)), saved.keep({ device: { cursor: '1' } })]);
  assert.equal(connections.length, 2, 'once for all');
  connections[1].onclose();
  await saved.remove('a');
  assert.equal(connections.length, 3);
  await saved.close();
  await assert.rejects(saved.put(row('c', 3)), { code: 'storage_failed' });
  assert.equal(connections.length, 3, 'closed is closed');
  const again = await indexedDbStorage(options).open('bob', 'd');
  assert.deepEqual([bodies(again), again.kept], [['b'], { device: { cursor: '1' } }]);
});

test('indexeddb: nobody who wants to delete or upgrade the database waits for it', async () => {
  const { options } = watched();
  const saved = await indexedDbStorage(options).open('bob', 'd');
  const ended = (request) => new Promise((resolve, reject) => Object.assign(request, { onsuccess: () => resolve(request.result), onerror: reject, onblocked: reject }));
  await ended(indexedDB.deleteDatabase(options.name));
  await saved.put(row('a', 1));
  const next = await ended(indexedDB.open(options.name, 2));
  await assert.rejects(saved.put(row('b', 2)), { code: 'storage_failed', message: /VersionError/ });
  next.close();
});

test('indexeddb: a full disk is told by its name, and of several changes none is made', async () => {
  const { connections, options } = watched();
  const saved = await indexedDbStorage(options).open('bob', 'd');
  await assert.rejects(saved.keep({ one: 1, two: () => {} }), { code: 'storage_failed', message: /DataCloneError/ });
  const [connection] = connections;
  const { transaction } = connection;
  connection.transaction = (...args) => {
    const made = transaction.apply(connection, args);
    Object.defineProperty(made, 'error', { value: new DOMException('', 'QuotaExceededError') });
    queueMicrotask(() => made.abort());
    return made;
  };
  await assert.rejects(saved.put(row('a', 1)), { code: 'storage_failed', message: /no more room.*QuotaExceededError/ });
  connection.transaction = transaction;
  await saved.close();
  const again = await indexedDbStorage(options).open('bob', 'd');
  assert.deepEqual([again.outbox, again.kept], [[], {}]);
});

test('a browser that refuses its database, or never opens it, is done without', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const told = [];
  const report = (error) => told.push(error);
  const refusing = defaultStorage(report, { open: async () => Promise.reject(new Error('private mode')) });
  await (await refusing.open('bob')).put(row('a', 1));
  let opens;
  let closed = 0;
  const opening = defaultStorage(report, { open: () => new Promise((resolve) => (opens = resolve)) }).open('bob', 'd');
  t.mock.timers.tick(5_000);
  assert.equal((await opening).device, 'd');
  opens({ close: async () => (closed += 1) });
  await new Promise(setImmediate);
  assert.equal(closed, 1, 'one that comes too late is not kept from others');
  assert.deepEqual(told.map(({ code }) => code), ['storage_failed', 'storage_failed']);
  assert.match(told[0].message, /private mode/);
});

test('file: what was being written when the process ended is as if it had never been', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'bluetick-js-'));
  t.after(() => rm(directory, { recursive: true }));
  const path = join(directory, 'outbox.log');
  const first = await fileStorage(path).open('bob');
  await first.put(row('a', 1));
  await first.close();
  await appendFile(path, '{"put":{"id":"half');
  const second = await fileStorage(path).open('bob');
  assert.deepEqual(bodies(second), ['a']);
  await second.put(row('b', 2));
  await second.close();
  assert.deepEqual(bodies(await fileStorage(path).open('bob')), ['a', 'b']);
  assert.equal((await stat(path)).mode & 0o077, 0, 'nobody else may read it');
});

test('file: it does not grow for ever, and is of one user', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'bluetick-js-'));
  t.after(() => rm(directory, { recursive: true }));
  const path = join(directory, 'outbox.log');
  const saved = await fileStorage(path).open('bob');
  for (let n = 0; n < 20; n += 1) {
    await Promise.all(Array.from({ length: 100 }, (_, m) => saved.put(row(`${n}-${m}`, n))));
    await Promise.all(Array.from({ length: 100 }, (_, m) => saved.remove(`${n}-${m}`)));
  }
  await saved.put(row('last', 1));
  await saved.close();
  assert.ok((await readFile(path, 'utf8')).split('\n').length < 1300);
  assert.deepEqual(bodies(await fileStorage(path).open('bob')), ['last']);
  await assert.rejects(fileStorage(path).open('carol'), /belongs to bob/);
});

test('file: a message whose file is lost says so', async (t) => {
  const storage = await kinds.file(t);
  const first = await storage.open('bob');
  await first.put(row('a', 1, { file: new Blob(['x']) }));
  await first.close();
  const [{ failed, file }] = (await storage.open('bob')).outbox;
  assert.deepEqual([failed.code, file], ['aborted', undefined]);
});

/** What all files opened by node:fs/promises have in common. */
async function fileHandles() {
  const handle = await open('/dev/null');
  await handle.close();
  return Object.getPrototypeOf(handle);
}

async function logFile(t) {
  const directory = await mkdtemp(join(tmpdir(), 'bluetick-js-'));
  t.after(() => rm(directory, { recursive: true }));
  return join(directory, 'outbox.log');
}

test('file: a write that fails half way costs itself, and nothing after it', async (t) => {
  const path = await logFile(t);
  const handles = await fileHandles();
  const first = await fileStorage(path).open('bob');
  await first.put(row('a', 1));
  const full = t.mock.method(handles, 'appendFile', async function (bytes) {
    await this.write(Buffer.from(bytes).subarray(0, 20));
    throw Object.assign(new Error('no space left'), { code: 'ENOSPC' });
  });
  await assert.rejects(first.put(row('b', 2)), { code: 'ENOSPC' });
  await assert.rejects(first.remove('a'), { code: 'ENOSPC' });
  full.mock.restore();
  await first.put(row('c', 3));
  await first.keep({ device: { cursor: '1' } });
  await first.close();
  const second = await fileStorage(path).open('bob');
  assert.deepEqual(bodies(second), ['a', 'c']);
  assert.deepEqual(second.kept, { device: { cursor: '1' } });
  await second.close();
});

test('file: what cannot be cut off is written anew, and a failure to tidy up is none of the write', async (t) => {
  const path = await logFile(t);
  const handles = await fileHandles();
  const saved = await fileStorage(path).open('bob');
  const broken = [t.mock.method(handles, 'datasync', async () => Promise.reject(new Error('EIO'))), t.mock.method(handles, 'truncate', async () => Promise.reject(new Error('EIO')))];
  await assert.rejects(saved.put(row('a', 1)), /EIO/);
  broken[0].mock.restore();
  await saved.put(row('b', 2));
  broken[1].mock.restore();
  // No room for a second file.
  const tidy = t.mock.method(handles, 'writeFile', async () => Promise.reject(new Error('ENOSPC')));
  await Promise.all(Array.from({ length: 1100 }, (_, n) => saved.keep({ device: { cursor: String(n) } })));
  assert.ok(tidy.mock.callCount() > 0);
  tidy.mock.restore();
  await saved.close();
  const again = await fileStorage(path).open('bob');
  assert.deepEqual([bodies(again), again.kept], [['b'], { device: { cursor: '1099' } }]);
  await again.close();
});

test('file: a damaged last line is cut off, one in the middle is told', async (t) => {
  const path = await logFile(t);
  const first = await fileStorage(path).open('bob');
  await first.put(row('a', 1));
  await first.close();
  await appendFile(path, `${'\0'.repeat(30)}\n`);
  const second = await fileStorage(path).open('bob');
  assert.deepEqual(bodies(second), ['a']);
  await second.put(row('b', 2));
  await second.close();
  const lines = (await readFile(path, 'utf8')).split('\n');
  lines[1] = lines[1].slice(0, 12);
  const damaged = lines.join('\n');
  await writeFile(path, damaged);
  await assert.rejects(fileStorage(path).open('bob'), (error) => error.message.includes(path) && /line 2/.test(error.message));
  assert.equal(await readFile(path, 'utf8'), damaged, 'nothing of it is thrown away');
});
