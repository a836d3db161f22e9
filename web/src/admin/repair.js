// The only change that this page makes: it recounts a user's unread messages, after a confirmation, and shows the result.

import { make, plural, setText } from '../lib/dom.js';
import { exact } from './format.js';

export function repairDialog(api, onDone) {
  let user = null;
  const heading = make('h2', { id: 'h-repair' });
  const words = make('p', {}, 'This recounts the unread messages from the stored messages. It deletes nothing and notifies nobody.');
  const said = make('div', { class: 'said', role: 'status' });
  const go = make('button', { class: 'press strong', type: 'button', onclick: () => run() }, 'Repair');
  const close = make('button', { class: 'press', type: 'button', onclick: () => element.close() }, 'Cancel');
  const element = make('dialog', { class: 'dialog', 'aria-labelledby': 'h-repair' }, heading, words, said, make('div', { class: 'buttons' }, close, go));

  async function run() {
    go.disabled = true;
    try {
      said.replaceChildren(...told(await api.post(`users/${encodeURIComponent(user)}/repair`)));
      go.hidden = true;
      setText(close, 'Done');
      close.focus();
      onDone();
    } catch (error) {
      said.replaceChildren(make('p', { class: 'wrong' }, error.message));
    } finally {
      go.disabled = false;
    }
  }

  function ask(whom) {
    user = whom;
    setText(heading, `Repair ${user}?`);
    setText(close, 'Cancel');
    go.hidden = false;
    said.replaceChildren();
    element.showModal();
  }
  return { element, ask };
}

function told({ conversations }) {
  const wrong = conversations.filter(({ before, after }) => before !== after);
  const counted = make('p', {}, `${plural(conversations.length, 'conversation')} counted, ${wrong.length === 0 ? 'all were right' : `${exact(wrong.length)} put right`}.`);
  if (wrong.length === 0) return [counted];
  return [counted, make('ul', {}, wrong.map(({ conversation_id: id, before, after }) => make('li', {}, `${id}: ${exact(before)} → ${exact(after)}`)))];
}
