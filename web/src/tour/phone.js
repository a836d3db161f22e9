// A phone: a real client of the SDK in a frame, and a switch that takes it off the network. What it shows follows the
// timeline (socket.js).

import { Client } from '../../../clients/js/src/index.js';
import { mountChat } from '../chat/view.js';
import { demoToken } from '../lib/demo.js';
import { make, setAttr, setText } from '../lib/dom.js';
import { called } from './people.js';
import { replayedSocket } from './socket.js';

const WORDS = { online: 'online', connecting: 'connecting…', waiting: 'no connection', offline: 'off the network', closed: 'off the network' };

export class Phone {
  /**
   * @param {HTMLElement} place its parent element
   * @param {string[]} peers users that its chat list always has
   * @param {import('./timeline.js').Timeline} timeline
   */
  constructor(place, user, peers, timeline) {
    this.user = user;
    this.timeline = timeline;
    this.name = called(user);
    this.client = new Client({ user, token: () => demoToken(user), WebSocket: replayedSocket(timeline, user, this) });
    this.link = make('span', { class: 'link' });
    this.switch = make('button', { type: 'button', class: 'switch', role: 'switch', 'aria-label': `${this.name}'s network`, onclick: () => this.turn(!this.wanted) });
    this.screen = make('div', { class: 'screen' });
    this.root = make('section', { class: 'phone', 'data-user': user, 'data-name': this.name.toLowerCase(), 'aria-label': `${this.name}'s phone` },
      make('header', { class: 'bar' }, make('h2', {}, this.name), this.link, this.switch), this.screen);
    place.append(this.root);
    this.stopWatching = this.client.on('state', () => this.draw());
    this.peers = [...peers];
    this.chat = mountChat(this.screen, this.client, {
      compact: true,
      peers: this.peers,
      // Nobody reads on a phone that is not shown.
      readable: () => this.root.offsetParent !== null,
    });
    this.draw();
  }

  get wanted() { return this.client.state !== 'offline' && this.client.state !== 'closed'; }

  /** Connects or disconnects. A disconnect closes the connection without a goodbye, as a tunnel does. */
  turn(on) {
    if (on === this.wanted) return;
    if (on) this.client.connect();
    else this.disconnect();
    this.draw();
  }

  /** A phone that has acked a message shows it, even if its turn would have come later. */
  disconnect() {
    this.timeline.flush(this);
    this.client.disconnect();
  }

  say(to, body) { return this.client.send(to, body).sent; }
  open(peer) { this.chat.open(peer); }
  /** The chat reads this list whenever it draws. */
  setPeers(peers) { this.peers.splice(0, Infinity, ...peers); }
  back() { this.chat.open(null); }

  draw() {
    const { state } = this.client;
    this.root.dataset.state = state;
    setText(this.link, WORDS[state] ?? state);
    setAttr(this.switch, 'aria-checked', String(this.wanted));
    setAttr(this.switch, 'title', this.wanted ? `Take ${this.name} off the network` : `Bring ${this.name} back`);
  }

  /** Waits until the client is in this state. */
  becomes(state) {
    if (this.client.state === state) return Promise.resolve();
    return new Promise((resolve) => {
      const stop = this.client.on('state', () => { if (this.client.state === state) { stop(); resolve(); } });
    });
  }

  async end() {
    this.stopWatching();
    this.chat.destroy();
    this.root.remove();
    await this.client.close();
  }
}
