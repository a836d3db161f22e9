// The chat page: files, the keyboard, narrow windows, screen readers, long histories, light and dark, its size.

import assert from 'node:assert/strict';
import { gzipSync } from 'node:zlib';
import { after, before, test } from 'node:test';
import { assertAccessible, assertNoOverflow, launchBrowser, openPage, Server, startProxy, until } from './harness.js';
import { composer, endsWith, entry, messages, newChat, png, say, signIn } from './chat-steps.js';

let server;
let browser;
before(async () => { [server, browser] = await Promise.all([Server.start(), launchBrowser()]); });
after(async () => { await browser?.close(); await server?.end(); });

const PICTURE = { name: 'harbour.png', mimeType: 'image/png', buffer: png(640, 400) };
const PAPER = { name: 'contract.pdf', mimeType: 'application/pdf', buffer: Buffer.from('%PDF-1.4 a contract') };

const attach = (page, ...files) => page.locator('.say input[type=file]').setInputFiles(files);

test('files: preview, caption, a picture that is shown, a lightbox, a download, paste and drop', async (t) => {
  const [ann, ben] = [await openPage(t, browser), await openPage(t, browser, null, { size: 'phone' })];
  await server.send('ann', 'ben', 'look');
  await signIn(ann, server.url, 'ann', 'ben');
  await signIn(ben, server.url, 'ben', 'ann');
  await endsWith(ben, 'peer: look');

  await attach(ann, PICTURE);
  await ann.locator('.tray', { hasText: 'harbour.png' }).getByText(/ (K?B)$/).waitFor();
  await say(ann, 'this morning');
  await endsWith(ann, 'you: look [read]', 'you: this morning [read]');
  await endsWith(ben, 'peer: look', 'peer: this morning');
  const img = ben.locator('.msg .picture img');
  await until('the picture is loaded', () => img.evaluate((el) => el.complete && el.naturalWidth === 640));
  const box = await ben.locator('.picture').boundingBox();
  assert.ok(Math.abs(box.width / box.height - 1.6) < 0.02, `its shape is kept: ${box.width} by ${box.height}`);

  await ben.locator('.picture').click();
  await ben.getByRole('dialog', { name: 'Picture harbour.png' }).locator('img').waitFor();
  await ben.keyboard.press('Escape');
  await ben.getByRole('dialog').waitFor({ state: 'detached' });
  assert.ok(await composer(ben).isVisible(), 'Escape closed the picture, not the chat');

  await attach(ann, PAPER);
  await ann.getByRole('button', { name: 'Send', exact: true }).click();
  const card = ben.getByRole('button', { name: 'Download contract.pdf 19 B · PDF' });
  await card.waitFor();
  const [download] = await Promise.all([ben.waitForEvent('download'), card.click()]);
  assert.equal(download.suggestedFilename(), 'contract.pdf');
  await entry(ann, 'ben').getByText('contract.pdf').waitFor();

  await ann.locator('.say textarea').evaluate((box, bytes) => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(bytes)], 'pasted.png', { type: 'image/png' }));
    box.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
  }, [...png(300, 300)]);
  await ann.locator('.tray', { hasText: 'pasted.png' }).waitFor();
  await ann.locator('.talk').evaluate((talk) => {
    const data = new DataTransfer();
    data.items.add(new File(['words'], 'dropped.txt', { type: 'text/plain' }));
    data.items.add(new File([], 'nothing.txt', { type: 'text/plain' }));
    for (const type of ['dragenter', 'dragover', 'drop']) talk.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
  });
  await ann.getByText('“nothing.txt” is empty.').waitFor();
  assert.equal(await ann.locator('.tray li').count(), 2);
  await ann.getByRole('button', { name: 'Remove pasted.png' }).click();
  await say(ann, 'dropped');
  await ben.getByRole('button', { name: 'Download dropped.txt 5 B · TXT' }).waitFor();
  await endsWith(ben, 'peer: dropped');
});

