// How the tour looks, in the middle of the offline story and at its end: nothing sticks out, the main picture needs no
// scrolling on a desk, and everybody can use it. Keeps the pictures for people (see harness.js).

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Server, assertAccessible, assertNoOverflow, launchBrowser, screenshot } from './harness.js';
import { openTour, pauseAt } from './tour.js';

const SIZES = [
  { name: 'desk', size: 'desk', scheme: 'light', fits: true },
  { name: 'desk', size: 'desk', scheme: 'dark', fits: true },
  { name: 'large', size: 'desk', scheme: 'light', fits: true, context: { viewport: { width: 1440, height: 900 } } },
  { name: 'large', size: 'desk', scheme: 'dark', fits: true, context: { viewport: { width: 1440, height: 900 } } },
  { name: 'tablet', size: 'desk', scheme: 'light', context: { viewport: { width: 900, height: 1100 } } },
  { name: 'phone', size: 'phone', scheme: 'light' },
  { name: 'phone', size: 'phone', scheme: 'dark' },
];

describe('the looks of the tour', { timeout: 300_000 }, () => {
  let server;
  let browser;
  before(async () => { [server, browser] = await Promise.all([Server.start(), launchBrowser()]); });
  after(async () => { await browser?.close(); await server?.end(); });

  for (const { name, size, scheme, fits, context } of SIZES) {
    test(`${name}, ${scheme}`, async (t) => {
      const { page } = await openTour(t, browser, server, { size, scheme, context, bypassCSP: true });
      const look = async (when) => {
        await assertNoOverflow(page);
        if (fits) await assertFits(page);
        await screenshot(page, `tour/${name}-${scheme}-${when}`);
        if (!fits) await screenshot(page, `tour/${name}-${scheme}-${when}-whole`, { fullPage: true });
      };
      await look('0-begin');
      await assertAccessible(page);
      await page.click('[data-story="offline"]');
      const next = async (n) => { await pauseAt(page, n); await page.click('.walk .next'); };
      for (const n of [0, 1, 2, 3]) await next(n);
      await pauseAt(page, 4);
      await look('1-pending');
      await assertAccessible(page);
      await page.click('.walk .next');
      await page.waitForSelector('.node[data-step="acked"]:is([data-state="now"], [data-state="done"])');
      await look('2-back');
      await next(5);
      await next(6);
      await pauseAt(page, 7);
      await look('3-end');
      await page.click('.walk .next');
      await page.click('.switch.carol');
      await page.waitForSelector('.phone[data-name="carol"][data-state="online"]');
      await look('4-carol');
      await assertAccessible(page);
    });
  }
});

/** Everything is in the window: the page does not scroll, and the last line of it is to be seen. */
async function assertFits(page) {
  const found = await page.evaluate(() => {
    const legend = document.querySelector('.legend').getBoundingClientRect();
    return { scrolls: document.documentElement.scrollHeight - innerHeight, below: Math.round(legend.bottom) - innerHeight, empty: legend.height < 10 };
  });
  assert.ok(found.scrolls <= 0 && found.below <= 0 && !found.empty, JSON.stringify(found));
}
