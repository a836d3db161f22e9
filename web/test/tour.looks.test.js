// The layout of the tour at the beginning, in the middle and at the end of the offline story: nothing exceeds the window,
// a desktop needs no scrolling, and the page is accessible. Keeps screenshots (see harness.js).

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Server, assertAccessible, assertNoOverflow, launchBrowser, screenshot } from './harness.js';
import { openTour, pauseAt } from './tour.js';

const DESKS = [
  { name: 'desk', width: 1280, height: 800, fits: true },
  { name: 'large', width: 1440, height: 900, fits: true },
  { name: 'low', width: 1366, height: 650, fits: true, low: true },
  { name: 'tablet', width: 900, height: 1100 },
  { name: 'narrow', width: 390, height: 844 },
];
const PHONES = [{ name: 'phone', width: 390, height: 844 }, { name: 'small', width: 360, height: 640 }];

describe('the looks of the tour', { timeout: 240_000, concurrency: 2 }, () => {
  let server;
  let browser;
  before(async () => { [server, browser] = await Promise.all([Server.start(), launchBrowser()]); });
  after(async () => { await browser?.close(); await server?.end(); });

  for (const [size, scheme, windows] of [['desk', 'light', DESKS], ['desk', 'dark', DESKS], ['phone', 'light', PHONES], ['phone', 'dark', PHONES]]) {
    test(`${size}, ${scheme}`, async (t) => {
      const { page } = await openTour(t, browser, server, { size, scheme, bypassCSP: true });
      const look = async (when) => {
        for (const one of windows) {
          await page.setViewportSize(one);
          await lookAt(page, one, `tour/${one.name}-${scheme}-${when}`);
        }
        await page.setViewportSize(windows[0]);
        await assertAccessible(page);
      };
      await look('0-begin');
      await page.click('[data-story="offline"]');
      const next = async (n) => { await pauseAt(page, n); await page.click('.walk .next'); };
      for (const n of [0, 1, 2, 3]) await next(n);
      await pauseAt(page, 4);
      await look('1-pending');
      await page.click('.walk .next');
      await page.waitForSelector('.node[data-step="acked"]:is([data-state="now"], [data-state="done"])');
      await lookAt(page, windows[0], `tour/${windows[0].name}-${scheme}-2-back`);
      await next(5);
      await next(6);
      await pauseAt(page, 7);
      await look('3-end');
      await page.click('.walk .next');
      await page.click('.switch.carol');
      await page.waitForSelector('.phone[data-name="carol"][data-state="online"]');
      await look('4-carol');
    });
  }
});

async function lookAt(page, { fits, low }, name) {
  await assertNoOverflow(page);
  if (fits) await assertFits(page, low ? '.tables' : '.legend');
  await screenshot(page, name);
  if (!fits) await screenshot(page, `${name}-whole`, { fullPage: true });
}

/** Everything is in the window: the page does not scroll, and its last part is visible. */
async function assertFits(page, last) {
  const found = await page.evaluate((selector) => {
    const box = document.querySelector(selector).getBoundingClientRect();
    return { scrolls: document.documentElement.scrollHeight - innerHeight, below: Math.round(box.bottom) - innerHeight, empty: box.height < 10 };
  }, last);
  assert.ok(found.scrolls <= 0 && found.below <= 0 && !found.empty, JSON.stringify(found));
}