test('an upload shows how far it is, and what waits can be seen to wait', async (t) => {
  const proxy = await startProxy(server.port);
  t.after(() => proxy.close());
  await server.send('ute', 'vic', 'hello');
  const ute = await openPage(t, browser);
  await signIn(ute, proxy.url, 'ute', 'vic');
  await endsWith(ute, 'you: hello [sent]');
  await attach(ute, PICTURE, PAPER);
  proxy.hold('up');
  await ute.getByRole('button', { name: 'Send', exact: true }).click();
  for (const name of ['harbour.png', 'contract.pdf']) await ute.getByRole('progressbar', { name: `Uploading ${name}` }).waitFor();
  await until('one’s own picture is shown before it is sent', () => ute.locator('.picture img').evaluate((el) => el.naturalWidth === 640));
  assert.deepEqual((await messages(ute)).slice(-2), ['you:  [waiting]', 'you:  [waiting]']);
  proxy.release();
  await endsWith(ute, 'you: hello [sent]', 'you:  [sent]', 'you:  [sent]');
  assert.equal(await ute.getByRole('progressbar').count(), 0);
});

test('a large picture travels with a small copy, which is what the bubble shows', async (t) => {
  await server.send('wim', 'xia', 'hello');
  const [wim, xia] = [await openPage(t, browser), await openPage(t, browser)];
  await signIn(wim, server.url, 'wim', 'xia');
  await signIn(xia, server.url, 'xia', 'wim');
  await endsWith(wim, 'you: hello [read]');
  await wim.locator('.talk').evaluate(async (talk) => {
    const canvas = new OffscreenCanvas(1800, 1200);
    const pen = canvas.getContext('2d');
    for (let n = 0; n < 9000; n += 1) {
      pen.fillStyle = `hsl(${n % 360} 60% 50%)`;
      pen.fillRect((n * 37) % 1800, (n * 101) % 1200, 23, 17);
    }
    const data = new DataTransfer();
    data.items.add(new File([await canvas.convertToBlob({ type: 'image/jpeg', quality: 0.95 })], 'photo.jpg', { type: 'image/jpeg' }));
    talk.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  });
  await wim.locator('.say .strong:enabled').click();
  const width = (image) => image.evaluate((el) => el.naturalWidth);
  await until('the small copy is shown', async () => await xia.locator('.picture').count() === 1 && await width(xia.locator('.picture img')) === 720);
  await xia.locator('.picture').click();
  await until('the whole picture is shown large', async () => await width(xia.locator('.lightbox img')) === 1800);
});

test('links are links, and nothing else is', async (t) => {
  const page = await openPage(t, browser);
  await server.send('olga', 'paul', 'see https://example.org/a_(b)?q=1. and (http://example.net), not javascript:alert(1) or ftp://x <b>bold</b>');
  await server.send('olga', 'paul', '🎉🎉');
  await signIn(page, server.url, 'paul', 'olga');
  await endsWith(page, 'peer: 🎉🎉');
  const links = await page.locator('.msg a').evaluateAll((all) => all.map((a) => [a.getAttribute('href'), a.rel, a.target]));
  assert.deepEqual(links, [
    ['https://example.org/a_(b)?q=1', 'noopener noreferrer nofollow', '_blank'],
    ['http://example.net', 'noopener noreferrer nofollow', '_blank'],
  ]);
  assert.equal(await page.locator('.msg b').count(), 0);
  assert.equal(await page.locator('.msg.big').count(), 1);
  assert.match(await page.locator('.msg time').first().getAttribute('title'), /\d{4}/);
});

