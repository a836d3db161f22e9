// Automatic checks of layout and accessibility.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';

const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

/** axe has no serious finding. The page must have been opened with `bypassCSP`. */
export async function assertAccessible(page) {
  await page.evaluate(await readFile(axe, 'utf8'));
  const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  const serious = result.violations.filter((found) => ['serious', 'critical'].includes(found.impact));
  const told = serious.map((found) => {
    const where = found.nodes.slice(0, 5).map((node) => `${node.target.join(' ')}: ${node.failureSummary.replace(/\s+/g, ' ')}`);
    return `${found.id} (${found.impact}): ${found.help}\n    ${where.join('\n    ')}`;
  });
  assert.equal(told.join('\n'), '', 'accessibility');
  return result.violations;
}

/** The page does not scroll sideways, and no visible element exceeds the window. */
export async function assertNoOverflow(page) {
  const found = await page.evaluate(findOverflow);
  assert.deepEqual(found, [], 'something sticks out');
}

/** Runs in the page. */
function findOverflow() {
  const wide = document.documentElement.clientWidth;
  const found = [];
  if (document.documentElement.scrollWidth > wide) found.push(`the page is ${document.documentElement.scrollWidth} wide in ${wide}`);
  const clips = (element) => {
    for (let up = element.parentElement; up; up = up.parentElement) {
      if (up === document.body || up === document.documentElement) return false;
      if (getComputedStyle(up).overflowX !== 'visible') return true;
    }
    return false;
  };
  for (const element of document.body.querySelectorAll('*')) {
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || (box.right <= wide + 1 && box.left >= -1)) continue;
    const style = getComputedStyle(element);
    if (style.visibility === 'hidden' || style.opacity === '0' || clips(element)) continue;
    found.push(`${element.tagName.toLowerCase()}.${element.getAttribute('class') ?? ''}: ${Math.round(box.left)}–${Math.round(box.right)} of ${wide}`);
  }
  return found.slice(0, 10);
}
