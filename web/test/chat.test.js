// The chat page with two users: ticks, presence, a network that breaks, a reload in the middle.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertAccessible, assertNoOverflow, launchBrowser, openPage, screenshot, Server, startProxy, until } from './harness.js';
import { composer, CUT_OFF, endsWith, entry, messages, newChat, say, shown, signIn } from './chat-steps.js';

let server;
let browser;
before(async () => { [server, browser] = await Promise.all([Server.start(), launchBrowser()]); });
after(async () => { await browser?.close(); await server?.end(); });

test('two browsers chat: list, badge, title, ticks, typing, presence', async (t) => {
  const ann = await openPage(t, browser);
  const ben = await openPage(t, browser, null, { size: 'phone' });
  await signIn(ann, server.url, 'ann');
  await signIn(ben, server.url, 'ben');
  await newChat(ann, 'ben');
  await say(ann, 'are you there?');
  await endsWith(ann, 'you: are you there? [delivered]');

  await entry(ben, 'ann').getByLabel('1 unread message').waitFor();
  assert.equal(await ben.title(), '(1) Bluetick');
  await entry(ben, 'ann').click();
  await endsWith(ben, 'peer: are you there?');
  await endsWith(ann, 'you: are you there? [read]');
  await until('the title is calm again', async () => (await ben.title()) === 'Bluetick');
  assert.ok(ben.url().endsWith('#ann'));

  await composer(ben).pressSequentially('y');
  await ann.locator('.talk .head .sub', { hasText: 'typing…' }).waitFor();
  await ann.locator('.list .preview', { hasText: 'typing…' }).waitFor();
  await composer(ben).fill('yes\nI am');
  await composer(ben).press('Enter');
  await endsWith(ann, 'you: are you there? [read]', 'peer: yes\nI am');
  await ann.locator('.dots').waitFor({ state: 'detached' });
  // Presence is shown only for users who have written.
  await ann.locator('.talk .head .sub', { hasText: 'online' }).waitFor();
  await endsWith(ben, 'you: yes\nI am [read]');

  // On a phone the back button leads to the list.
  await ben.goBack();
  await entry(ben, 'ann').waitFor();
  assert.equal(new URL(ben.url()).hash, '');
  await entry(ben, 'ann').locator('.ticks[data-tick="read"]').waitFor();
  await ben.context().close();
  await ann.locator('.talk .head .sub', { hasText: 'last seen' }).waitFor();
});

