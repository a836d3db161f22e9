// The scripts of clients/conformance, which every client has to pass.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Device } from '../../conformance/adapters/js-device.mjs';
import { Difference, runScript } from '../../conformance/compare.mjs';
import { loadScripts } from '../../conformance/run.mjs';

const KIT = fileURLToPath(new URL('../../conformance', import.meta.url));
const scripts = loadScripts();

/** Runs a script against the client in this process. */
async function run(script, options = { strict: true }) {
  /** @type {Device | undefined} */
  let device;
  const apply = async (event) => {
    if (event.event === 'start') device = new Device(event);
    return device.apply(event);
  };
  try {
    await runScript(script, apply, options);
  } finally {
    await device?.close();
  }
}

for (const script of scripts) test(`conformance: ${script.name}`, () => run(script));

test('a changed expectation is noticed', async () => {
  const script = scripts.find(({ name }) => name === 'gap-is-asked-for');
  const changes = [
    (steps) => (steps[2].out[0].after_seq = 9),
    (steps) => (steps[3].out[0].seq = 11),
    (steps) => (steps[3].told[0].seq = 12),
    (steps) => (steps[3].state.cursor = '1100'),
  ];
  for (const change of changes) {
    const changed = structuredClone(script);
    change(changed.steps);
    await assert.rejects(run(changed), Difference);
  }
});

test('a client that does not ask for ticks is told them, and fails only the strict run', async () => {
  const script = scripts.find(({ name }) => name === 'ticks-missed-while-away');
  const withoutStatus = () => {
    let device;
    return async (event) => {
      if (event.event === 'start') device = new Device(event);
      const report = await device.apply(event);
      return { ...report, frames: report.frames.filter(({ type }) => type !== 'status') };
    };
  };
  await runScript(script, withoutStatus());
  await assert.rejects(runScript(script, withoutStatus(), { strict: true }), /status/);
});

test('the runner drives the adapter as a program', async () => {
  const adapter = [process.execPath, `${KIT}/adapters/js.mjs`];
  const { stdout } = await promisify(execFile)(process.execPath, [`${KIT}/run.mjs`, '--strict', ...adapter]);
  assert.equal(stdout, `${scripts.length} of ${scripts.length} scripts passed\n`);
});

test('the runner reports a client that does nothing', async () => {
  const silent = `require('readline').createInterface({ input: process.stdin }).on('line', () => console.log('{}'))`;
  const args = [`${KIT}/run.mjs`, '--only', 'hello-of-a-new-device', process.execPath, '-e', silent];
  const failed = await promisify(execFile)(process.execPath, args).catch((error) => error);
  assert.equal(failed.code, 1);
  assert.match(failed.stdout, /FAILED hello-of-a-new-device.*\n.*step 1 \(connected\): 1 frames "hello" must go out, not 0/);
});
