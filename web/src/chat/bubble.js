// One message.

import { make, setAttr, setText } from '../lib/dom.js';
import { setTick, tickMark } from '../lib/ticks.js';
import { clockTime, fullTime } from '../lib/time.js';
import { attachmentView } from './attachment.js';
import { nameOf, words } from './people.js';
import { isOnlyEmoji, textNodes } from './text.js';

export class Bubble {
  constructor(log, message) {
    this.log = log;
    this.message = message;
    const { own, body } = message;
    this.time = make('time');
    this.ticks = own ? tickMark(message.tick) : null;
    this.attachment = attachmentView(log, message);
    this.why = null;
    this.el = make('li', { class: 'msg' },
      make('span', { class: 'quiet' }, own ? 'You: ' : `${nameOf(log.conversation.peer)}: `),
      this.attachment?.el,
      body ? make('span', { class: 'body', dir: 'auto' }, textNodes(body)) : null,
      make('span', { class: 'foot' }, this.time, this.ticks));
    this.el.classList.toggle('own', own);
    this.el.classList.toggle('big', !this.attachment && isOnlyEmoji(body));
    this.el.classList.toggle('with-file', !!this.attachment);
    this.el.classList.toggle('bare', !!this.attachment?.bare && !body);
  }

  /** Its place in a group: consecutive messages of one user are grouped. */
  place({ first, last }) {
    if (first !== undefined) this.el.classList.toggle('first', first);
    if (last !== undefined) this.el.classList.toggle('last', last);
  }

  draw() {
    const { message } = this;
    if (this.ts !== message.ts) {
      this.ts = message.ts;
      setText(this.time, clockTime(message.ts));
      setAttr(this.time, 'datetime', new Date(message.ts).toISOString());
      setAttr(this.time, 'title', fullTime(message.ts));
    }
    if (this.ticks) setTick(this.ticks, message.tick);
    this.attachment?.draw();
    if ((message.tick === 'failed') !== !!this.why) this.drawFailure();
    if (this.why) setText(this.reason, `Not sent. ${words(message.error)}`);
  }

  drawFailure() {
    const { message, log } = this;
    const failed = message.tick === 'failed';
    this.el.classList.toggle('failed', failed);
    this.why?.remove();
    this.why = null;
    if (!failed) return;
    this.reason = make('span');
    this.why = make('div', { class: 'why', role: 'alert' }, this.reason,
      make('span', { class: 'ways' },
        make('button', { type: 'button', onclick: () => log.conversation.retry(message) }, 'Try again'),
        make('button', { type: 'button', onclick: () => log.conversation.discard(message) }, 'Discard')));
    this.el.append(this.why);
  }

  destroy() { this.attachment?.destroy(); }
}
