// The chat as a component: everything is drawn inside `root`, and the client is the caller's. A page may have several.
// The layout follows the width of the box, not of the window (container queries in chat.css).

import { make, oncePerFrame, setAttr, setText } from '../lib/dom.js';
import { Banner } from './banner.js';
import { newChatSheet, profileSheet } from './sheets.js';
import { ListPane } from './list.js';
import { TalkPane } from './talk.js';

/** From this width on the list and the conversation are side by side. chat.css has the same number. */
const TWO_PANES = 720;

/**
 * @param {HTMLElement} root
 * @param {import('@bluetick/client').Client} client connected and closed by the caller
 * @param {object} [options]
 * @param {boolean} [options.compact] one pane as on a phone, at any width
 * @param {string} [options.initialPeer] the chat to begin with
 * @param {string[]} [options.peers] always listed, written to or not
 * @param {() => boolean} [options.readable] false if the chat is not visible although the page is
 * @param {(peer: string|null) => void} [options.onOpen] the user opened or left a chat
 * @param {() => void} [options.onSignOut] offers "sign out" in the profile
 * @param {string[]} [options.suggest] users offered for a new chat
 * @param {Node[]} [options.tools] further buttons for the head of the list
 * @param {{href: string, text: string}[]} [options.links] links to other pages
 * @returns {{open(peer: string|null): void, newChat(): void, escape(): boolean, destroy(): void}}
 */
export function mountChat(root, client, options = {}) {
  const view = new View(root, client, options);
  return {
    open: (peer) => view.open(peer ?? null, { quiet: true }),
    newChat: () => view.newChat(),
    escape: () => view.escape(),
    destroy: () => view.destroy(),
  };
}

class View {
  constructor(root, client, options) {
    this.client = client;
    this.options = options;
    this.peer = null;
    this.sheet = null;
    this.localUrls = new WeakMap();
    this.urls = new Set();
    this.me = { userId: client.user, name: null, avatarUrl: null };
    this.soon = oncePerFrame(() => this.draw());
    this.banner = new Banner(this);
    this.list = new ListPane(this);
    this.talk = new TalkPane(this);
    this.panes = make('div', { class: 'panes' }, this.list.el, this.talk.el);
    this.said = make('div', { class: 'quiet', role: 'status' });
    this.el = make('div', { class: 'chat', 'data-pane': 'list', 'data-compact': !!options.compact }, this.banner.el, this.panes, this.said);
    root.append(this.el);
    this.listen();
    if (options.initialPeer) this.open(options.initialPeer, { quiet: true });
    else this.draw();
  }

  listen() {
    const { client } = this;
    const on = (target, type, handler) => {
      target.addEventListener(type, handler);
      return () => target.removeEventListener(type, handler);
    };
    this.stops = [
      ...['change', 'state', 'caughtUp', 'ticks', 'typing', 'presence', 'sent', 'failed', 'reset'].map((name) => client.on(name, this.soon)),
      client.on('message', (message, conversation) => { this.talk.noteMessage(message, conversation); this.soon(); }),
      client.on('caughtUp', () => this.loadProfile()),
      on(document, 'visibilitychange', this.soon),
      on(window, 'focus', this.soon),
      on(this.el, 'keydown', (event) => this.key(event)),
    ];
    // "Today" turns into "Yesterday", and "last seen" ages, without a frame from the server.
    const timer = setInterval(this.soon, 30_000);
    const sizes = new ResizeObserver(this.soon);
    sizes.observe(this.el);
    this.stops.push(() => clearInterval(timer), () => sizes.disconnect());
    if (client.state === 'online') this.loadProfile();
  }

  get wide() { return !this.options.compact && this.el.clientWidth >= TWO_PANES; }

  /** Whether messages count as seen: the page is visible, and so is the chat, as far as the caller knows. */
  get seen() { return document.visibilityState === 'visible' && (this.options.readable?.() ?? true); }

  async loadProfile() {
    if (this.asked) return;
    this.asked = true;
    try { Object.assign(this.me, await this.client.profile()); } catch { this.asked = false; }
    this.soon();
  }

  /** `quiet`: the caller, not the user, opens the chat; the address and the focus do not change. */
  open(peer, { quiet = false } = {}) {
    if (peer === this.client.user) return;
    const left = this.peer;
    this.peer = peer;
    this.el.dataset.pane = peer ? 'talk' : 'list';
    this.talk.show(peer ? this.client.conversation(peer) : null);
    this.draw();
    if (quiet) return;
    this.options.onOpen?.(peer);
    if (!peer) this.list.focus(left);
    else if (this.wide) this.talk.focusComposer();
    else this.talk.focusHead();
  }

  newChat() { newChatSheet(this); }
  profile() { profileSheet(this); }

  /** Announces a text to screen readers. */
  say(text) { setText(this.said, ''); setText(this.said, text); }

  /** The object URL of a local file, kept as long as the view. */
  localUrl(message, file) {
    if (file) {
      const url = URL.createObjectURL(file);
      this.urls.add(url);
      this.localUrls.set(message, url);
    }
    return this.localUrls.get(message) ?? null;
  }

  /** Shows a dialog. It takes the keyboard, and everything under it is inert. */
  cover(sheet) {
    this.sheet?.close();
    this.sheet = sheet;
    this.returnTo = document.activeElement;
    this.panes.inert = true;
    this.el.append(sheet.el);
  }
  uncover(sheet) {
    if (this.sheet !== sheet) return;
    sheet.el.remove();
    this.sheet = null;
    this.panes.inert = false;
    if (this.returnTo?.isConnected) this.returnTo.focus({ preventScroll: true });
  }

  key(event) {
    if (event.defaultPrevented || event.isComposing) return;
    if (event.key === 'Escape' && this.escape()) event.preventDefault();
  }

  /** Goes back one step: closes the dialog, discards the chosen files, or leaves the chat. */
  escape() {
    if (this.sheet) this.sheet.close();
    else if (this.talk.escape()) return true;
    else if (this.peer) this.open(null);
    else return false;
    return true;
  }

  draw() {
    this.banner.draw();
    this.list.draw();
    this.talk.draw();
    setAttr(this.el, 'data-offline', this.client.state !== 'online');
  }

  destroy() {
    for (const stop of this.stops) stop();
    this.soon.stop();
    this.sheet?.close();
    this.banner.destroy();
    this.talk.destroy();
    for (const url of this.urls) URL.revokeObjectURL(url);
    this.el.remove();
  }
}
