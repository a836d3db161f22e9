// The messages of one conversation. Only a window of them is in the DOM (a few hundred rows at most). It moves over the
// loaded messages as the user scrolls, and the visible rows keep their place.

import { arrange, make, oncePerFrame, setAttr, setBadge, setText } from '../lib/dom.js';
import { icon } from '../lib/icons.js';
import { dayName, dayStart } from '../lib/time.js';
import { Bubble } from './bubble.js';
import { Divider } from './divider.js';
import { nameOf } from './people.js';

const STEP = 60;        // rows added at once
const MOST = 300;       // rows in the DOM
const NEAR = 700;       // pixels from an end at which more rows are fetched
const IN_SIGHT = 80;    // pixels from the end that still count as the end
const GROUP_MS = 5 * 60_000;

export class Log {
  constructor(view, conversation) {
    this.view = view;
    this.conversation = conversation;
    this.bubbles = new Map();
    this.days = new Map();
    this.rows = [];
    this.from = null;      // the first message in the DOM; null: not decided yet
    this.upTo = null;      // the last one; null: the end
    this.follow = true;
    this.lastTop = 0;
    this.placed = false;
    this.drawSoon = oncePerFrame(() => this.draw());   // scrolling redraws nothing else
    this.divider = new Divider();
    this.build();
    this.lazy = new IntersectionObserver((seen) => this.come(seen), { root: this.scroller, rootMargin: '500px 0px' });
    this.sizes = new ResizeObserver(() => this.settle());
    this.sizes.observe(this.scroller);
    this.sizes.observe(this.ol);
    this.ready = conversation.loaded && this.divider.isFound(conversation);
    if (!this.ready) this.load();
  }

  build() {
    this.top = make('li', { class: 'note' });
    this.dots = make('li', { class: 'dots', 'aria-hidden': 'true' }, make('i'), make('i'), make('i'));
    this.ol = make('ol', { class: 'rows' });
    this.scroller = make('div', { class: 'scroller', role: 'log', 'aria-live': 'polite', 'aria-label': 'Messages', tabindex: '0', onscroll: () => this.scrolled() }, this.ol);
    this.fresh = make('span', { class: 'badge' });
    this.down = make('button', { class: 'round jump', type: 'button', hidden: true, onclick: () => this.jump() }, icon('down'), this.fresh);
    this.el = make('div', { class: 'log' }, this.scroller, this.down);
  }

  async load() {
    setAttr(this.scroller, 'aria-busy', 'true');
    try {
      await this.conversation.load();
      await this.divider.find(this.conversation);
    } catch { /* offline: it comes with the next connection */ }
    setAttr(this.scroller, 'aria-busy', null);
    this.ready = true;
    this.view.soon();
  }

  // ---- which messages, and the rows between them ---------------------------------------------------------------

  stretch(messages) {
    let start = this.from ? messages.indexOf(this.from) : -1;
    if (start < 0) start = Math.max(0, messages.length - STEP);
    let end = this.upTo ? messages.indexOf(this.upTo) + 1 : 0;
    if (end <= start) { end = messages.length; this.upTo = null; }
    // While the end is followed, rows far above are dropped.
    if (this.follow && !this.upTo && end - start > MOST) start = end - MOST / 2;
    const marked = this.divider.before ? messages.indexOf(this.divider.before) : -1;
    if (!this.placed && marked >= 0 && marked < start) start = Math.max(0, marked - 10);
    this.from = messages[start] ?? null;
    return [start, end];
  }

  makeRows(messages, start, end) {
    const rows = [];
    if (start === 0) rows.push(this.drawTop(messages));
    let last = null;
    let lastBubble = null;
    for (let at = start; at < end; at += 1) {
      const message = messages[at];
      const newDay = !last || dayStart(last.ts) !== dayStart(message.ts);
      if (newDay) rows.push(this.day(message.ts));
      const marked = message === this.divider.before;
      if (marked) rows.push(this.divider.draw());
      const joined = !newDay && !marked && last.sender === message.sender && message.ts - last.ts < GROUP_MS;
      const bubble = this.bubble(message, this.placed && at === messages.length - 1);
      lastBubble?.place({ last: !joined });
      bubble.place({ first: !joined });
      rows.push(bubble.el);
      last = message;
      lastBubble = bubble;
    }
    lastBubble?.place({ last: true });
    if (this.conversation.typing && !this.upTo) rows.push(this.dots);
    return rows;
  }

