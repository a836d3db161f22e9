// A complete chat with one person: history, ticks, typing, presence, an outbox that survives a reload, and retries.
// Serve this folder from the host of a server in demo mode (a proxy in front of both, as test/example.test.js does), and open
// ?me=alice&peer=bob#demo=KEY with the key that the server prints.

import { Client } from '../../src/index.js';

const query = new URLSearchParams(location.search);
const [me, peer] = [query.get('me') ?? 'alice', query.get('peer') ?? 'bob'];
const byId = (id) => document.getElementById(id);
const TICKS = { waiting: '🕓', sent: '✓', delivered: '✓✓', read: '✓✓', failed: 'not sent: tap to retry' };

// Your own back end gives out the tokens; this is the demo's.
async function token() {
  const key = new URLSearchParams(location.hash.slice(1)).get('demo') ?? '';
  const headers = { 'content-type': 'application/json', 'x-bluetick-demo': key };
  const answer = await fetch('/demo/token', { method: 'POST', headers, body: JSON.stringify({ user: me }) });
  return (await answer.json()).token;
}

const client = new Client({ user: me, token });
const chat = client.conversation(peer);
const items = new WeakMap();

function itemOf(message) {
  const item = items.get(message) ?? document.createElement('li');
  items.set(message, item);
  item.className = message.own ? 'own' : '';
  item.textContent = message.body || message.attachment?.name || '';
  item.dataset.state = message.tick;
  item.dataset.tick = TICKS[message.tick] ?? '';
  item.onclick = () => message.tick === 'failed' && chat.retry(message);
  return item;
}

function about() {
  if (client.state !== 'online') return client.state;
  if (chat.typing) return 'typing…';
  return chat.presence?.online ? 'online' : '';
}

function draw() {
  const list = byId('messages');
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  list.replaceChildren(...chat.messages.map(itemOf));
  if (atEnd) list.scrollTop = list.scrollHeight;
  byId('peer').textContent = chat.peer.name ?? peer;
  byId('about').textContent = about();
  if (document.visibilityState === 'visible') chat.read();
}

client.on('change', draw);
globalThis.addEventListener('focus', draw);
byId('messages').addEventListener('scroll', ({ target }) => target.scrollTop < 50 && chat.loadEarlier());
byId('text').addEventListener('input', () => chat.setTyping());
byId('form').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = byId('text').value.trim();
  if (!text) return;
  chat.send(text);
  byId('text').value = '';
});

client.connect();
chat.load().then(draw);