test('what is hidden or scrolled away is not said to be read', async (t) => {
  for (let n = 1; n <= 40; n += 1) await server.send('cleo', 'dan', `line ${n}`);
  const dan = await openPage(t, browser);
  await signIn(dan, server.url, 'dan', 'cleo');
  // Forty lines do not fit: the chat opens at the first unread message, and the end is not visible.
  await dan.locator('.divider', { hasText: '40 unread messages' }).waitFor();
  const cleo = await openPage(t, browser);
  await signIn(cleo, server.url, 'cleo', 'dan');
  await endsWith(cleo, 'you: line 40 [delivered]');
  const jump = dan.getByRole('button', { name: 'To the newest message, 40 new' });
  await jump.waitFor();
  assert.equal((await messages(cleo)).at(-1), 'you: line 40 [delivered]');
  await jump.click();
  await endsWith(cleo, 'you: line 40 [read]');
  assert.ok((await shown(dan)).includes('-- 40 unread messages'), 'the line stays while one looks');

  // The log does not scroll down while the user reads above, and the button counts.
  await dan.getByRole('log').evaluate((log) => { log.scrollTop = 100; });
  await dan.getByRole('button', { name: 'To the newest message', exact: true }).waitFor();
  const inSight = async () => Math.round((await dan.locator('.msg', { hasText: 'line 8' }).boundingBox()).y);
  const place = await inSight();
  await say(cleo, 'one more');
  await dan.getByRole('button', { name: 'To the newest message, 1 new' }).waitFor();
  assert.equal(await inSight(), place);
  await endsWith(cleo, 'you: one more [delivered]');
  await dan.getByRole('button', { name: 'To the newest message, 1 new' }).click();
  await endsWith(cleo, 'you: one more [read]');

  // At the end, but in a hidden tab.
  const hide = (state) => dan.evaluate((value) => {
    Object.defineProperty(document, 'visibilityState', { value, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, state);
  await hide('hidden');
  await say(cleo, 'psst');
  await endsWith(dan, 'peer: one more', 'peer: psst');
  await until('the title counts', async () => (await dan.title()) === '(1) Bluetick');
  await endsWith(cleo, 'you: one more [read]', 'you: psst [delivered]');
  await hide('visible');
  await endsWith(cleo, 'you: psst [read]');
  assert.ok((await shown(dan)).includes('-- 1 unread message'));
});

test('off the network: the banner, a queue that shows, three messages in order under a line, ticks on the other side', async (t) => {
  const proxy = await startProxy(server.port);
  t.after(() => proxy.close());
  const eve = await openPage(t, browser);
  const fay = await openPage(t, browser, null, { allow: CUT_OFF });
  await signIn(eve, server.url, 'eve');
  await newChat(eve, 'fay');
  await say(eve, 'before');
  await signIn(fay, proxy.url, 'fay', 'eve');
  await endsWith(eve, 'you: before [read]');

  await fay.context().setOffline(true);
  proxy.cut();
  await fay.getByText('No connection.').waitFor();
  await fay.getByRole('button', { name: 'Try now' }).waitFor();
  for (const text of ['one', 'two', 'three']) await say(eve, text);
  await endsWith(eve, 'you: one [sent]', 'you: two [sent]', 'you: three [sent]');
  await say(fay, 'written in the tunnel');
  await endsWith(fay, 'peer: before', 'you: written in the tunnel [waiting]');
  await fay.getByText('1 message waiting.').waitFor();

  proxy.mend();
  await fay.context().setOffline(false);
  await until('the banner goes', async () => !(await fay.locator('.banner').isVisible()), 40_000);
  await until('everything is there', async () => (await messages(fay)).length === 5);
  const rows = await shown(fay);
  const line = rows.indexOf('-- 3 unread messages');
  assert.ok(line > 0, `no line among ${rows.join(' | ')}`);
  assert.deepEqual(rows.slice(line + 1).filter((row) => row.startsWith('peer')), ['peer: one', 'peer: two', 'peer: three']);
  await until('the ticks turn', async () => (await messages(eve)).filter((row) => /^you: (one|two|three) \[read\]$/.test(row)).length === 3);
  await until('what was queued has arrived once', async () => (await messages(eve)).filter((row) => row === 'peer: written in the tunnel').length === 1);
});

test('a reload in the middle of a send sends once', async (t) => {
  const proxy = await startProxy(server.port);
  t.after(() => proxy.close());
  const gil = await openPage(t, browser, null, { allow: CUT_OFF });
  const hal = await openPage(t, browser);
  await signIn(hal, server.url, 'hal');
  await signIn(gil, proxy.url, 'gil');
  await newChat(gil, 'hal');
  await say(gil, 'first');
  await endsWith(gil, 'you: first [delivered]');

  // The server stores it, but its answer never reaches the page, which is closed while it waits.
  proxy.hold('down');
  await say(gil, 'only once');
  await entry(hal, 'gil').getByText('only once').waitFor();
  await endsWith(gil, 'you: only once [waiting]');
  await gil.goto('about:blank');
  proxy.drop();
  proxy.release();
  await gil.goto(`${proxy.url}/#hal`);
  await endsWith(gil, 'you: first [delivered]', 'you: only once [delivered]');
  await entry(hal, 'gil').click();
  await endsWith(hal, 'peer: first', 'peer: only once');
  await endsWith(gil, 'you: first [read]', 'you: only once [read]');
  for (const page of [gil, hal]) assert.equal((await messages(page)).length, 2);
  const { messages: stored } = await server.as('hal', 'GET', '/v1/conversations/gil~hal/messages');
  assert.deepEqual(stored.map((m) => m.body), ['first', 'only once']);
});

test('what is refused says why, and can be tried again or discarded', async (t) => {
  const ida = await openPage(t, browser);
  await server.send('jon', 'ida', 'hello');
  await signIn(ida, server.url, 'ida', 'jon');
  await endsWith(ida, 'peer: hello');
  await server.as('ida', 'PUT', '/v1/blocks/jon');
  await say(ida, 'hello back');
  await ida.getByText('Not sent. You block this user. Unblock them to write.').waitFor();
  await endsWith(ida, 'you: hello back [failed]');
  await say(ida, 'never mind');
  await endsWith(ida, 'you: hello back [failed]', 'you: never mind [failed]');
  await ida.locator('.msg', { hasText: 'never mind' }).getByRole('button', { name: 'Discard' }).click();
  await endsWith(ida, 'peer: hello', 'you: hello back [failed]');
  await server.as('ida', 'DELETE', '/v1/blocks/jon');
  await ida.getByRole('button', { name: 'Try again' }).click();
  await endsWith(ida, 'peer: hello', 'you: hello back [sent]');
});

test('a name that is set is seen by others, and survives a reload; signing out forgets', async (t) => {
  const kim = await openPage(t, browser);
  await server.send('kim', 'leo', 'hi');
  await signIn(kim, server.url, 'kim');
  await kim.getByTitle('Your profile').click();
  await kim.getByLabel('Name').fill('Kim the First');
  await kim.getByRole('button', { name: 'Save' }).click();
  await kim.locator('.list .head', { hasText: 'Kim the First' }).waitFor();
  await kim.reload();
  await kim.locator('.list .head', { hasText: 'Kim the First' }).waitFor();
  const leo = await openPage(t, browser);
  await signIn(leo, server.url, 'leo');
  await entry(leo, 'Kim the First').waitFor();
  await kim.getByTitle('Your profile').click();
  await kim.getByRole('button', { name: 'Sign out' }).click();
  await kim.getByRole('heading', { name: 'Who are you?' }).waitFor();
  await kim.reload();
  await kim.getByRole('heading', { name: 'Who are you?' }).waitFor();
});

test('the demo: one click to be alice, one to write to bob', async (t) => {
  const page = await openPage(t, browser, server.page(), { size: 'phone' });
  await page.getByRole('button', { name: 'alice' }).click();
  await entry(page, 'carol').getByText('Say hello').waitFor();
  await entry(page, 'bob').click();
  await page.getByText('No messages yet. Say hello.').waitFor();
  await say(page, 'hello');
  await endsWith(page, 'you: hello [sent]');
});

test('without the demo key a token is asked for, and nothing is asked of the demo', async (t) => {
  const asked = [];
  const mia = await openPage(t, browser, null);
  mia.on('request', (request) => asked.push(request.url()));
  await mia.goto(`${server.url}/`);
  await mia.getByText('open the address that the server printed').waitFor();
  assert.deepEqual(asked.filter((url) => url.includes('/demo/')), []);
  await mia.getByLabel('Token').fill('not a token');
  await mia.getByRole('button', { name: 'Sign in' }).click();
  await mia.getByText('This is not a token').waitFor();
  await mia.getByLabel('Token').fill(await server.token('mia'));
  await mia.getByRole('button', { name: 'Sign in' }).click();
  await mia.locator('.list .head', { hasText: 'mia' }).waitFor();
});

test('a key of an earlier start opens nothing, and says so', async (t) => {
  const page = await openPage(t, browser, `${server.url}/#demo=0123456789abcdef0123456789abcdef`, { allow: [/status of 404.*demo\/token/] });
  await page.getByText('from an earlier start').waitFor();
  await page.getByRole('heading', { name: 'Sign in with a token' }).waitFor();
  assert.equal(page.url(), `${server.url}/`);
});

test('the demo key lasts for the tab, and its links carry it to others', async (t) => {
  const page = await openPage(t, browser, server.page());
  await page.getByRole('heading', { name: 'Who are you?' }).waitFor();
  assert.equal(page.url(), `${server.url}/`, 'the key does not stay in the address');
  await page.reload();
  await page.getByRole('heading', { name: 'Who are you?' }).waitFor();
  const opened = page.context().waitForEvent('page');
  await page.getByRole('link', { name: 'Open a second window' }).click();
  await (await opened).getByRole('heading', { name: 'Who are you?' }).waitFor();
  await page.getByRole('link', { name: 'See what happens inside' }).click();
  await page.waitForSelector('body[data-ready]');
});

test('a demo chat goes on after a restart, with the token it has', async (t) => {
  const own = await Server.start();
  t.after(() => own.end());
  const page = await openPage(t, browser, null, { allow: [...CUT_OFF, /status of 404.*demo\/token/] });
  await signIn(page, own.url, 'rob');
  await newChat(page, 'sue');
  await say(page, 'before');
  await endsWith(page, 'you: before [sent]');
  await own.kill();
  await page.getByText('No connection.').waitFor();
  await own.start();
  await until('the banner goes', async () => !(await page.locator('.banner').isVisible()), 40_000);
  await say(page, 'after');
  await endsWith(page, 'you: before [sent]', 'you: after [sent]');
  await page.context().close();
});

/** A page whose requests and frames are recorded. */
async function watched(t) {
  const page = await openPage(t, browser);
  const sent = [];
  page.on('request', (request) => sent.push(`${request.url()} ${request.headers().authorization ?? ''} ${request.postData() ?? ''}`));
  page.on('websocket', (socket) => {
    sent.push(socket.url());
    socket.on('framesent', ({ payload }) => sent.push(String(payload)));
  });
  return { page, sent };
}

test('a link with a token asks first, and sends nothing of it before', async (t) => {
  const token = await server.token('mallory');
  const { page, sent } = await watched(t);
  await page.goto(`${server.url}/#token=${token}`);
  await page.getByRole('heading', { name: 'Sign in as mallory?' }).waitFor();
  assert.equal(page.url(), `${server.url}/`, 'the token is taken out of the address');
  await screenshot(page, 'consent-nobody');
  assert.deepEqual(sent.filter((what) => what.includes(token) || what.includes('/v1/')), []);
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Do not sign in');
  await page.getByRole('button', { name: 'Do not sign in' }).click();
  await page.getByRole('heading', { name: 'Sign in with a token' }).waitFor();
  await page.reload();
  await page.getByRole('heading', { name: 'Sign in with a token' }).waitFor();
  assert.deepEqual(sent.filter((what) => what.includes(token)), []);
  await page.goto('about:blank');
  await page.goto(`${server.url}/#token=${token}`);
  await page.getByRole('button', { name: 'Sign in as mallory' }).click();
  await page.locator('.list .head', { hasText: 'mallory' }).waitFor();
});

test('a link with a token does not replace who is signed in without asking', async (t) => {
  const { page, sent } = await watched(t);
  const [own, foreign] = [await server.token('ned'), await server.token('mallory')];
  await page.goto(`${server.url}/`);
  await page.getByLabel('Token').fill(own);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.locator('.list .head', { hasText: 'ned' }).waitFor();
  // Followed within the page, where only the fragment changes, and from elsewhere.
  for (const go of [(url) => page.evaluate((to) => { location.href = to; }, url), async (url) => { await page.goto('about:blank'); await page.goto(url); }]) {
    await go(`${server.url}/#token=${foreign}`);
    await page.getByRole('heading', { name: 'Sign in as mallory?' }).waitFor();
    await page.getByText('You are signed in as ned.').waitFor();
    await screenshot(page, 'consent');
    await page.getByRole('button', { name: 'Stay signed in as ned' }).click();
    await page.locator('.list .head', { hasText: 'ned' }).waitFor();
    assert.deepEqual(sent.filter((what) => what.includes(foreign)), []);
  }
  await page.goto('about:blank');
  await page.goto(`${server.url}/#token=${foreign}`);
  await page.getByRole('button', { name: 'Sign in as mallory' }).click();
  await page.locator('.list .head', { hasText: 'mallory' }).waitFor();
});

test('the question before a link signs in is readable and fits', async (t) => {
  const long = 'a-rather-long-user-id-of-somebody.who-has-a-long-name@example.org';
  const token = await server.token(long.slice(0, 64));
  for (const size of ['phone', 'desk']) {
    for (const scheme of ['light', 'dark']) {
      const page = await openPage(t, browser, `${server.url}/#token=${token}`, { size, scheme, bypassCSP: true });
      await page.getByRole('alertdialog').waitFor();
      await assertAccessible(page);
      await assertNoOverflow(page);
      await screenshot(page, `consent-${size}-${scheme}`);
    }
  }
});

test('on the demo, a link to be somebody else asks too', async (t) => {
  const page = await openPage(t, browser);
  await signIn(page, server.url, 'tia');
  await page.goto(`${server.url}/?user=uli`);
  await page.getByText('You are signed in as tia.').waitFor();
  await page.getByRole('button', { name: 'Stay signed in as tia' }).click();
  await page.locator('.list .head', { hasText: 'tia' }).waitFor();
  await page.goto(`${server.url}/?user=uli`);
  await page.getByRole('button', { name: 'Sign in as uli' }).click();
  await page.locator('.list .head', { hasText: 'uli' }).waitFor();
});
