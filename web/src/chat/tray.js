// The files that are chosen and not sent yet: a thumbnail or an icon, the name, the size, and a remove button.

import { make, setText } from '../lib/dom.js';
import { icon } from '../lib/icons.js';
import { kindOf, lookAt, MOST_FILES, sizeWords, wrongFile } from './files.js';

export class Tray {
  constructor(changed) {
    this.changed = changed;
    this.items = [];
    this.busy = false;
    this.ul = make('ul', { 'aria-label': 'Files to send' });
    this.wrong = make('p', { class: 'wrong', role: 'alert' });
    this.el = make('div', { class: 'tray', hidden: true }, this.ul, this.wrong);
  }

  get size() { return this.items.length; }

  async add(files) {
    const problems = [];
    const fresh = [];
    for (const file of files) {
      const problem = this.items.length + fresh.length >= MOST_FILES ? `At most ${MOST_FILES} files at once.` : wrongFile(file);
      if (problem) problems.push(problem);
      else fresh.push({ file, url: URL.createObjectURL(file), kind: kindOf(file.type), size: null });
    }
    this.items.push(...fresh);
    setText(this.wrong, [...new Set(problems)].join(' '));
    this.busy = true;
    this.draw();
    for (const item of fresh) if (item.kind === 'image') Object.assign(item, await lookAt(item.file, item.url));
    this.busy = false;
    this.draw();
  }

  restore(items) {
    this.items = items;
    setText(this.wrong, '');
    this.draw({ silent: true });
  }

  /** Returns the items and forgets them. The caller revokes their object URLs. */
  take() {
    const { items } = this;
    this.restore([]);
    return items;
  }

  clear() {
    for (const { url } of this.take()) URL.revokeObjectURL(url);
    this.changed();
  }

  remove(item) {
    URL.revokeObjectURL(item.url);
    this.items = this.items.filter((other) => other !== item);
    setText(this.wrong, '');
    this.draw();
  }

  draw({ silent = false } = {}) {
    this.ul.replaceChildren(...this.items.map((item) => this.row(item)));
    this.el.hidden = !this.items.length && !this.wrong.textContent;
    if (!silent) this.changed();
  }

  row(item) {
    const { file, kind, url } = item;
    const shown = kind === 'image' ? make('img', { src: url, alt: '' }) : make('span', { class: 'paper' }, icon(kind === 'file' ? 'file' : 'play'));
    return make('li', {}, shown,
      make('span', { class: 'names' }, make('span', { class: 'file-name' }, file.name), make('span', { class: 'sub' }, sizeWords(file.size))),
      make('button', { class: 'round', type: 'button', 'aria-label': `Remove ${file.name}`, onclick: () => this.remove(item) }, icon('close')));
  }
}
