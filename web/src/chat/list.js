// The list of conversations: the peer, the last message, its time, and the unread count.

import { arrange, make, plural, setAttr, setBadge, setText } from '../lib/dom.js';
import { makeFace, setFace } from '../lib/face.js';
import { icon } from '../lib/icons.js';
import { setTick, tickMark } from '../lib/ticks.js';
import { fullTime, shortTime } from '../lib/time.js';
import { nameOf } from './people.js';

export class ListPane {
  constructor(view) {
    this.view = view;
    this.entries = new Map();
    this.more = true;
    this.meFace = makeFace();
    this.meName = make('span', { class: 'sub' });
    this.ul = make('ul', { class: 'entries', 'aria-label': 'Chats' });
    this.scroller = make('div', { class: 'scroller', onscroll: () => this.reach() }, this.ul);
    this.empty = make('div', { class: 'empty' },
      make('p', {}, 'No chats yet.'),
      make('button', { class: 'press strong', type: 'button', onclick: () => view.newChat() }, 'Start a chat'));
    this.el = make('nav', { class: 'list', 'aria-label': 'Chats' }, this.head(), this.scroller, this.empty);
    this.ul.addEventListener('keydown', (event) => this.key(event));
  }

  head() {
    const { view } = this;
    const me = make('button', { class: 'me', type: 'button', title: 'Your profile', onclick: () => view.profile() },
      this.meFace, make('span', { class: 'names' }, make('span', { class: 'title' }, 'Chats'), this.meName));
    return make('div', { class: 'head' }, me, view.options.tools,
      make('button', { class: 'round', type: 'button', title: 'New chat (Ctrl+K)', 'aria-label': 'New chat', onclick: () => view.newChat() }, icon('plus')));
  }

  shown() {
    const { client, options, peer } = this.view;
    const always = new Set(options.peers ?? []);
    const known = client.conversations.filter((c) => c.lastSeq > 0 || c.messages.length > 0 || always.has(c.peer.userId) || c.peer.userId === peer);
    const there = new Set(known.map((c) => c.peer.userId));
    const rest = [...always].filter((user) => user !== client.user && !there.has(user)).map((user) => client.conversation(user));
    return [...known, ...rest];
  }

  draw() {
    const { view } = this;
    setFace(this.meFace, view.me);
    setText(this.meName, nameOf(view.me));
    const shown = this.shown();
    arrange(this.ul, shown.map((c) => this.entry(c).li));
    for (const [c, entry] of this.entries) if (!entry.li.isConnected) this.entries.delete(c);
    this.rove(shown);
    const ready = view.client.caughtUp || shown.length > 0;
    this.empty.hidden = shown.length > 0 || !ready;
    this.scroller.hidden = shown.length === 0;
    setAttr(this.ul, 'aria-busy', !ready);
  }

  entry(c) {
    let e = this.entries.get(c);
    if (!e) this.entries.set(c, e = this.makeEntry(c));
    this.drawEntry(e, c);
    return e;
  }

  makeEntry(c) {
    const e = {
      face: makeFace(), name: make('span', { class: 'name', dir: 'auto' }), time: make('time'), here: make('span', { class: 'quiet' }),
      ticks: tickMark('sent'), preview: make('span', { class: 'preview', dir: 'auto' }), badge: make('span', { class: 'badge' }),
    };
    e.button = make('button', { class: 'entry', type: 'button', onclick: () => this.view.open(c.peer.userId) },
      e.face,
      make('span', { class: 'mid' },
        make('span', { class: 'line' }, e.name, e.here, e.time),
        make('span', { class: 'line' }, e.ticks, e.preview, e.badge)));
    e.li = make('li', {}, e.button);
    return e;
  }

  drawEntry(e, c) {
    const online = this.view.client.state === 'online' && !!c.presence?.online;
    setFace(e.face, c.peer, online);
    setText(e.name, nameOf(c.peer));
    setText(e.here, online ? '(online)' : '');
    setText(e.time, c.lastTs ? shortTime(c.lastTs) : '');
    setAttr(e.time, 'datetime', c.lastTs ? new Date(c.lastTs).toISOString() : null);
    setAttr(e.time, 'title', c.lastTs ? fullTime(c.lastTs) : null);
    const tick = c.typing ? null : c.lastTick;
    setAttr(e.ticks, 'hidden', !tick);
    if (tick) setTick(e.ticks, tick);
    setText(e.preview, c.typing ? 'typing…' : c.preview || (c.lastSeq || c.messages.length ? '' : 'Say hello'));
    e.preview.classList.toggle('live', c.typing);
    setBadge(e.badge, c.unread);
    e.button.classList.toggle('unread', c.unread > 0);
    setAttr(e.button, 'aria-current', c.peer.userId === this.view.peer ? 'true' : null);
  }

  /** The list is one Tab stop; arrow keys move within it. */
  rove(shown) {
    const held = shown.find((c) => this.entries.get(c).button === document.activeElement);
    const stop = held ?? shown.find((c) => c.peer.userId === this.view.peer) ?? shown[0];
    for (const c of shown) setAttr(this.entries.get(c).button, 'tabindex', c === stop ? '0' : '-1');
  }

  key(event) {
    const buttons = [...this.ul.querySelectorAll('.entry')];
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = buttons[Math.max(0, Math.min(buttons.length - 1, to))];
    for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
    next.focus();
    next.scrollIntoView({ block: 'nearest' });
  }

  focus(peer) {
    const entry = [...this.entries].find(([c]) => c.peer.userId === peer)?.[1];
    (entry?.button ?? this.ul.querySelector('.entry') ?? this.el.querySelector('button'))?.focus();
  }

  /** Fetches the next page near the end of the list. */
  async reach() {
    const { scroller, view } = this;
    const near = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 400;
    if (!near || !this.more || this.loading || view.client.state !== 'online') return;
    this.loading = true;
    const before = view.client.conversations.length;
    try {
      ({ more: this.more } = await view.client.loadInbox());
      const added = view.client.conversations.length - before;
      if (added > 0) view.say(`${plural(added, 'more chat')} listed`);
    } catch { /* the next scroll asks again */ }
    this.loading = false;
    view.soon();
  }
}
