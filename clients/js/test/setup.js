// What the tests with a fake server have in common.

import { WebSocket } from 'ws';
import { Client, memoryStorage } from '../src/index.js';
import { FakeServer } from './fake-server.js';

/** A fake server and a way to make clients of it; all of it ends with the test. */
export async function scene(test) {
  const server = await FakeServer.start();
  const clients = [];
  test.after(async () => {
    await Promise.all(clients.map((client) => client.close()));
    await server.close();
  });
  const client = (options = {}) => {
    const made = new Client({ url: server.url, user: 'bob', token: 'token', WebSocket, storage: memoryStorage(), random: () => 0, ...options });
    clients.push(made);
    return made;
  };
  return { server, client };
}

/** Waits for an event; gives its first argument. */
export function event(client, name, holds = () => true) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`waited in vain for '${name}'`)), 15_000);
    const off = client.on(name, (...args) => {
      if (!holds(...args)) return;
      clearTimeout(timer);
      off();
      resolve(args[0]);
    });
  });
}

export async function until(holds, what = String(holds)) {
  const end = Date.now() + 15_000;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Nothing more is coming: for tests of what must not happen. Long enough for what would come at once. */
export function quiet() {
  return new Promise((resolve) => setTimeout(resolve, 40));
}

/** Online, caught up, the first page of the inbox there. */
export async function online(client, server) {
  const inbox = event(client, 'frame', ({ direction, frame }) => direction === 'in' && frame.type === 'inbox');
  const caughtUp = event(client, 'caughtUp');
  client.connect();
  await Promise.all([caughtUp, inbox]);
  return server.session;
}
