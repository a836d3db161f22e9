// One conversation: its header, its messages and the composer.

import { make, setAttr, setBadge, setText } from '../lib/dom.js';
import { makeFace, setFace } from '../lib/face.js';
import { icon } from '../lib/icons.js';
import { tickMark } from '../lib/ticks.js';
import { Composer } from './composer.js';
import { Log } from './log.js';
import { nameOf, presenceLine } from './people.js';

export class TalkPane {
  constructor(view) {
    this.view = view;
    this.log = null;
    this.composer = new Composer(view, this);
    this.face = makeFace();
    this.title = make('h2', { class: 'title', tabindex: '-1', dir: 'auto' });
    this.sub = make('span', { class: 'sub' });
    this.badge = make('span', { class: 'badge' });
    this.back = make('button', { class: 'round back', type: 'button', onclick: () => view.open(null) },
      icon('back'), make('span', { class: 'quiet' }, 'Back to all chats'), this.badge);
    this.head = make('header', { class: 'head' }, this.back, this.face, make('span', { class: 'names' }, this.title, this.sub));
    this.place = make('div', { class: 'place' });
    this.body = make('div', { class: 'inner', hidden: true }, this.head, this.place, this.composer.el);
    this.welcome = this.makeWelcome();
    this.el = make('section', { class: 'talk', 'aria-label': 'Conversation' }, this.body, this.welcome);
    this.composer.takeDrops(this.el);
  }

  /** Shown beside the list while no chat is open. */
  makeWelcome() {
    const { options } = this.view;
    return make('div', { class: 'welcome' },
      make('span', { class: 'logo' }, icon('logo')),
      make('p', { class: 'big' }, 'Choose a chat'),
      make('ul', { 'aria-label': 'What the ticks mean' },
        [['sent', 'stored on the server'], ['delivered', 'on the other’s device'], ['read', 'read']].map(([tick, words]) => make('li', {}, tickMark(tick), words))),
      options.links?.length > 0 && make('p', { class: 'links' }, options.links.map(({ href, text }) => make('a', { href }, text))));
  }

  show(conversation) {
    if (conversation && conversation === this.conversation) return;
    this.composer.leave(this.conversation);
    this.log?.destroy();
    this.conversation = conversation;
    this.log = conversation && new Log(this.view, conversation);
    this.place.replaceChildren(...(this.log ? [this.log.el] : []));
    this.body.hidden = !conversation;
    this.welcome.hidden = !!conversation;
    if (conversation) this.composer.enter(conversation);
  }

  noteMessage(message, conversation) {
    if (conversation === this.conversation) this.log?.noteMessage(message);
  }

  draw() {
    const c = this.conversation;
    if (!c) { setAttr(this.el, 'aria-label', 'Conversation'); return; }
    const { client } = this.view;
    const [line, live] = presenceLine(c, client.state === 'online');
    setFace(this.face, c.peer, client.state === 'online' && !!c.presence?.online);
    setText(this.title, nameOf(c.peer));
    setAttr(this.title, 'title', c.peer.userId);
    setText(this.sub, line);
    this.sub.classList.toggle('live', live);
    setBadge(this.badge, client.unread - c.unread, 'unread message');
    setAttr(this.el, 'aria-label', `Conversation with ${nameOf(c.peer)}`);
    this.composer.draw(c);
    this.log.draw();
  }

  /** The user sent a message: scroll to it, and count everything above as read. */
  sending() { this.log?.jump({ answered: true }); }

  focusComposer() { this.composer.focus(); }
  focusHead() { this.title.focus({ preventScroll: true }); }
  escape() { return this.composer.escape(); }

  destroy() { this.composer.leave(this.conversation); this.log?.destroy(); }
}
