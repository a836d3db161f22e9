// The connection banner: why there is no connection, when the next try is, and how many messages wait.

import { make, plural, setAttr, setText } from '../lib/dom.js';

const FINAL = {
  replaced: 'This chat was opened somewhere else with the same device.',
  too_many_sessions: 'You are signed in at too many places at once.',
  erased: 'This account was erased.',
  origin_refused: 'The server does not accept this page’s address.',
};

export class Banner {
  constructor(view) {
    this.view = view;
    this.text = make('span', { role: 'status' });
    this.count = make('span', { 'aria-hidden': 'true' });
    this.button = make('button', { class: 'now', type: 'button', onclick: () => view.client.connect() });
    this.queue = make('span', { class: 'queue', role: 'status' });
    this.el = make('div', { class: 'banner', hidden: true }, make('span', {}, this.text, this.count), this.button, this.queue);
    this.since = Date.now();
    this.timer = 0;
  }

  draw() {
    const { state } = this.view.client;
    if (state !== this.state) {
      // A first connect is quick: the banner would only flicker.
      if (state === 'connecting' && !this.shown) this.since = Date.now();
      this.state = state;
    }
    const [text, count, button] = this.words();
    this.shown = !!text;
    setAttr(this.el, 'hidden', !text);
    setText(this.text, text);
    setText(this.count, count);
    setText(this.button, button);
    setText(this.queue, text ? this.queued() : '');
    this.queue.hidden = !this.queue.textContent;
    this.button.hidden = !button;
    setAttr(this.el, 'data-kind', state === 'connecting' ? 'calm' : 'warn');
    this.plan(state);
  }

  words() {
    const { client } = this.view;
    if (client.state === 'online' || client.state === 'closed') return ['', '', ''];
    switch (client.state) {
      case 'connecting':
        return this.shown || Date.now() - this.since > 900 ? ['Connecting…', '', ''] : ['', '', ''];
      case 'waiting': {
        const seconds = Math.max(0, Math.ceil(((client.retryAt ?? 0) - Date.now()) / 1000));
        return ['No connection.', seconds > 0 ? ` Trying again in ${seconds} s` : ' Trying again…', 'Try now'];
      }
      default:
        return [FINAL[client.reason?.code] ?? 'You are offline.', '', FINAL[client.reason?.code] ? 'Connect here' : 'Connect'];
    }
  }

  queued() {
    // Waiting messages are last, so a conversation whose last message does not wait has no waiting message.
    const queues = this.view.client.conversations.filter((c) => c.lastTick === 'waiting' || c.lastTick === 'failed');
    const waiting = queues.reduce((sum, c) => sum + c.messages.filter((m) => m.tick === 'waiting').length, 0);
    return waiting ? `${plural(waiting, 'message')} waiting.` : '';
  }

  /** Only the countdown needs a redraw every second. */
  plan(state) {
    clearTimeout(this.timer);
    if (state === 'waiting') this.timer = setTimeout(() => this.draw(), 1000 - ((Date.now() - (this.view.client.retryAt ?? 0)) % 1000 + 1000) % 1000 + 20);
    else if (state === 'connecting' && !this.shown) this.timer = setTimeout(() => this.draw(), 1000);
  }

  destroy() { clearTimeout(this.timer); }
}
