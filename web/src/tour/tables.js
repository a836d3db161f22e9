// The tables on the page. Rows are matched by key, so only differences are drawn: a new row flashes green, a changed cell
// amber, and a deleted row is struck out before it disappears.

import { make, setAttr, setText } from '../lib/dom.js';
import { TABLES, written } from './schema.js';

const FLASH_MS = 1800;
const GONE_MS = 1500;
const LIT_MS = 1500;

/** Marks an element for a while. Marking it again restarts the time. */
function mark(el, name, value, ms) {
  clearTimeout(el.marks?.[name]);
  el.setAttribute(name, value);
  (el.marks ??= {})[name] = setTimeout(() => el.removeAttribute(name), ms);
}

class Table {
  constructor(schema) {
    this.schema = schema;
    this.rows = new Map();
    this.first = true;
    const heads = schema.columns.map((c) => make('th', { scope: 'col', class: classes(c), 'data-col': c.name }, c.name));
    this.body = make('tbody');
    this.none = make('tr', { class: 'none' }, make('td', { colspan: String(heads.length) }, schema.empty));
    this.table = make('table', { 'aria-describedby': `says-${schema.id}` }, make('thead', {}, make('tr', {}, heads)), this.body);
    this.count = make('span', { class: 'count' });
    const title = make('h3', { id: `name-${schema.id}` }, schema.name);
    const top = make('header', {}, title, make('p', { id: `says-${schema.id}` }, schema.says), this.count);
    // A box that scrolls must be reachable by keyboard.
    this.box = make('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-labelledby': `name-${schema.id}` }, this.table);
    this.card = make('section', { class: 'table', 'data-table': schema.id }, top, this.box);
    this.empty();
  }

  empty() {
    this.rows.clear();
    this.body.replaceChildren(this.none);
    this.first = true;
    this.drawCount();
  }

  /** Shows these rows. The first ones are the initial state, so nothing flashes. */
  show(all) {
    const rows = this.schema.rows(all);
    const seen = new Set();
    let before = null;
    for (const row of rows) {
      const key = this.schema.key(row);
      seen.add(key);
      const tr = this.rows.get(key) ?? this.add(key);
      this.fill(tr, row);
      if (before ? before.nextElementSibling !== tr : this.body.firstElementChild !== tr) place(this.body, tr, before);
      before = tr;
    }
    for (const [key, tr] of this.rows) if (!seen.has(key)) this.drop(key, tr);
    this.none.hidden = this.rows.size > 0;
    this.drawColumns(rows);
    this.drawCount();
    this.first = false;
  }

  add(key) {
    const tr = make('tr', {}, this.schema.columns.map((c) => make('td', { class: classes(c), 'data-col': c.name }, make('span'))));
    tr.isNew = true;
    this.rows.set(key, tr);
    return tr;
  }

  fill(tr, row) {
    this.schema.columns.forEach((column, at) => {
      const cell = tr.children[at];
      const value = JSON.stringify(row[column.name] ?? null);
      if (cell.dataset.value === value) return;
      if (!tr.isNew && !this.first) mark(cell, 'data-changed', '', FLASH_MS);
      const { text, whole } = written(row[column.name], column.kind);
      cell.dataset.value = value;
      setText(cell.firstElementChild, text);
      setAttr(cell, 'title', whole);
    });
    if (tr.isNew && !this.first) {
      mark(tr, 'data-new', '', FLASH_MS);
      requestAnimationFrame(() => keepInSight(this.box, tr));
    }
    tr.isNew = false;
  }

  drop(key, tr) {
    this.rows.delete(key);
    tr.setAttribute('data-gone', '');
    tr.setAttribute('aria-hidden', 'true');
    setTimeout(() => tr.remove(), this.first ? 0 : GONE_MS);
  }

  drawColumns(rows) {
    for (const [at, column] of this.schema.columns.entries()) {
      if (!column.seldom) continue;
      const hide = rows.every((row) => row[column.name] == null);
      for (const tr of this.table.querySelectorAll('tr:not(.none)')) tr.children[at].hidden = hide;
    }
  }

  drawCount() {
    const { size } = this.rows;
    setText(this.count, `${size} ${size === 1 ? 'row' : 'rows'}`);
  }
}

const classes = ({ kind, roomy }) => `${kind}${roomy ? ' roomy' : ''}`;

function place(body, tr, before) {
  if (before) before.after(tr);
  else body.prepend(tr);
}

/** Scrolls within the table only, never the page. */
function keepInSight(box, tr) {
  const under = tr.offsetTop + tr.offsetHeight - box.clientHeight;
  if (box.scrollTop < under) box.scrollTop = under;
}

export class Tables {
  constructor(root) {
    this.all = new Map(TABLES.map((schema) => [schema.id, new Table(schema)]));
    root.append(...[...this.all.values()].map((table) => table.card));
  }

  show(rows) {
    for (const table of this.all.values()) table.show(rows);
  }

  empty() {
    for (const table of this.all.values()) table.empty();
  }

  /** Highlights the tables that a story's step is about. */
  point(ids) {
    for (const [id, { card }] of this.all) card.toggleAttribute('data-pointed', ids.includes(id));
  }

  /** Lights up the tables that a step reads or writes. */
  light(ids) {
    for (const id of ids) mark(this.all.get(id).card, 'data-lit', '', LIT_MS);
  }
}
