// The session of this tab. On the demo a name is enough, and the server issues tokens for it. Elsewhere the application
// issues a token, which is pasted or comes in the address.

import { addressHasDemoKey, demoToken, NoDemo } from '../lib/demo.js';

const KEY = 'bluetick-session';

/** The user that a token names. Only the server verifies the token. */
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

/** The session in the address, if any: `#token=…` (removed from it at once) or `?user=alice`. */
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

/** Whether the address needs a reload: it was opened within this page and carries a session. */
export function addressSignsIn() {
  const hash = new URLSearchParams(location.hash.slice(1));
  return hash.has('token') || addressHasDemoKey();
}

/**
 * Whether a session from the address needs the user's consent. An attacker can send a link with their own token, so that
 * others write in the attacker's account. On the demo any user may sign in as any other, so only a change of user needs
 * consent.
 */
export function needsConsent(offered, current) {
  if (offered.token) return offered.token !== current?.token;
  return !!current && current.user !== offered.user;
}

/** The client's token function. Calls `none` if this is not a demo. */
export function tokenOf(session, none) {
  return session.token ?? (() => demoToken(session.user).catch((error) => {
    if (error instanceof NoDemo) none();
    throw error;
  }));
}
