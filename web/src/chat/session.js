// Who is signed in, for this tab. On the demo a name is enough and the server gives tokens for it; elsewhere the
// application gives one, and it is pasted or comes in the address.

const KEY = 'bluetick-session';

/** The demo gives no tokens here: it is none, or this is not the machine it runs on. */
export class NoDemo extends Error {}

export async function demoToken(user) {
  const answer = await fetch('/demo/token', {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ user }),
  });
  if (answer.status === 404 || answer.status === 405) throw new NoDemo('no demo');
  if (!answer.ok) throw new Error((await answer.json().catch(() => null))?.error?.message ?? `the server answered ${answer.status}`);
  return (await answer.json()).token;
}

/** The user a token names. It is only read here; the server checks it. */
export function subjectOf(token) {
  try {
    const part = token.split('.')[1].replace(/-/g, '+').replace(/_/g, '/');
    const bytes = Uint8Array.from(atob(part), (ch) => ch.charCodeAt(0));
    const { sub } = JSON.parse(new TextDecoder().decode(bytes));
    return typeof sub === 'string' && sub ? sub : null;
  } catch { return null; }
}

export function kept() {
  try { return JSON.parse(sessionStorage.getItem(KEY)); } catch { return null; }
}
export function keep(session) {
  try {
    if (session) sessionStorage.setItem(KEY, JSON.stringify(session));
    else sessionStorage.removeItem(KEY);
  } catch { /* storage is forbidden here: the session lasts as long as the page */ }
}

/** What the address says, if anything: `#token=…` (taken out of it at once) or `?user=alice`. */
export function fromAddress() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const token = hash.get('token');
  const user = new URLSearchParams(location.search).get('user');
  if (token !== null || user !== null) {
    const rest = token !== null ? '' : location.hash;
    history.replaceState(null, '', `${location.pathname}${rest}`);
  }
  if (token) return subjectOf(token) ? { user: subjectOf(token), token } : null;
  return user ? { user } : null;
}

/** What the client calls for a token. `none` is told if this turns out to be no demo. */
export function tokenOf(session, none) {
  return session.token ?? (() => demoToken(session.user).catch((error) => {
    if (error instanceof NoDemo) none();
    throw error;
  }));
}
