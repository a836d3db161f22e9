// The demo, for a page that was opened with its key. The server makes a new key at every start and prints it as part of
// the address (`http://127.0.0.1:8080/#demo=KEY`). A fragment is not sent to the server, so the page takes the key out of
// the address, keeps it for this tab and sends it in a header. Without the key there is no demo.

const KEPT = 'bluetick-demo-key';
const TOKENS = 'bluetick-demo-tokens';
const HEADER = 'x-bluetick-demo';
/** A kept token that expires within this time is not used. */
const EXPIRES_SOON_MS = 60_000;

/** This page has no demo: it is switched off, or the key is missing or from an earlier start. */
export class NoDemo extends Error {}

const storage = {
  get(name) { try { return sessionStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { sessionStorage.setItem(name, value); } catch { /* storage is forbidden here: it lasts as long as the page */ } },
};

let key = storage.get(KEPT);
let tokens = null;

const isKey = (part) => part.startsWith('demo=');
const fragmentParts = () => location.hash.slice(1).split('&');

/** Moves the key from the address into this tab. Call it before anything else reads the fragment. */
export function takeDemoKey() {
  const given = fragmentParts().find(isKey)?.slice('demo='.length);
  if (given === undefined) return;
  if (given) {
    key = given;
    storage.set(KEPT, key);
  }
  const rest = fragmentParts().filter((part) => !isKey(part)).join('&');
  history.replaceState(history.state, '', `${location.pathname}${location.search}${rest ? `#${rest}` : ''}`);
}

/** Whether the fragment holds a key. Opening such an address over this page does not reload it. */
export const addressHasDemoKey = () => fragmentParts().some(isKey);

export const hasDemoKey = () => !!key;

/** Whether the address says that the server is on this machine. */
export const isLocalPage = () => /^(localhost|127(\.\d+){3}|\[::1\])$/.test(location.hostname);

/** The address of a page with the demo's key, for use in another tab. */
export const withDemoKey = (path) => (key ? `${path}#demo=${key}` : path);

/** A request to the demo. Throws NoDemo if there is no key, or if the server rejects it. */
export async function demoFetch(path, init = {}) {
  if (!key) throw new NoDemo('no demo key');
  const answer = await fetch(path, { cache: 'no-store', ...init, headers: { ...init.headers, [HEADER]: key } });
  if (answer.status === 404 || answer.status === 405) throw new NoDemo('no demo');
  return answer;
}

const askForToken = (user) => demoFetch('/demo/token', {
  method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ user }),
});

/**
 * A token for any user. If the server rejects the key, an earlier token is reused: a restart changes the key, but tokens
 * stay valid.
 */
export async function demoToken(user) {
  try {
    const answer = await askForToken(user);
    if (!answer.ok) throw new Error((await answer.json().catch(() => null))?.error?.message ?? `the server answered ${answer.status}`);
    const { token, expires_in_secs: seconds } = await answer.json();
    keepToken(user, token, Date.now() + seconds * 1000);
    return token;
  } catch (error) {
    const kept = error instanceof NoDemo ? keptToken(user) : null;
    if (kept) return kept;
    throw error;
  }
}

/** Whether the server accepts the key now. Kept tokens do not count. */
export async function isDemo() {
  try {
    await (await askForToken('alice')).text();
    return true;
  } catch (error) { return !(error instanceof NoDemo); }
}

function allTokens() {
  try { tokens ??= JSON.parse(storage.get(TOKENS)); } catch { /* not what was written: begin anew */ }
  tokens ??= {};
  return tokens;
}

function keepToken(user, token, expires) {
  allTokens()[user] = { token, expires };
  storage.set(TOKENS, JSON.stringify(tokens));
}

function keptToken(user) {
  const kept = allTokens()[user];
  return kept && kept.expires - EXPIRES_SOON_MS > Date.now() ? kept.token : null;
}
