// Runs the browser tests: two files at a time, since each starts a server and a browser. Arguments narrow the files
// down by name (`npm test -w web -- admin`); those with a dash go to Node.

import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const dir = dirname(fileURLToPath(import.meta.url));
const args = process.argv.slice(2);
const words = args.filter((arg) => !arg.startsWith('-'));
const files = readdirSync(dir)
  .filter((name) => name.endsWith('.test.js'))
  .filter((name) => words.length === 0 || words.some((word) => name.includes(word)))
  .sort()
  .map((name) => join(dir, name));
if (files.length === 0) {
  console.error('no such tests');
  process.exit(1);
}
const options = ['--test', '--test-concurrency=2', ...args.filter((arg) => arg.startsWith('-'))];
const run = spawn(process.execPath, [...options, ...files], { stdio: 'inherit' });
run.on('exit', (code) => process.exit(code ?? 1));