test('by keyboard only: sign in, new chat, send, go back, arrows, open', async (t) => {
  const page = await openPage(t, browser, server.page());
  const focused = (what) => until(`the focus is on ${what}`, () => page.evaluate((selector) => document.activeElement?.matches(selector), what));
  await focused('.person');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  await focused('#signin-field');
  await page.keyboard.type('not a name');
  await page.keyboard.press('Enter');
  await page.getByText('no spaces').waitFor();
  await page.keyboard.press('ControlOrMeta+a');
  await page.keyboard.type('quinn');
  await page.keyboard.press('Enter');
  await page.locator('.chat:not([data-offline])').waitFor();

  for (const peer of ['rosa', 'sam']) {
    await page.keyboard.press('ControlOrMeta+k');
    await focused('[name=peer]');
    await page.keyboard.type('quinn');
    await page.keyboard.press('Enter');
    await page.getByText('That is you.').waitFor();
    await page.keyboard.press('ControlOrMeta+a');
    await page.keyboard.type(peer);
    await page.keyboard.press('Enter');
    await focused('.say textarea');
    await page.keyboard.type('one');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('two');
    await page.keyboard.press('Enter');
    await endsWith(page, 'you: one\ntwo [sent]');
  }

  await page.keyboard.press('Escape');
  await focused('.entry');
  const name = () => page.evaluate(() => document.activeElement.querySelector('.name')?.textContent);
  assert.equal(await name(), 'sam');
  await page.keyboard.press('ArrowDown');
  assert.equal(await name(), 'rosa');
  await page.keyboard.press('ArrowDown');
  assert.equal(await name(), 'rosa');
  await page.keyboard.press('ArrowUp');
  assert.equal(await name(), 'sam');
  await page.keyboard.press('Enter');
  await focused('.say textarea');
  assert.equal(await page.locator('.talk h2').textContent(), 'sam');

  // A dialog keeps the focus and gives it back.
  await page.keyboard.press('ControlOrMeta+k');
  for (let n = 0; n < 9; n += 1) {
    await page.keyboard.press('Tab');
    assert.ok(await page.evaluate(() => !!document.activeElement.closest('[role=dialog]')));
  }
  await page.keyboard.press('Escape');
  await focused('.say textarea');
});

const LONG = 'Donaudampfschifffahrtsgesellschaftskapitaensmuetzenabzeichen'.repeat(3);

test('nothing sticks out at any width, whatever the words', async (t) => {
  const user = `very.long.user-id_${'x'.repeat(46)}`;
  for (const body of [LONG, `https://example.org/${LONG}`, 'short', `${'words '.repeat(80)}`]) await server.send('tina', user, body);
  await server.as('tina', 'PUT', '/v1/me', { name: `Tina ${LONG.slice(0, 110)}` });
  const { ref } = await upload('tina', { ...PAPER, name: `${LONG.slice(0, 120)}.pdf` });
  await server.as('tina', 'POST', '/v1/messages', { client_msg_id: 'long-file', to: user, body: LONG, attachment: { s3_ref: ref } });
  for (const [width, height] of [[320, 568], [390, 844], [768, 1024], [1280, 800]]) {
    const page = await openPage(t, browser, server.page(), { context: { viewport: { width, height } } });
    await page.getByRole('heading', { name: 'Who are you?' }).waitFor();
    await assertNoOverflow(page);
    await signIn(page, server.url, user);
    await entry(page, 'Tina').waitFor();
    await assertNoOverflow(page);
    await entry(page, 'Tina').click();
    await endsWith(page, `peer: ${LONG}`);
    await attach(page, { ...PICTURE, name: `${LONG}.png` });
    await page.locator('.tray li').waitFor();
    await composer(page).fill(LONG);
    await assertNoOverflow(page);
    await noneSticksOut(page);
    await page.locator('.say .tray').getByRole('button').click();
    if (width < 720) await page.getByRole('button', { name: 'Back to all chats' }).click();
    await page.getByTitle('Your profile').click();
    await assertNoOverflow(page);
    await page.context().close();
  }
});

