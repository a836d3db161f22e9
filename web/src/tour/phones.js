// The phones of the page: Alice on the left, Bob on the right, Carol below him if she is switched on. A narrow screen
// shows one of them at a time.

import { arrange, make, setAttr, setText } from '../lib/dom.js';
import { Phone } from './phone.js';

/** A phone that is not connected by then must not hold up the page. */
const LONGEST_MS = 4000;

export class Phones {
  /** @param {{left: HTMLElement, right: HTMLElement, pick: HTMLElement}} places @param {import('./timeline.js').Timeline} timeline */
  constructor(places, timeline) {
    Object.assign(this, { places, timeline, all: [], carol: false, shown: 0, tabs: [] });
  }

  /** Makes phones for these users, still offline. */
  async meet(users) {
    await Promise.all(this.all.map((phone) => phone.end()));
    const { left, right } = this.places;
    this.all = users.map((user, n) => new Phone(n ? right : left, user, this.peersOf(user, users), this.timeline));
    this.tabs = this.all.map((phone, n) => make('button', { type: 'button', onclick: () => this.show(n) }, make('span', {}, phone.name), make('i', { 'aria-hidden': 'true' })));
    arrange(this.places.pick, this.tabs);
    this.all.forEach((phone, n) => phone.client.on('change', () => this.drawTab(n)));
    this.all.forEach((phone, n) => phone.client.on('state', () => this.drawTab(n)));
    this.draw();
  }

  /** The users that a phone's chat list always has: Carol only while she is on the page. */
  peersOf(user, users) {
    return users.filter((other, n) => other !== user && (n < 2 || this.carol));
  }

  /** Connects the phones on the page. The conversation is open on Alice's phone and not on Bob's. */
  start() {
    const [alice, bob] = this.all;
    const here = this.carol ? this.all : [alice, bob];
    alice.open(bob.user);
    for (const phone of here) phone.turn(true);
    return Promise.race([Promise.all(here.map((phone) => phone.becomes('online'))), new Promise((resolve) => setTimeout(resolve, LONGEST_MS))]);
  }

  setCarol(on) {
    this.carol = on;
    const users = this.all.map(({ user }) => user);
    for (const phone of this.all) phone.setPeers(this.peersOf(phone.user, users));
    this.all[2].turn(on);
    this.show(on ? 2 : Math.min(this.shown, 1));
  }

  show(n) {
    this.shown = n;
    this.draw();
    // A hidden chat cannot be read or measured.
    window.dispatchEvent(new Event('focus'));
  }

  /** A phone for a story: it is shown whenever the story uses it. */
  held(phone) {
    const show = () => this.show(this.all.indexOf(phone));
    return {
      user: phone.user,
      becomes: (state) => phone.becomes(state),
      turn: (on) => { show(); phone.turn(on); },
      say: (to, body) => { show(); phone.open(to); return phone.say(to, body); },
      open: (peer) => { show(); phone.open(peer); },
      back: () => phone.back(),
    };
  }

  draw() {
    const [, , carol] = this.all;
    carol.root.hidden = !this.carol;
    this.tabs[2].hidden = !this.carol;
    this.places.right.classList.toggle('both', this.carol);
    this.all.forEach((phone, n) => {
      phone.root.classList.toggle('shown', n === this.shown);
      setAttr(this.tabs[n], 'aria-pressed', String(n === this.shown));
      this.drawTab(n);
    });
  }

  drawTab(n) {
    const { client, name } = this.all[n];
    const [words, badge] = this.tabs[n].children;
    setText(words, name);
    setText(badge, client.unread ? String(client.unread) : '');
    this.tabs[n].dataset.state = client.state;
    setAttr(this.tabs[n], 'aria-label', client.unread ? `${name}, ${client.unread} unread` : name);
  }
}
