// The form for the admin key.

import { make, setAttr, setText } from '../lib/dom.js';
import { icon } from '../lib/icons.js';

/** The characters that an HTTP header can carry. */
const POSSIBLE = /^[\x21-\x7e]+$/;

/** @param {import('./api.js').Api} api @param {() => void} onOpen */
export function gate(api, onOpen) {
  const input = make('input', {
    class: 'field', id: 'key', type: 'password', autocomplete: 'off', required: true, 'aria-describedby': 'key-wrong key-where', spellcheck: 'false',
  });
  const wrong = make('p', { class: 'wrong', id: 'key-wrong', role: 'alert' });
  const button = make('button', { class: 'press strong' }, 'Open');
  const form = make('form', { class: 'card', onsubmit: (event) => { event.preventDefault(); open(); } },
    make('span', { class: 'logo' }, icon('logo')), make('h2', {}, 'Admin key'),
    make('p', { id: 'key-where' }, 'This page needs the server\'s admin key. Without one of your own in ',
      make('code', {}, '[admin]'), ', it is in the data directory: ', make('code', {}, 'bluetick-data/admin.key'), '.'),
    make('label', { for: 'key' }, 'Key'), input, wrong, button,
    make('p', { class: 'fine' }, 'Kept in this tab until it is closed or locked, and sent to this server only.'));
  const element = make('div', { class: 'gate' }, form);

  function say(words) {
    setText(wrong, words);
    setAttr(input, 'aria-invalid', words ? 'true' : null);
  }

  async function open() {
    const key = input.value.trim();
    if (!POSSIBLE.test(key)) return say('A key is one word of printable ASCII characters.');
    button.disabled = true;
    api.setKey(key);
    try {
      await api.get('info');
      input.value = '';
      say('');
      onOpen();
    } catch (error) {
      api.setKey(null);
      say(error.status === 401 ? 'This is not the key of this server.' : `That did not work: ${error.message}.`);
      input.select();
    } finally {
      button.disabled = false;
    }
  }

  const show = (words = '') => {
    element.hidden = false;
    say(words);
    input.focus();
  };
  return { element, show, hide: () => { element.hidden = true; } };
}
