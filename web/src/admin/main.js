// The operator's page: a form for the key, a status bar, and two views.

import { make, setAttr, setText } from '../lib/dom.js';
import { icon } from '../lib/icons.js';
import { applyTheme, themeToggle } from '../lib/theme.js';
import { Api } from './api.js';
import { timeOfDay } from './format.js';
import { gate } from './gate.js';
import { Overview } from './overview.js';
import { People } from './people.js';
import { bad, readyState } from './states.js';
import { Watch } from './watch.js';

applyTheme();
const api = new Api();
const watch = new Watch(api, onLook);
const overview = new Overview(api, watch);
const people = new People(api);
const door = gate(api, () => { open(); nav.querySelector('[aria-current]')?.focus(); });

const state = make('span', { class: 'state idle', role: 'status' });
const seen = make('span', { class: 'seen' });
const tabs = [['#overview', 'Overview', overview], ['#user', 'Look up', people]]
  .map(([href, words, view]) => ({ link: make('a', { href }, words), view }));
const nav = make('nav', { class: 'tabs', 'aria-label': 'Views' }, tabs.map(({ link }) => link));
const lock = make('button', { class: 'press small', type: 'button', onclick: () => close() }, 'Lock');
const banner = make('p', { class: 'banner', role: 'alert', hidden: true });
const inside = make('div', { class: 'inside' }, banner, overview.element, people.element);

document.querySelector('#app').append(
  make('header', { class: 'top' },
    make('span', { class: 'logo' }, icon('logo')), make('h1', {}, 'Bluetick ', make('span', {}, 'operator')),
    nav, make('div', { class: 'right' }, seen, state, lock, themeToggle())),
  make('main', {}, door.element, inside));

function open() {
  for (const el of [nav, inside, lock, state, seen]) el.hidden = false;
  door.hide();
  watch.start();
  route();
}

/** A locked page shows no data. */
function close(words = '') {
  api.setKey(null);
  watch.clear();
  people.clear();
  overview.cold.clear();
  for (const el of [nav, inside, lock, state, seen]) el.hidden = true;
  document.title = 'Bluetick operator';
  door.show(words);
}

function onLook() {
  const { trouble, ready, now } = watch;
  if (trouble?.status === 401) return close('The server no longer accepts this key.');
  const { level, word, detail } = trouble ? bad('No answer', trouble.message) : readyState(ready);
  setAttr(state, 'class', `state ${level}`);
  setText(state, word);
  setAttr(state, 'title', detail);
  banner.hidden = level === 'good';
  setAttr(banner, 'class', `banner ${level}`);
  setText(banner, banner.hidden ? '' : `${word}: ${detail}`);
  setText(seen, now ? `as of ${timeOfDay(now.at)}` : '');
  document.title = level === 'good' ? 'Bluetick operator' : `${word} – Bluetick operator`;
  inside.classList.toggle('stale', Boolean(trouble));
  overview.show();
}

function route() {
  if (!api.hasKey) return;
  const words = location.hash.slice(1).split('/').map(decode);
  const atPeople = words[0] === 'user' || words[0] === 'trace';
  for (const { link, view } of tabs) {
    const here = (view === people) === atPeople;
    view.element.hidden = !here;
    setAttr(link, 'aria-current', here ? 'page' : null);
  }
  if (atPeople) people.show(words);
  else overview.show();
}

function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

addEventListener('hashchange', route);
if (api.hasKey) open();
else close();
