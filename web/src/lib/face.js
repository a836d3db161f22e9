// A user's avatar: their picture, or the first letter of their name on a colour derived from their id.

import { make, setText } from './dom.js';

const HUES = 6;

export function hue(user) {
  let sum = 7;
  for (const ch of user) sum = (sum * 31 + ch.codePointAt(0)) % 9973;
  return `hue${sum % HUES}`;
}

export function makeFace() {
  return make('span', { class: 'face', 'aria-hidden': 'true' }, make('span'));
}

/** peer: {userId, name, avatarUrl}. */
export function setFace(el, peer, online = false) {
  el.className = `face ${hue(peer.userId)}${online ? ' on' : ''}`;
  setText(el.firstElementChild, [...(peer.name?.trim() || peer.userId)][0] ?? '?');
  setPicture(el, peer.avatarUrl);
}

function setPicture(el, url) {
  const safe = url && /^https?:\/\//i.test(url) ? url : null;
  const shown = el.querySelector('img');
  if (shown?.getAttribute('src') === safe || (!shown && !safe) || el.dataset.broken === safe) return;
  shown?.remove();
  if (!safe) return;
  const drop = (event) => { el.dataset.broken = safe; event.target.remove(); };
  el.append(make('img', { src: safe, alt: '', loading: 'lazy', referrerpolicy: 'no-referrer', onerror: drop }));
}
