// The sign-in form: a name on the demo, a token elsewhere.

import { demoToken, hasDemoKey, isDemo, isLocalPage, NoDemo, withDemoKey } from '../lib/demo.js';
import { make, setAttr, setText } from '../lib/dom.js';
import { makeFace, setFace } from '../lib/face.js';
import { icon } from '../lib/icons.js';
import { wrongUserId } from './people.js';
import { subjectOf } from './session.js';

export const SUGGESTED = ['alice', 'bob', 'carol'];
const STALE_KEY = 'This address is from an earlier start of the server. For the demo, open the address that the server printed last.';

/** Draws the form into `root`. `done` gets {user} on the demo, {user, token} elsewhere. */
export async function signIn(root, { links, toggle, reason, done }) {
  const panel = make('div', { class: 'panel' });
  const el = make('div', { class: 'signin' },
    make('div', { class: 'brand' },
      make('span', { class: 'logo' }, icon('logo')),
      make('div', {}, make('h1', {}, 'Bluetick'), make('p', {}, 'Chat on your own server.')),
      toggle),
    panel,
    make('p', { class: 'foot' }, links.map(({ href, text }) => make('a', { href }, text))));
  root.replaceChildren(el);
  const finish = (session) => { el.remove(); done(session); };
  // Checked before a form is shown, so that it is the right one.
  const demo = await isDemo();
  if (!el.isConnected) return;
  const words = reason ?? (!demo && hasDemoKey() ? STALE_KEY : null);
  const note = words ? [make('p', { class: 'note', role: 'status' }, words)] : [];
  panel.replaceChildren(...note, ...(demo ? names(finish) : tokens(finish)));
  panel.querySelector('.person, textarea')?.focus();
}

function names(done) {
  const go = async (user) => {
    const wrong = wrongUserId(user);
    if (wrong) { say(wrong); return; }
    try {
      await demoToken(user);
      done({ user });
    } catch (error) { say(error instanceof NoDemo ? STALE_KEY : 'The server cannot be reached. Try again in a moment.'); }
  };
  const people = make('ul', { class: 'people' }, SUGGESTED.map((user) => {
    const face = makeFace();
    setFace(face, { userId: user });
    return make('li', {}, make('button', { class: 'person', type: 'button', onclick: () => go(user) }, face, user, icon('back')));
  }));
  const { form, say } = formOf({
    label: 'Another name', button: 'Sign in',
    hint: ['Any name will do: this is the demo. ', make('a', { href: withDemoKey('/'), target: '_blank', rel: 'noopener' }, 'Open a second window'), ' to be somebody else.'],
    field: make('input', { class: 'field', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', enterkeyhint: 'go' }), submit: go,
  });
  return [make('h2', {}, 'Who are you?'), people, make('p', { class: 'or' }, 'or'), form];
}

function tokens(done) {
  const { form, say } = formOf({
    label: 'Token', hint: 'A JWT whose “sub” is your user id. Your application signs it; on the server’s machine, “bluetick token --user alice” prints one.', button: 'Sign in',
    field: make('textarea', { class: 'field', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', rows: '5' }),
    submit: (token) => {
      const user = subjectOf(token);
      if (!token) say('Paste a token.');
      else if (!user) say('This is not a token: it should have three parts with dots between, and name a user.');
      else done({ user, token });
    },
  });
  const demo = isLocalPage() && make('p', { class: 'hint demo-hint' }, 'For the demo, open the address that the server printed when it started: it ends with “#demo=” and a key.');
  return [make('h2', {}, 'Sign in with a token'), form, ...(demo ? [demo] : [])];
}

function formOf({ label, hint, button, field, submit }) {
  const wrong = make('p', { class: 'wrong', id: 'signin-wrong', role: 'alert' });
  const say = (text) => { setText(wrong, text); setAttr(field, 'aria-invalid', text ? 'true' : null); if (text) field.focus(); };
  for (const [name, value] of [['id', 'signin-field'], ['aria-describedby', 'signin-hint signin-wrong']]) field.setAttribute(name, value);
  field.addEventListener('input', () => say(''));
  const onsubmit = (event) => { event.preventDefault(); submit(field.value.trim().replace(/^Bearer\s+/i, '')); };
  const form = make('form', { novalidate: true, onsubmit },
    make('label', { for: 'signin-field' }, label), field, wrong, make('p', { class: 'hint', id: 'signin-hint' }, hint),
    make('button', { class: 'press strong', type: 'submit' }, button));
  return { form, say };
}