/** The harness ignores what a scrolling box clips; nothing in the conversation may be clipped. */
async function noneSticksOut(page) {
  const out = await page.locator('.talk').evaluate((talk) => {
    const { left, right } = talk.getBoundingClientRect();
    return [...talk.querySelectorAll('.msg, .msg *:not(.quiet), .tray *, .head *')].filter((el) => {
      const box = el.getBoundingClientRect();
      return box.width > 1 && (box.left < left - 1 || box.right > right + 1) && getComputedStyle(el.parentElement).overflow !== 'hidden';
    }).map((el) => el.className || el.tagName);
  });
  assert.deepEqual(out, []);
}

/** A file announced and uploaded over HTTP. */
async function upload(user, { name, mimeType, buffer }) {
  const sha256 = Buffer.from(await crypto.subtle.digest('SHA-256', buffer)).toString('hex');
  const announced = await server.as(user, 'POST', '/v1/attachments', { name, mime: mimeType, bytes: buffer.length, sha256 });
  const headers = { ...announced.upload.headers };
  delete headers['content-length'];
  const answer = await fetch(announced.upload.url, { method: announced.upload.method, headers, body: buffer });
  assert.ok(answer.ok);
  return { ref: announced.s3_ref };
}

for (const scheme of ['light', 'dark']) {
  test(`accessible in every state, ${scheme}`, async (t) => {
    const me = `uma-${scheme}`;
    const page = await openPage(t, browser, server.page(), { scheme, bypassCSP: true });
    await page.getByRole('heading', { name: 'Who are you?' }).waitFor();
    await assertAccessible(page);
    await signIn(page, server.url, me);
    await page.getByText('No chats yet.').waitFor();
    await assertAccessible(page);
    for (const text of ['hello', 'https://example.org', 'still there?']) await server.send('vera', me, text);
    await server.send('walt', me, 'hi');
    await entry(page, 'vera').getByLabel('3 unread messages').waitFor();
    await assertAccessible(page);
    await entry(page, 'vera').click();
    await page.locator('.divider').waitFor();
    await attach(page, PICTURE, PAPER);
    await page.locator('.tray li').nth(1).waitFor();
    await assertAccessible(page);
    await say(page, 'two files');
    // Uploads do not block each other: the first to finish is sent first.
    const [captioned, plain] = ['you: two files [sent]', 'you:  [sent]'];
    await Promise.any([endsWith(page, captioned, plain), endsWith(page, plain, captioned)]);
    await server.as(me, 'PUT', '/v1/blocks/vera');
    await say(page, 'refused');
    await page.getByText('Not sent.').waitFor();
    await assertAccessible(page);
    await page.locator('.picture').click();
    await page.getByRole('dialog').waitFor();
    await assertAccessible(page);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'New chat' }).click();
    await page.getByLabel('User id').fill('~');
    await page.keyboard.press('Enter');
    await page.getByText('A user id has').waitFor();
    await assertAccessible(page);
    await page.keyboard.press('Escape');
    await page.getByTitle('Your profile').click();
    await page.getByLabel('Name').waitFor();
    await assertAccessible(page);
    await page.keyboard.press('Escape');
    await page.setViewportSize({ width: 390, height: 844 });
    await assertAccessible(page);
    await page.keyboard.press('Escape');
    await assertAccessible(page);
  });
}

