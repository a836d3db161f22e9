// Dialogs inside the chat's box: a new chat, and the user's profile.

import { make, setAttr, setText } from '../lib/dom.js';
import { makeFace, setFace } from '../lib/face.js';
import { icon } from '../lib/icons.js';
import { nameOf, words, wrongUserId } from './people.js';

let count = 0;

/** A dialog with a title and a close button. It takes the focus, keeps it (the rest is inert), and gives it back. */
class Sheet {
  constructor(view, title, ...content) {
    this.view = view;
    const id = `sheet-${count += 1}`;
    this.box = make('div', { class: 'sheet', role: 'dialog', 'aria-modal': 'true', 'aria-labelledby': id },
      make('div', { class: 'sheet-head' },
        make('h2', { id }, title),
        make('button', { class: 'round', type: 'button', 'aria-label': 'Close', onclick: () => this.close() }, icon('close'))),
      ...content);
    this.el = make('div', { class: 'shade' }, this.box);
    this.el.addEventListener('pointerdown', (event) => { if (event.target === this.el) this.close(); });
    this.el.addEventListener('keydown', (event) => { if (event.key === 'Tab') this.keepFocus(event); });
    view.cover(this);
  }
  close() { this.view.uncover(this); }

  keepFocus(event) {
    const stops = [...this.box.querySelectorAll('a[href], button, input')].filter((el) => !el.disabled && el.offsetParent);
    const [first, last] = [stops[0], stops.at(-1)];
    if (event.shiftKey ? document.activeElement === first : document.activeElement === last) {
      event.preventDefault();
      (event.shiftKey ? last : first).focus();
    }
  }
}

/** A labelled field with a hint and a place for its error. */
function field(label, hint, attributes) {
  const id = `field-${count += 1}`;
  const input = make('input', { class: 'field', id, 'aria-describedby': `${id}-hint ${id}-wrong`, autocomplete: 'off', ...attributes });
  const wrong = make('p', { class: 'wrong', id: `${id}-wrong`, role: 'alert' });
  const say = (text) => { setText(wrong, text ?? ''); setAttr(input, 'aria-invalid', text ? 'true' : null); };
  input.addEventListener('input', () => say(null));
  return { input, say, nodes: [make('label', { for: id }, label), input, make('p', { class: 'hint', id: `${id}-hint` }, hint), wrong] };
}

export function newChatSheet(view) {
  const { client } = view;
  const to = field('User id', 'The id that the other person signs in with.', { name: 'peer', spellcheck: 'false', autocapitalize: 'off', enterkeyhint: 'go' });
  const start = (id) => {
    const wrong = wrongUserId(id) ?? (id === client.user ? 'That is you. Choose somebody else.' : null);
    to.say(wrong);
    if (wrong) { to.input.focus(); return; }
    sheet.close();
    view.open(id);
  };
  const form = make('form', { novalidate: true, onsubmit: (event) => { event.preventDefault(); start(to.input.value.trim()); } },
    to.nodes, suggestions(view, start),
    make('div', { class: 'deeds' }, make('button', { class: 'press strong', type: 'submit' }, 'Chat')));
  const sheet = new Sheet(view, 'New chat', form);
  to.input.focus();
}

function suggestions(view, start) {
  const users = (view.options.suggest ?? []).filter((user) => user !== view.client.user);
  if (!users.length) return null;
  return make('div', { class: 'chips', role: 'group', 'aria-label': 'Suggestions' }, users.map((user) => {
    const face = makeFace();
    setFace(face, { userId: user });
    return make('button', { class: 'chip', type: 'button', onclick: () => start(user) }, face, user);
  }));
}

export function profileSheet(view) {
  const { client, options } = view;
  const face = makeFace();
  setFace(face, view.me);
  const name = field('Name', 'What others see instead of your id.', { name: 'name', maxlength: '64', autocapitalize: 'words', value: view.me.name ?? '' });
  const save = make('button', { class: 'press strong', type: 'submit' }, 'Save');
  const submit = async (event) => {
    event.preventDefault();
    const text = name.input.value.trim();
    if (new TextEncoder().encode(text).length > 128) return name.say('This name is too long.');
    save.disabled = true;
    try {
      Object.assign(view.me, await client.profile());
      Object.assign(view.me, { name: text || null }, await client.setProfile({ name: text || null, avatarUrl: view.me.avatarUrl }));
      sheet.close();
      view.say('Your name is saved.');
      view.soon();
    } catch (error) {
      name.say(words(error));
    }
    save.disabled = false;
    return undefined;
  };
  const leave = options.onSignOut && make('button', { class: 'press', type: 'button', onclick: () => { sheet.close(); options.onSignOut(); } }, icon('leave'), 'Sign out');
  const sheet = new Sheet(view, 'You',
    make('div', { class: 'card' }, face, make('span', { class: 'names' }, make('b', {}, nameOf(view.me)), view.me.name ? make('span', { class: 'sub' }, client.user) : null)),
    make('form', { novalidate: true, onsubmit: submit }, name.nodes, make('div', { class: 'deeds' }, leave, save)),
    options.links?.length > 0 && make('p', { class: 'links' }, options.links.map(({ href, text }) => make('a', { href }, text))));
  name.input.focus();
}
