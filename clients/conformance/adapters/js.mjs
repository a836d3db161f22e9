// The adapter of the JavaScript client: one event per line on stdin, one report per line on stdout.
//
//   node clients/conformance/run.mjs node clients/conformance/adapters/js.mjs

import { createInterface } from 'node:readline';
import { Device } from './js-device.mjs';

/** @type {Device | undefined} */
let device;

for await (const line of createInterface({ input: process.stdin })) {
  const event = JSON.parse(line);
  let report;
  try {
    if (event.event === 'start') {
      await device?.close();
      device = new Device(event);
    }
    report = await /** @type {Device} */ (device).apply(event);
  } catch (error) {
    report = { error: String(error instanceof Error ? error.stack : error) };
  }
  process.stdout.write(`${JSON.stringify(report)}\n`);
}
await device?.close();
