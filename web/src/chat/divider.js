// The line before the first message that was not seen when it arrived. It stays while the chat is open, even after these
// messages are read, and moves when later messages are missed.

import { make, plural, setText } from '../lib/dom.js';

const PAGES = 4;

export class Divider {
  constructor() {
    this.before = null;
    this.count = 0;
    this.isNew = false;
    this.words = make('span');
    this.el = make('li', { class: 'note divider' }, this.words);
  }

  /** When a chat with unread messages is opened: loads back to the first of them, if it is not too far away. */
  async find(conversation) {
    for (let page = 0; page < PAGES && !this.isFound(conversation); page += 1) await conversation.loadEarlier();
  }

  /** Whether the first unread message is among those loaded (and is marked now), or cannot be. */
  isFound(conversation) {
    const wanted = conversation.unread;
    if (!wanted || this.before) return true;
    const messages = conversation.messages.filter((m) => !m.own);
    this.mark(messages.at(-wanted));
    return !!this.before || !conversation.hasEarlier;
  }

  mark(message) {
    if (!message) return;
    this.before = message;
    this.isNew = true;
  }

  /** A message arrived unseen. Earlier unseen ones that are not read yet stay below the line. */
  missed(message) {
    if (!this.before || !this.isNew) this.mark(message);
  }

  /** The number of unread messages; it stays when they are read. */
  update(conversation) {
    if (!this.before) return;
    const messages = conversation.messages;
    const at = messages.indexOf(this.before);
    if (at < 0) { this.clear(); return; }
    if (this.isNew) this.count = messages.slice(at).filter((m) => !m.own).length;
    if (conversation.unread === 0) this.isNew = false;
  }

  seen() { this.isNew = false; }
  clear() { this.before = null; this.isNew = false; }

  draw() {
    setText(this.words, plural(this.count, 'unread message'));
    return this.el;
  }
}