test('300 messages: scrolling back keeps the order and the place, and the page stays small', async (t) => {
  for (let n = 1; n <= 300; n += 1) await server.send(n % 3 ? 'xena' : 'yuri', n % 3 ? 'yuri' : 'xena', `number ${n}`);
  const page = await openPage(t, browser);
  await signIn(page, server.url, 'yuri', 'xena');
  // The last send implies that everything is read, so the chat opens at its end.
  await endsWith(page, 'you: number 300 [sent]');
  // Where it opens is settled when it is no longer busy.
  await page.waitForSelector('[role=log]:not([aria-busy]):not(.unplaced)');
  await page.evaluate(() => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); }));
  const numbers = async () => (await messages(page)).map((row) => Number(/number (\d+)/.exec(row)[1]));
  const log = page.getByRole('log');
  const seen = new Set();
  await until('the first message is reached', async () => {
    const now = await numbers();
    now.forEach((n, at) => { seen.add(n); assert.ok(at === 0 || n === now[at - 1] + 1, `${now[at - 1]} is followed by ${n}`); });
    // Up by a little less than a screen: the first visible row must have moved by as much.
    const drift = await log.evaluate(async (el) => {
      const row = [...el.querySelectorAll('.msg')].find((r) => r.getBoundingClientRect().top > el.getBoundingClientRect().top);
      const before = row.getBoundingClientRect().top;
      const top = el.scrollTop;
      el.scrollTop = Math.max(0, top - 500);
      const moved = top - el.scrollTop;
      for (let n = 0; n < 6; n += 1) await new Promise((done) => { requestAnimationFrame(done); });
      return row.isConnected ? Math.abs(row.getBoundingClientRect().top - before - moved) : 0;
    });
    assert.ok(drift < 2, `what one reads has jumped by ${drift}`);
    return now[0] === 1;
  }, 60_000);
  assert.equal(seen.size, 300);
  await page.getByText('This is where your chat with xena begins.').waitFor();
  assert.ok(await page.locator('.msg').count() <= 310);
  await page.getByRole('button', { name: 'To the newest message' }).click();
  await endsWith(page, 'you: number 300 [sent]');
  await until('the end is in sight', () => log.evaluate((el) => el.scrollHeight - el.scrollTop - el.clientHeight < 2));
});

test('the list goes on where it ends', async (t) => {
  for (let n = 0; n < 60; n += 1) await server.send(`friend-${String(n).padStart(2, '0')}`, 'hub', `hello ${n}`);
  const page = await openPage(t, browser, null, { size: 'phone' });
  await signIn(page, server.url, 'hub');
  await entry(page, 'friend-59').waitFor();
  await until('the oldest is listed', async () => {
    await page.locator('.list .scroller').evaluate((el) => { el.scrollTop = el.scrollHeight; });
    return entry(page, 'friend-00').isVisible();
  });
  const names = await page.locator('.entry .name').allTextContents();
  assert.deepEqual(names, Array.from({ length: 60 }, (_, n) => `friend-${String(59 - n).padStart(2, '0')}`));
  assert.equal(await page.title(), '(60) Bluetick');
});

test('light and dark: as the system says, until one chooses; the choice stays', async (t) => {
  const page = await openPage(t, browser, null, { scheme: 'light' });
  await signIn(page, server.url, 'zoe');
  const dark = () => page.evaluate(() => getComputedStyle(document.querySelector('.chat')).backgroundColor !== 'rgb(255, 255, 255)');
  assert.equal(await dark(), false);
  await page.getByRole('button', { name: 'Switch to dark' }).click();
  assert.equal(await dark(), true);
  await page.reload();
  await page.getByRole('button', { name: 'Switch to light' }).waitFor();
  assert.equal(await dark(), true);
  await page.getByRole('button', { name: 'Switch to light' }).click();
  assert.equal(await dark(), false);
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.getByRole('button', { name: 'Switch to light' }).waitFor();
  assert.equal(await dark(), true);
});

test('the first load is small', async (t) => {
  const page = await openPage(t, browser);
  const answers = [];
  page.on('response', (answer) => answers.push(answer));
  await page.goto(server.page());
  await page.getByRole('heading', { name: 'Who are you?' }).waitFor();
  let bytes = 0;
  for (const answer of answers) bytes += gzipSync(await answer.body()).length;
  t.diagnostic(`first load: ${answers.length} requests, ${bytes} bytes (gzip)`);
  assert.ok(answers.every((answer) => answer.url().startsWith(server.url)), 'nothing comes from elsewhere');
  assert.ok(answers.length <= 6, answers.map((answer) => answer.url()).join(' '));
  assert.ok(bytes < 60_000, `${bytes} bytes`);
});
