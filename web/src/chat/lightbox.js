// A picture in full size. Escape, the button, or a click beside it close it.

import { make } from '../lib/dom.js';
import { download } from './files.js';
import { icon } from '../lib/icons.js';
import { nameOf } from './people.js';
import { clockTime, dayName } from '../lib/time.js';

export function lightbox(view, picture) {
  const { message, log, name } = picture;
  const who = message.own ? 'You' : nameOf(log.conversation.peer);
  const img = make('img', { src: picture.img.currentSrc, alt: `Picture ${name} from ${who}` });
  // The bubble's picture is shown until the full one is loaded.
  picture.url().then((url) => { img.src = url; }, () => {});
  const save = make('button', { class: 'round', type: 'button', 'aria-label': 'Download', onclick: () => download(picture).catch(() => view.say('The picture could not be fetched.')) }, icon('download'));
  const close = make('button', { class: 'round', type: 'button', 'aria-label': 'Close', onclick: () => sheet.close() }, icon('close'));
  const el = make('div', { class: 'lightbox', role: 'dialog', 'aria-modal': 'true', 'aria-label': `Picture ${name}` },
    make('div', { class: 'lightbox-head' },
      make('span', { class: 'names' }, make('b', {}, who), make('span', { class: 'sub' }, `${dayName(message.ts)}, ${clockTime(message.ts)} · ${name}`)), save, close),
    make('div', { class: 'stage' }, img));
  el.addEventListener('click', (event) => { if (event.target.className === 'stage') sheet.close(); });
  el.addEventListener('keydown', (event) => {
    if (event.key !== 'Tab') return;
    event.preventDefault();
    (document.activeElement === close ? save : close).focus();
  });
  const sheet = { el, close: () => view.uncover(sheet) };
  view.cover(sheet);
  close.focus();
}
