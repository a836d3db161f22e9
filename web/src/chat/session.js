// Who is signed in, for this tab. On the demo a name is enough and the server gives tokens for it; elsewhere the
// application gives one, and it is pasted or comes in the address.

import { addressHasDemoKey, demoToken, NoDemo } from '../lib/demo.js';

const KEY = 'bluetick-session';

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

/** Whether the address asks for something that only a fresh page takes up: a link that was followed within this page. */
export function addressSignsIn() {
  const hash = new URLSearchParams(location.hash.slice(1));
  return hash.has('token') || addressHasDemoKey();
}

/**
 * Whether a session from the address needs the consent of the person. Anybody can send a link: one with their own token
 * would have others write in their account, and read there what they wrote. On the demo everybody may be anybody, so there
 * only a change of person is asked about.
 */
export function needsConsent(offered, current) {
  if (offered.token) return offered.token !== current?.token;
  return !!current && current.user !== offered.user;
}

/** What the client calls for a token. `none` is told if this turns out to be no demo. */
export function tokenOf(session, none) {
  return session.token ?? (() => demoToken(session.user).catch((error) => {
    if (error instanceof NoDemo) none();
    throw error;
  }));
}
