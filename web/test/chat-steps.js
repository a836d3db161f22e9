// Actions on the chat page, and what it shows.

import { deflateSync, crc32 } from 'node:zlib';
import { until, withDemo } from './harness.js';

/** What a page logs when it loses its connection. */
export const CUT_OFF = [/WebSocket connection to .* failed/, /net::ERR_/];

/** Signs in by the demo's shortcut and waits until the chat is connected. */
export async function signIn(page, url, user, peer = '') {
  await page.goto(`${withDemo(url, `/?user=${user}`)}${peer ? `&${peer}` : ''}`);
  await page.locator('.chat:not([data-offline])').waitFor();
}

/** Opens a chat with a new peer by the dialog. */
export async function newChat(page, peer) {
  await page.getByRole('button', { name: 'New chat' }).click();
  await page.getByLabel('User id').fill(peer);
  await page.getByRole('dialog').getByRole('button', { name: 'Chat', exact: true }).click();
  await composer(page).waitFor();
}

export const composer = (page) => page.locator('.say textarea');
export const entry = (page, peer) => page.locator('.entry', { has: page.locator('.name', { hasText: peer }) });

export async function say(page, text) {
  await composer(page).fill(text);
  await composer(page).press('Enter');
}

/** The rows of the conversation: `you: hello [read]`, `bob: hi`, and the lines between. */
export function shown(page) {
  return page.locator('.rows').evaluate((rows) => [...rows.children].map((row) => {
    if (!row.classList.contains('msg')) return row.classList.contains('dots') ? '…' : `-- ${row.textContent}`;
    const words = row.querySelector('.body')?.textContent ?? '';
    const tick = row.querySelector('.ticks')?.dataset.tick;
    return `${row.classList.contains('own') ? 'you' : 'peer'}: ${words}${tick ? ` [${tick}]` : ''}`;
  }));
}

/** The messages only, without the lines between. */
export const messages = async (page) => (await shown(page)).filter((row) => /^(you|peer): /.test(row));

/** Waits until the conversation ends with these rows. */
export async function endsWith(page, ...rows) {
  let seen = [];
  try {
    await until('the conversation', async () => {
      seen = await messages(page);
      return rows.every((row, at) => seen.at(at - rows.length) === row);
    });
  } catch { throw new Error(`wanted ${JSON.stringify(rows)} at the end of ${JSON.stringify(seen.slice(-rows.length - 3))}`); }
}

/** A picture of one colour, as the bytes of a PNG file. */
export function png(width, height, [red, green, blue] = [30, 110, 230]) {
  const row = Buffer.concat([Buffer.from([0]), Buffer.alloc(width * 3, Buffer.from([red, green, blue]))]);
  const chunk = (name, data) => {
    const body = Buffer.concat([Buffer.from(name), data]);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(data.length);
    const sum = Buffer.alloc(4);
    sum.writeUInt32BE(checksum(body));
    return Buffer.concat([length, body, sum]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const lines = Buffer.concat(Array.from({ length: height }, () => row));
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), chunk('IHDR', head), chunk('IDAT', deflateSync(lines)), chunk('IEND', Buffer.alloc(0))]);
}

/** Node has crc32 in zlib from 20.15 on. */
function checksum(bytes) {
  if (crc32) return crc32(bytes);
  let sum = -1;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (0xedb88320 & -(sum & 1));
  }
  return (sum ^ -1) >>> 0;
}
