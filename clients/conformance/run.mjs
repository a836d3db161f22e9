#!/usr/bin/env node
// Runs the scripts against a client: `node run.mjs [--strict] [--only NAME]… ADAPTER [ARGUMENT…]`.
// The adapter is a program that reads events as JSON lines on stdin and answers each with a report.

import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { runScript } from './compare.mjs';

const FOLDERS = ['scripts', 'generated'];
const USAGE = 'usage: node run.mjs [--strict] [--only NAME]… ADAPTER [ARGUMENT…]';

/** Every script, by name. @returns {any[]} */
export function loadScripts() {
  const here = fileURLToPath(new URL('.', import.meta.url));
  return FOLDERS.flatMap((folder) => {
    const files = readdirSync(join(here, folder)).filter((file) => file.endsWith('.json')).sort();
    return files.map((file) => JSON.parse(readFileSync(join(here, folder, file), 'utf8')));
  });
}

/** A program that answers every line with one line. */
class Adapter {
  #process;
  #lines;

  /** @param {string} program @param {string[]} args */
  constructor(program, args) {
    this.#process = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#process.on('error', (error) => fail(`the adapter did not start: ${error.message}`));
    this.#process.stdin.on('error', () => {});
    this.#lines = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]();
  }

  /** @param {any} event */
  async apply(event) {
    this.#process.stdin.write(`${JSON.stringify(event)}\n`);
    const { value, done } = await this.#lines.next();
    if (done) fail('the adapter ended before it had answered');
    return JSON.parse(value);
  }

  close() {
    this.#process.stdin.end();
  }
}

/** @param {string} why @returns {never} */
function fail(why) {
  console.error(why);
  process.exit(2);
}

/** @param {string[]} args */
function parse(args) {
  let strict = false;
  const only = new Set();
  while (args[0]?.startsWith('--')) {
    const flag = args.shift();
    if (flag === '--strict') strict = true;
    else if (flag === '--only' && args.length > 0) only.add(args.shift());
    else fail(USAGE);
  }
  const [program, ...rest] = args;
  if (program === undefined) fail(USAGE);
  return { strict, only, program, rest };
}

async function main() {
  const { strict, only, program, rest } = parse(process.argv.slice(2));
  const adapter = new Adapter(program, rest);
  const scripts = loadScripts().filter(({ name }) => only.size === 0 || only.has(name));
  let failed = 0;
  for (const script of scripts) {
    try {
      await runScript(script, (event) => adapter.apply(event), { strict });
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${script.name}: ${script.why}\n  ${error instanceof Error ? error.message : error}`);
    }
  }
  adapter.close();
  console.log(`${scripts.length - failed} of ${scripts.length} scripts passed`);
  process.exitCode = failed > 0 || scripts.length === 0 ? 1 : 0;
}

if (basename(process.argv[1] ?? '') === 'run.mjs') await main();
