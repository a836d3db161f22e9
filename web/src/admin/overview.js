// The first view: health, current numbers, and the plots by section.

import { make, setAttr, setText } from '../lib/dom.js';
import { ColdStatus } from './cold.js';
import { SECTIONS, isShown, seriesId } from './panels.js';
import { Cursor, Plot } from './plot.js';
import { healthOf } from './states.js';
import { Tiles } from './tiles.js';

/** The shortest time range of a plot. */
const LEAST_MS = 60_000;
const SPANS = [[2, '2 min'], [5, '5 min'], [15, '15 min']];

/** The label values with activity in the range shown. Each keeps its colour. */
function busy(series, times, from) {
  const does = ({ values }) => values.some((value, i) => value > 0 && times[i] >= from);
  return series.some(does) ? series.filter(does) : series.slice(0, 3);
}

export class Overview {
  #span = 5 * 60_000;
  #cursor = new Cursor();

  constructor(api, watch) {
    this.watch = watch;
    this.health = make('ul', { class: 'health', 'aria-label': 'Health' });
    this.tiles = new Tiles();
    this.cold = new ColdStatus(api);
    this.sections = SECTIONS.map((section) => this.#section(section));
    this.element = make('div', { class: 'overview' },
      make('section', { class: 'block', 'aria-labelledby': 'h-health' }, make('h2', { id: 'h-health' }, 'Health'), this.health),
      make('section', { class: 'block', 'aria-labelledby': 'h-now' },
        make('div', { class: 'bar' }, make('h2', { id: 'h-now' }, 'Now'), this.#spans()), this.tiles.element),
      this.sections.map(({ element }) => element));
  }

  #spans() {
    const choose = (event) => {
      this.#span = Number(event.target.value) * 60_000;
      this.show();
    };
    return make('fieldset', { class: 'spans' }, make('legend', { class: 'quiet' }, 'Time shown'),
      SPANS.map(([minutes, words]) => make('label', {},
        make('input', { type: 'radio', name: 'span', value: minutes, checked: minutes === 5, onchange: choose }), make('span', {}, words))));
  }

  #section(section) {
    const plots = section.plots.map((what) => ({ what, plot: new Plot(what, this.#cursor) }));
    const grid = make('div', { class: 'plots' }, plots.map(({ plot }) => plot.element));
    const otherwise = make('p', { class: 'otherwise' }, section.otherwise ?? '');
    const extra = section.id === 'cold' ? this.cold.element : null;
    const id = `h-${section.id}`;
    const element = make('section', { class: 'block', 'aria-labelledby': id }, make('h2', { id }, section.title), grid, otherwise, extra);
    return { section, plots, grid, otherwise, element };
  }

  /** Draws the latest sample. */
  show() {
    const { history, now, past, ready, info } = this.watch;
    if (!now) return;
    this.#showHealth(healthOf(now, past, ready, info));
    // The first minutes fill the whole width.
    const since = Math.min(history.times[0], now.at - LEAST_MS);
    const window = { from: Math.max(now.at - this.#span, since), to: now.at };
    this.tiles.show(history, now, past, window);
    for (const one of this.sections) this.#showSection(one, history, now, window);
  }

  #showSection({ section, plots, grid, otherwise, element }, history, now, window) {
    const shown = isShown(section, now);
    grid.hidden = !shown;
    otherwise.hidden = shown || !section.otherwise;
    element.hidden = !shown && !section.otherwise;
    if (!shown) return;
    for (const { what, plot } of plots) {
      const names = what.series.flatMap((series) => series.names(now));
      const known = history.names(`${what.id}/`).map((name) => name.slice(what.id.length + 1));
      const series = [...new Set([...known, ...names])].map((name, colour) => ({ name, colour, values: history.of(seriesId(what.id, name)) }));
      if (what.metric && !what.note) plot.explain(now.help.get(what.metric));
      plot.show({ times: history.times, ...window, series: what.byLabel ? busy(series, history.times, window.from) : series });
    }
  }

  #showHealth(parts) {
    while (this.health.children.length > parts.length) this.health.lastElementChild.remove();
    parts.forEach(([name, { level, word, detail }], i) => {
      const item = this.health.children[i] ?? this.health.appendChild(make('li', {}, make('span', { class: 'name' }), make('span', { class: 'state' }), make('span', { class: 'detail' })));
      const [nameEl, stateEl, detailEl] = item.children;
      setText(nameEl, name);
      setText(stateEl, word);
      setAttr(stateEl, 'class', `state ${level}`);
      setText(detailEl, detail);
      setAttr(detailEl, 'title', detail);
    });
  }
}
