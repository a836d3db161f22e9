// The page at /: signs in, mounts the chat, and keeps the address and the title up to date.

import { Client } from '@bluetick/client';
import { takeDemoKey, withDemoKey } from '../lib/demo.js';
import { applyTheme, themeToggle } from '../lib/theme.js';
import { askForConsent } from './consent.js';
import { addressSignsIn, fromAddress, keep, kept, needsConsent, tokenOf } from './session.js';
import { signIn, SUGGESTED } from './signin.js';
import { wrongUserId } from './people.js';
import { mountChat } from './view.js';

applyTheme();
takeDemoKey();

const LINKS = [{ href: withDemoKey('/tour'), text: 'See what happens inside' }, { href: '/v1/docs', text: 'API' }];
const REFUSED = { unauthorized: 'The server refused this token. Sign in with another.', token_expired: 'Your token has expired. Sign in with a fresh one.', token_revoked: 'Your token was revoked. Sign in with a fresh one.', wrong_user: 'This token belongs to somebody else. Sign in again.' };
const root = document.querySelector('#app');
const toggle = themeToggle();

function peerInAddress(user) {
  let peer = '';
  try { peer = decodeURIComponent(location.hash.slice(1)); } catch { /* not an id then */ }
  return peer && peer !== user && !wrongUserId(peer) ? peer : null;
}

function start(session) {
  keep(session);
  const client = new Client({ user: session.user, token: tokenOf(session, () => end('Here a token is needed to sign in.')) });
  const chat = mountChat(root, client, {
    initialPeer: peerInAddress(session.user),
    suggest: session.token ? [] : SUGGESTED,
    // On the demo each of the three users finds the other two in the list.
    peers: !session.token && SUGGESTED.includes(session.user) ? SUGGESTED : [],
    links: LINKS,
    tools: [toggle],
    onOpen: showInAddress,
    onSignOut: () => end(),
  });
  const stops = [keepTitle(client), followAddress(session.user, chat), shortcuts(chat), watchRefusal(client, (words) => end(words))];
  let over = false;
  const end = (reason) => {
    if (over) return;
    over = true;
    for (const stop of stops) stop();
    chat.destroy();
    client.close();
    keep(null);
    document.title = 'Bluetick';
    history.replaceState(null, '', location.pathname);
    signIn(root, { links: LINKS, toggle, reason, done: start });
  };
  client.connect();
}

/** With one pane, opening a chat adds a history entry for the back button; with two panes it does not. */
function showInAddress(peer) {
  const inChat = !!history.state?.opened;
  if (!peer) {
    if (inChat) history.back();
    else history.replaceState(null, '', location.pathname);
  } else if (location.hash.length > 1) history.replaceState(history.state, '', `#${encodeURIComponent(peer)}`);
  else history.pushState({ opened: true }, '', `#${encodeURIComponent(peer)}`);
}

function listenTo(target, type, handler) {
  target.addEventListener(type, handler);
  return () => target.removeEventListener(type, handler);
}

const followAddress = (user, chat) => listenTo(window, 'popstate', () => { if (!addressSignsIn()) chat.open(peerInAddress(user)); });

const shortcuts = (chat) => listenTo(window, 'keydown', (event) => {
  if (event.key === 'Escape' && event.target === document.body) chat.escape();
  if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
  event.preventDefault();
  chat.newChat();
});

function keepTitle(client) {
  const draw = () => { document.title = client.unread ? `(${client.unread}) Bluetick` : 'Bluetick'; };
  const stops = ['change', 'message', 'ticks', 'caughtUp'].map((name) => client.on(name, draw));
  return () => stops.forEach((stop) => stop());
}

/** Retrying does not help with a rejected token: show the form again. */
function watchRefusal(client, refused) {
  return client.on('state', () => {
    const words = REFUSED[client.reason?.code];
    if (words && (client.state === 'offline' || client.state === 'closed')) queueMicrotask(() => refused(words));
  });
}

// An address that signs in was opened over this page: reload, so that it is read and confirmed.
addEventListener('hashchange', () => { if (addressSignsIn()) location.reload(); });

// A file dropped beside the conversation must not replace the page.
for (const type of ['dragover', 'drop']) addEventListener(type, (event) => event.preventDefault());

/** Resumes the session, or shows the sign-in form. */
function goOn(session) {
  if (session && !wrongUserId(session.user)) start(session);
  else signIn(root, { links: LINKS, toggle, done: start });
}

const [offered, current] = [fromAddress(), kept()];
if (!offered || wrongUserId(offered.user)) goOn(current);
else if (!needsConsent(offered, current)) goOn(offered);
else askForConsent(root, offered, current, { toggle, yes: () => start(offered), no: () => goOn(current) });
