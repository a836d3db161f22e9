// The second view: one user's rows, their live steps, and the trace of a message. The address says what is shown:
// #user/alice, #trace/alice~bob/7, #trace/380479634883477504.

import { make, setText } from '../lib/dom.js';
import { repairDialog } from './repair.js';
import { KINDS, rowsTable } from './rows.js';
import { LiveSteps } from './steps.js';
import { tracePath, traceReport } from './trace.js';

export const userHref = (user) => `#user/${encodeURIComponent(user)}`;
export const traceHref = (conversation, seq) => `#trace/${encodeURIComponent(conversation)}/${seq}`;

export class People {
  #user = null;
  #shown = 0;

  constructor(api) {
    this.api = api;
    this.userForm = this.#form('user', 'User', 'Look up', 'alice', (user) => { location.hash = userHref(user); });
    this.traceForm = this.#form('trace', 'Message', 'Trace', 'alice~bob 7, or an id', (written) => this.#goTrace(written));
    this.said = make('p', { class: 'said', role: 'status' });
    this.trace = make('section', { class: 'block', hidden: true, 'aria-labelledby': 'h-trace' });
    this.rows = make('div', { class: 'tables' });
    this.head = make('div', { class: 'bar' });
    this.live = new LiveSteps(api, traceHref);
    this.person = make('div', { class: 'person', hidden: true }, make('section', { class: 'block', 'aria-labelledby': 'h-person' }, this.head, this.rows), this.live.element);
    this.repair = repairDialog(api, () => this.#showUser(this.#user));
    this.element = make('div', { class: 'people' },
      make('div', { class: 'lookups' }, this.userForm.element, this.traceForm.element), this.said, this.trace, this.person, this.repair.element);
  }

  #form(name, label, button, placeholder, go) {
    const input = make('input', {
      class: 'field', id: `ask-${name}`, name, placeholder, autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false', required: true,
    });
    const element = make('form', { class: 'lookup', onsubmit: (event) => { event.preventDefault(); go(input.value.trim()); } },
      make('label', { for: `ask-${name}` }, label), input, make('button', { class: 'press strong small' }, button));
    return { element, input };
  }

  #goTrace(written) {
    try {
      location.hash = `#${tracePath(written)}`;
    } catch (error) {
      setText(this.said, error.message);
    }
  }

  /** @param {string[]} route the fragment of the address, split at its slashes */
  async show([kind, ...rest]) {
    this.#shown += 1;
    setText(this.said, '');
    if (kind === 'user' && rest[0]) {
      this.trace.hidden = true;
      await this.#showUser(rest[0]);
    } else if (kind === 'trace' && rest[0]) {
      await this.#showTrace(rest);
    }
  }

  async #showUser(user) {
    const mine = this.#shown;
    this.userForm.input.value = user;
    try {
      const path = `users/${encodeURIComponent(user)}`;
      const all = await Promise.all(KINDS.map(({ kind }) => this.api.get(`${path}/${kind}`)));
      if (mine !== this.#shown) return;
      const keep = document.activeElement?.dataset?.keep;
      this.rows.replaceChildren(...KINDS.map((what, i) => rowsTable(what, all[i], traceHref)));
      this.#heading(user);
      this.person.hidden = false;
      if (user !== this.#user) this.live.watch(user);
      this.#user = user;
      if (keep) this.head.querySelector(`[data-keep=${keep}]`)?.focus();
    } catch (error) {
      if (mine === this.#shown) this.#fail(error);
    }
  }

  #heading(user) {
    this.head.replaceChildren(
      make('h2', { id: 'h-person' }, user),
      make('button', { class: 'press small', type: 'button', 'data-keep': 'refresh', onclick: () => this.#showUser(user) }, 'Refresh'),
      make('button', { class: 'press small', type: 'button', 'data-keep': 'repair', onclick: () => this.repair.ask(user) }, 'Repair…'));
  }

  async #showTrace(words) {
    const mine = this.#shown;
    const path = ['trace', ...words.map(encodeURIComponent)].join('/');
    this.traceForm.input.value = words.join(' ');
    try {
      const report = await this.api.get(path);
      if (mine !== this.#shown) return;
      const heading = make('h2', { id: 'h-trace', tabindex: '-1' }, 'Trace');
      const back = this.#user && make('a', { class: 'press small', href: userHref(this.#user) }, 'Close');
      this.trace.replaceChildren(make('div', { class: 'bar' }, heading, back), traceReport(report, traceHref, userHref));
      this.trace.hidden = false;
      heading.focus();
    } catch (error) {
      if (mine === this.#shown) this.#fail(error);
    }
  }

  #fail(error) {
    if (error.status === 401) return;
    this.trace.hidden = true;
    setText(this.said, error.message);
  }

  /** A locked page shows no data and closes its stream. */
  clear() {
    this.#shown += 1;
    this.#user = null;
    this.live.stop();
    this.rows.replaceChildren();
    this.trace.replaceChildren();
    this.trace.hidden = this.person.hidden = true;
    this.repair.element.close();
    for (const { input } of [this.userForm, this.traceForm]) input.value = '';
  }
}
