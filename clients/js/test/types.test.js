// What is committed for TypeScript and for readers is made from the sources as they are.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { committed, declarations } from '../scripts/types.js';

const run = promisify(execFile);
const root = join(dirname(fileURLToPath(import.meta.url)), '..');

test('the declarations are current, and say nothing of the inside', async () => {
  const made = declarations();
  assert.deepEqual(Object.fromEntries(await committed()), Object.fromEntries(made), 'run `npm run types -w clients/js`');
  const text = [...made.values()].join('\n');
  assert.equal(/@internal|core\.js/.test(text), false);
});

test('a strict consumer compiles, and mistakes do not', async () => {
  await run(process.execPath, [fileURLToPath(import.meta.resolve('typescript/bin/tsc')), '-p', join(root, 'test/consumer')]);
});

test('the API reference is current', async (t) => {
  const out = await mkdtemp(join(tmpdir(), 'bluetick-docs-'));
  t.after(() => rm(out, { recursive: true }));
  await run(process.execPath, [join(dirname(fileURLToPath(import.meta.resolve('typedoc'))), '../bin/typedoc'), '--out', out, '--logLevel', 'Error'], { cwd: root });
  const read = async (directory) => {
    const files = (await readdir(directory, { recursive: true })).filter((file) => file.endsWith('.md')).sort();
    return Object.fromEntries(await Promise.all(files.map(async (file) => [file, await readFile(join(directory, file), 'utf8')])));
  };
  assert.deepEqual(await read(join(root, 'docs/api')), await read(out), 'run `npm run docs -w clients/js`');
});
