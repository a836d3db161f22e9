// The line before the first message that was not seen when it came. It stays while the person looks, also after these
// messages are read, and moves when others were missed later.

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

  /** On opening a chat with unread messages: loads back to the first of them, if that is not too far away. */
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

  /** A message came that nobody saw come. Those that were missed before and are not read yet stay above it. */
  missed(message) {
    if (!this.before || !this.isNew) this.mark(message);
  }

  /** Counts while they are unread; once read the number stands. */
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
