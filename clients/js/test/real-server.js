// The real binary, for tests: its own directory, its own port, gone at the end.

import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

export async function startServer(settings = {}) {
  const binary = process.env.BLUETICK_BIN;
  if (!binary) throw new Error('BLUETICK_BIN must name the bluetick binary');
  const directory = await mkdtemp(join(tmpdir(), 'bluetick-js-'));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const environment = { PATH: process.env.PATH, BLUETICK_SERVER__LISTEN: `127.0.0.1:${port}`, BLUETICK_SERVER__DATA_DIR: directory, ...settings };
  const keyFile = join(directory, 'demo.key');
  const start = async () => {
    await rm(keyFile, { force: true });
    const child = spawn(binary, ['serve'], { env: environment, cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (output = (output + data).slice(-4000)));
    for (let tries = 0; ; tries += 1) {
      const ready = await fetch(`${url}/readyz`).then(({ ok }) => ok, () => false);
      if (ready) return child;
      if (tries > 200 || child.exitCode !== null) throw new Error(`the server did not start: ${output}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };
  /** The key of the demo, which every start makes anew. */
  const demoKey = async () => {
    for (let tries = 0; ; tries += 1) {
      const key = await readFile(keyFile, 'utf8').catch(() => '');
      if (key) return key.trim();
      if (tries > 200) throw new Error('the server wrote no demo key');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  let child = await start();
  const stop = async (signal) => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await once(child, 'exit');
  };
  return {
    url,
    demoKey,
    /** As after a crash: whatever was not durable is gone. */
    async restart() {
      await stop('SIGKILL');
      child = await start();
    },
    async close() {
      await stop('SIGKILL');
      await rm(directory, { recursive: true, force: true });
    },
    async token(user) {
      const headers = { 'content-type': 'application/json', 'x-bluetick-demo': await demoKey() };
      const answer = await fetch(`${url}/demo/token`, { method: 'POST', headers, body: JSON.stringify({ user }) });
      return (await answer.json()).token;
    },
  };
}