  drawTop(messages) {
    const c = this.conversation;
    const { client } = this.view;
    const words = c.loading || c.hasEarlier ? 'Loading…'
      : messages.length ? `This is where your chat with ${nameOf(c.peer)} begins.`
        : c.loaded || (client.caughtUp && !c.lastSeq) ? 'No messages yet. Say hello.'
          : client.state === 'online' ? 'Loading…' : 'Messages will be here when you are back online.';
    setText(this.top, words);
    this.top.classList.toggle('busy', words === 'Loading…');
    return this.top;
  }

  day(ts) {
    const key = dayStart(ts);
    if (!this.days.has(key)) this.days.set(key, make('li', { class: 'note day' }, make('span')));
    const row = this.days.get(key);
    setText(row.firstElementChild, dayName(ts));
    return row;
  }

  /** `fresh`: it arrives while the chat is open, so it is animated. */
  bubble(message, fresh) {
    let bubble = this.bubbles.get(message);
    if (!bubble) {
      this.bubbles.set(message, bubble = new Bubble(this, message));
      bubble.el.classList.toggle('fresh', fresh);
    }
    bubble.draw();
    return bubble;
  }

  // ---- drawing --------------------------------------------------------------------------------------------------

  draw() {
    this.noteScroll();
    const { conversation: c } = this;
    const messages = c.messages;
    this.divider.update(c);
    const [start, end] = this.stretch(messages);
    this.more = { above: start > 0 || c.hasEarlier, below: end < messages.length };
    const held = this.follow ? [] : this.inSight();
    const rows = this.makeRows(messages, start, end);
    if (rows.length !== this.rows.length || rows.some((row, at) => row !== this.rows[at])) this.put(rows, held);
    // Nothing is shown until the first unread message is known: the log would jump.
    this.scroller.classList.toggle('unplaced', c.loaded && !this.ready);
    if (!this.placed && this.ready) { this.placed = true; this.pin(); }
    this.drawJump();
    this.readIfSeen();
    // A first page that does not fill the box cannot be scrolled, so no scroll event would fetch the next.
    if (this.placed) this.reach(messages, start, end);
  }

  /** Puts the rows into the DOM. The visible rows keep their place, or the end stays visible. */
  put(rows, held) {
    arrange(this.ol, rows);
    this.rows = rows;
    for (const [message, bubble] of this.bubbles) if (!bubble.el.isConnected) { bubble.destroy(); this.bubbles.delete(message); }
    const anchor = held.find(({ row }) => row.isConnected);
    if (this.follow) this.pin();
    else if (anchor) this.scrollTo(anchor.row.offsetTop - anchor.offset);
  }

