// Asks before a link signs a user in. The link's token is not used before the answer is yes.

import { make } from '../lib/dom.js';
import { makeFace, setFace } from '../lib/face.js';

/**
 * @param {HTMLElement} root the parent element
 * @param {{user: string}} offered the user that the link signs in
 * @param {{user: string}|null} current the user who is signed in
 * @param {{toggle: Node, yes: () => void, no: () => void}} o
 */
export function askForConsent(root, offered, current, { toggle, yes, no }) {
  const answer = (then) => () => { el.remove(); then(); };
  const refuse = make('button', { class: 'press', type: 'button', onclick: answer(no) }, current ? `Stay signed in as ${current.user}` : 'Do not sign in');
  const same = current?.user === offered.user;
  const panel = make('section', { class: 'panel consent', role: 'alertdialog', 'aria-labelledby': 'consent-title', 'aria-describedby': 'consent-text' },
    make('h2', { id: 'consent-title' }, `Sign in as ${offered.user}?`),
    make('ul', { class: 'people' }, person(offered.user, 'The link you opened'), current && !same && person(current.user, 'Signed in now')),
    make('div', { id: 'consent-text' },
      current && !same && make('p', {}, `You are signed in as ${current.user}.`),
      make('p', { class: 'hint' }, `A link asks to sign you in as ${offered.user}. Whoever made the link may read what you write there. Go on only if you asked for it or trust who gave it to you.`)),
    make('div', { class: 'ways' },
      make('button', { class: 'press strong', type: 'button', onclick: answer(yes) }, `Sign in as ${offered.user}`), refuse));
  const el = make('div', { class: 'signin' }, make('div', { class: 'brand' }, make('div', {}, make('h1', {}, 'Bluetick')), toggle), panel);
  root.replaceChildren(el);
  // The safe answer has the focus.
  refuse.focus();
}

function person(user, what) {
  const face = makeFace();
  setFace(face, { userId: user });
  return make('li', { class: 'card' }, face, make('span', { class: 'names' }, make('b', {}, user), make('span', { class: 'hint' }, what)));
}
