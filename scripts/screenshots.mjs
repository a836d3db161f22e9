// Draws docs/images/chat.png and tour.png from the real pages of a real server. Called by scripts/screenshots.

import { join } from 'node:path';
import { Server, launchBrowser, openPage } from '../web/test/harness.js';
import { endsWith, entry, say, signIn } from '../web/test/chat-steps.js';
import { openTour, pauseAt } from '../web/test/tour.js';

const folder = process.argv[2] ?? 'docs/images';
const ends = [];
/** Stands in for a test: what the pages want done at the end. */
const run = { after: (end) => ends.push(end) };
const SIZE = { viewport: { width: 960, height: 600 } };

const [server, browser] = await Promise.all([Server.start(), launchBrowser()]);
try {
  await chat();
  await tour();
} finally {
  for (const end of ends.reverse()) await end();
  await browser.close();
  await server.end();
}

async function chat() {
  await server.send('carol', 'alice', 'See you at the station at six');
  await server.send('dan', 'alice', 'Is the bike still available?');
  const bob = await openPage(run, browser, null, { context: SIZE });
  const alice = await openPage(run, browser, null, { context: SIZE });
  await signIn(alice, server.url, 'alice', 'bob');
  await signIn(bob, server.url, 'bob', 'alice');
  await say(alice, 'Hi Bob, I am interested in the lamp.');
  await endsWith(bob, 'peer: Hi Bob, I am interested in the lamp.');
  await say(bob, 'It is yours if you can pick it up this week.');
  await endsWith(alice, 'peer: It is yours if you can pick it up this week.');
  await say(alice, 'Thursday evening?');
  await endsWith(alice, 'you: Thursday evening? [read]');
  await bob.close();
  await say(alice, 'I can also come on Friday.');
  await endsWith(alice, 'you: I can also come on Friday. [sent]');
  await entry(alice, 'dan').waitFor();
  await alice.screenshot({ path: join(folder, 'chat.png') });
}

async function tour() {
  const { page } = await openTour(run, browser, server, { context: { viewport: { width: 1280, height: 800 } } });
  await page.click('[data-story="offline"]');
  for (const step of [0, 1, 2, 3]) {
    await pauseAt(page, step);
    await page.click('.walk .next');
  }
  await pauseAt(page, 4);
  await page.screenshot({ path: join(folder, 'tour.png') });
}