  /** The rows from the first visible one on, with their positions. Taken before any change, since neighbours affect a row's height. */
  inSight() {
    const top = this.scroller.scrollTop;
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const row = this.rows[middle];
      if (row.offsetTop + row.offsetHeight <= top) low = middle + 1;
      else high = middle;
    }
    // These appear, vanish or move: they are no anchors.
    const loose = [this.top, this.dots, this.divider.el];
    return this.rows.slice(low, low + 20).filter((row) => !loose.includes(row)).map((row) => ({ row, offset: row.offsetTop - top }));
  }

  scrollTo(top) {
    this.scroller.scrollTop = top;
    this.lastTop = this.scroller.scrollTop;
  }

  /** Scrolls to the end, but not past the first unread message. */
  pin() {
    const { scroller } = this;
    const end = scroller.scrollHeight - scroller.clientHeight;
    const unread = this.divider.isNew ? this.divider.el.offsetTop - 24 : end;
    this.scrollTo(Math.min(end, Math.max(0, unread)));
    this.follow = end - this.lastTop < IN_SIGHT;
  }

  /** The box or its content changed its size: a keyboard opened, a picture was loaded. */
  settle() {
    this.noteScroll();
    if (this.follow && this.placed) this.scrollTo(this.scroller.scrollHeight);
    this.drawJump();
    this.readIfSeen();
  }

  get toEnd() { return this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight; }

  scrolled() {
    this.noteScroll();
    this.drawSoon();
  }

  /** Whether to follow the end, by the scroll position. The scroll event may come after the next draw. */
  noteScroll() {
    const { scrollTop, clientHeight } = this.scroller;
    if (clientHeight) {
      if (this.toEnd < IN_SIGHT && !this.upTo) this.follow = true;
      else if (scrollTop < this.lastTop - 1 || this.upTo) this.follow = false;
    }
    this.lastTop = scrollTop;
  }

  /** Fetches the rows that the user is about to scroll to. */
  reach(messages, start, end) {
    const { scroller, conversation: c } = this;
    if (!scroller.clientHeight) return;
    if (scroller.scrollTop < NEAR && start > 0) {
      this.follow &&= scroller.scrollHeight <= scroller.clientHeight + IN_SIGHT;
      this.from = messages[Math.max(0, start - STEP)];
      if (end - start + STEP > MOST) this.upTo = messages[Math.max(0, start - STEP) + MOST - 1];
      this.view.soon();
    } else if (scroller.scrollTop < NEAR && c.hasEarlier && !c.loading && this.view.client.state === 'online') {
      this.loadEarlier();
    } else if (this.upTo && this.toEnd < NEAR) {
      const next = Math.min(messages.length, end + STEP);
      this.upTo = next === messages.length ? null : messages[next - 1];
      if (next - start > MOST) this.from = messages[next - MOST];
      this.view.soon();
    }
  }

  async loadEarlier() {
    if (this.loadingEarlier) return;
    this.loadingEarlier = true;
    setAttr(this.scroller, 'aria-busy', 'true');
    try { await this.conversation.loadEarlier(); } catch { /* the next scroll asks again */ }
    setAttr(this.scroller, 'aria-busy', null);
    this.loadingEarlier = false;
    this.view.soon();
  }

  /** Scrolls to the newest message. `answered`: the user wrote, so they have seen what is above. */
  jump({ answered = false } = {}) {
    if (answered) this.divider.clear();
    this.divider.seen();
    this.follow = true;
    if (this.upTo) { this.upTo = null; this.from = null; }
    this.view.soon.now();
    this.pin();
  }

  drawJump() {
    const away = this.placed && (!this.follow || !!this.upTo) && this.toEnd > IN_SIGHT;
    this.down.hidden = !away;
    if (!away) return;
    const { unread } = this.conversation;
    setBadge(this.fresh, unread, 'new message');
    setAttr(this.down, 'aria-label', unread ? `To the newest message, ${unread} new` : 'To the newest message');
  }

  // ---- reading --------------------------------------------------------------------------------------------------

  /** Whether the end of this conversation is visible to the user now. */
  get isSeen() {
    return this.placed && this.follow && !this.upTo && this.view.seen && this.el.getClientRects().length > 0 && this.toEnd < IN_SIGHT;
  }

  readIfSeen() {
    if (this.conversation.unread > 0 && this.isSeen) this.conversation.read();
  }

  /** A message arrived. If it was not seen, the divider marks where the new ones begin. */
  noteMessage(message) {
    // Before the log is ready nothing is visible; unread messages are found when it is.
    if (message.own || !this.ready) return;
    if (!this.view.client.caughtUp || !this.isSeen) this.divider.missed(message);
  }

  come(seen) {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      this.lazy.unobserve(target);
      target.dispatchEvent(new Event('near'));
    }
  }

  destroy() {
    this.drawSoon.stop();
    this.sizes.disconnect();
    this.lazy.disconnect();
    for (const bubble of this.bubbles.values()) bubble.destroy();
    this.el.remove();
  }
}
