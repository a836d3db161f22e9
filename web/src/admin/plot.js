// A plot of series over time, as SVG. All plots share one cursor: pointing at a time in one shows it in all.

import { make, setAttr, setText } from '../lib/dom.js';
import { inUnit, timeOfDay } from './format.js';

const SVG = 'http://www.w3.org/2000/svg';
const HEIGHT = 132;
const EDGE = { left: 50, right: 10, top: 8, bottom: 18 };
const COLOURS = 8;
/** A longer gap between samples breaks the line. */
const GAP_MS = 7_000;

const colourClass = (colour) => `c${colour % COLOURS}`;

function draw(tag, attributes = {}, ...children) {
  const el = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) el.setAttribute(name, value);
  el.append(...children);
  return el;
}

/** The time at the shared cursor; null is now. */
export class Cursor {
  at = null;
  #listeners = [];

  listen(listener) {
    this.#listeners.push(listener);
  }

  set(at) {
    if (at === this.at) return;
    this.at = at;
    for (const listener of this.#listeners) listener();
  }
}

/** The next round number, so that the scale does not change with each value. */
export function roof(value, unit) {
  if (!(value > 0)) return unit === 'seconds' ? 0.001 : unit === 'bytes' || unit === 'byteRate' ? 1024 : 1;
  const base = unit === 'bytes' || unit === 'byteRate' ? 1024 ** Math.floor(Math.log(value) / Math.log(1024)) : 1;
  const left = value / base;
  const size = 10 ** Math.floor(Math.log10(left));
  const step = [1, 2, 4, 5, 8, 10].find((s) => s * size >= left * 0.9999) ?? 20;
  const rounded = step * size * base;
  return unit === 'count' ? Math.max(rounded, 2) : rounded;
}

export class Plot {
  constructor({ title, unit, note }, cursor) {
    Object.assign(this, { title, unit, cursor, data: null, width: 0 });
    this.legend = make('div', { class: 'legend' });
    this.grid = draw('g', { class: 'grid' });
    this.lines = draw('g', { class: 'lines' });
    this.pointer = draw('g', { class: 'pointer' });
    this.svg = draw('svg', { class: 'chart', 'aria-hidden': 'true' }, this.grid, this.lines, this.pointer);
    this.said = make('span', { class: 'quiet', 'aria-live': 'polite' });
    this.element = make('figure', { class: 'plot', tabindex: '0', role: 'group', 'aria-label': `Plot: ${title}` },
      make('figcaption', {}, make('h3', {}, title), this.legend), this.svg, this.said);
    this.explain(note);
    this.#follow();
    cursor.listen(() => this.#point());
    new ResizeObserver(() => this.#resize()).observe(this.element);
  }

  #follow() {
    const svg = this.svg;
    svg.addEventListener('pointermove', (event) => this.cursor.set(this.#timeAt(event)));
    svg.addEventListener('pointerdown', (event) => this.cursor.set(this.#timeAt(event)));
    svg.addEventListener('pointerleave', () => this.cursor.set(null));
    this.element.addEventListener('keydown', (event) => this.#key(event));
    this.element.addEventListener('blur', () => this.cursor.set(null));
  }

  /** Arrow keys move the cursor, and the values are announced. */
  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === 'Escape') this.cursor.set(null);
    if (step === undefined || !this.data?.times.length) return;
    event.preventDefault();
    const { times, from } = this.data;
    const first = times.findIndex((time) => time >= from);
    const at = this.cursor.at === null ? times.length - 1 : this.#nearest(this.cursor.at);
    const next = Math.min(times.length - 1, Math.max(first, at + step));
    this.cursor.set(times[next]);
    setText(this.said, `${timeOfDay(times[next])}: ${this.#words(next)}`);
  }

  #words(index) {
    return this.data.series.map(({ name, values }) => `${name} ${inUnit(values[index], this.unit)}`).join(', ');
  }

  #timeAt(event) {
    if (!this.data?.times.length) return null;
    const box = this.svg.getBoundingClientRect();
    const share = (event.clientX - box.left - EDGE.left) / (this.width - EDGE.left - EDGE.right);
    const { from, to, times } = this.data;
    return times[this.#nearest(from + share * (to - from))] ?? null;
  }

  #nearest(time) {
    const { times } = this.data;
    let best = times.length - 1;
    for (let i = 0; i < times.length; i += 1) if (Math.abs(times[i] - time) < Math.abs(times[best] - time)) best = i;
    return best;
  }

  #resize() {
    const width = Math.round(this.svg.clientWidth);
    if (width === this.width || width === 0) return;
    this.width = width;
    setAttr(this.svg, 'viewBox', `0 0 ${width} ${HEIGHT}`);
    this.#redraw();
  }

  /** The description of the plot, as the heading's tooltip. */
  explain(note) {
    setAttr(this.element.querySelector('h3'), 'title', note ?? null);
  }

  /** @param {{times: number[], from: number, to: number, series: {name: string, colour: number, values: (number|null)[]}[]}} data */
  show(data) {
    this.data = data;
    this.#keys();
    this.#redraw();
  }

  /** The legend: one entry a series, rebuilt only when the series change. */
  #keys() {
    const names = this.data.series.map(({ name }) => name);
    if (this.keys && names.join('\n') === this.keys.map(({ name }) => name).join('\n')) return;
    this.keys = this.data.series.map(({ name, colour }) => {
      const value = make('b');
      return { name, value, el: make('span', { class: `key ${colourClass(colour)}` }, make('i'), `${name} `, value) };
    });
    this.legend.replaceChildren(...this.keys.map(({ el }) => el));
  }

  #x(time) {
    const { from, to } = this.data;
    return EDGE.left + ((time - from) / (to - from)) * (this.width - EDGE.left - EDGE.right);
  }

  #y(value) {
    return HEIGHT - EDGE.bottom - (value / this.top) * (HEIGHT - EDGE.top - EDGE.bottom);
  }

  #redraw() {
    if (!this.data || this.width === 0) return;
    const { series, times, from } = this.data;
    let most = 0;
    for (const { values } of series) {
      for (let i = 0; i < values.length; i += 1) if (times[i] >= from && values[i] > most) most = values[i];
    }
    this.top = roof(most, this.unit);
    this.#frame();
    this.lines.replaceChildren(...series.flatMap(({ values, colour }) => this.#line(values, colour, series.length)));
    this.#point();
  }

  #frame() {
    const { from, to } = this.data;
    const right = this.width - EDGE.right;
    const rules = [0, 0.5, 1].flatMap((share) => {
      const y = Math.round(this.#y(share * this.top)) + 0.5;
      return [
        draw('line', { x1: EDGE.left, x2: right, y1: y, y2: y, class: share === 0 ? 'floor' : '' }),
        draw('text', { x: EDGE.left - 6, y: y + 3.5, 'text-anchor': 'end' }, inUnit(share * this.top, this.unit).replace('/s', '')),
      ];
    });
    const label = (time, anchor) => draw('text', { x: this.#x(time), y: HEIGHT - 4, 'text-anchor': anchor }, timeOfDay(time));
    this.grid.replaceChildren(...rules, label(from, 'start'), label((from + to) / 2, 'middle'), label(to, 'end'));
  }

  /** The series as lines, broken at gaps; a single value is a dot. */
  #line(values, colour, count) {
    const { times, from } = this.data;
    const strokes = [];
    let stroke = [];
    const end = () => { if (stroke.length) strokes.push(stroke); stroke = []; };
    for (let i = 0; i < values.length; i += 1) {
      if (times[i] < from) continue;
      if (values[i] === null || (stroke.length && times[i] - times[i - 1] > GAP_MS)) end();
      if (values[i] !== null) stroke.push([this.#x(times[i]).toFixed(1), this.#y(values[i]).toFixed(1)]);
    }
    end();
    const name = colourClass(colour);
    const floor = this.#y(0).toFixed(1);
    return strokes.flatMap((points) => {
      if (points.length === 1) return [draw('circle', { cx: points[0][0], cy: points[0][1], r: 1.8, class: `dot ${name}` })];
      const d = `M${points.map((p) => p.join(' ')).join('L')}`;
      const line = draw('path', { d, class: `line ${name}` });
      if (count > 1) return [line];
      return [draw('path', { d: `${d}V${floor}H${points[0][0]}Z`, class: `area ${name}` }), line];
    });
  }

  /** The values at the cursor, or the latest ones. */
  #point() {
    if (!this.data || !this.keys) return;
    const { times, series, from } = this.data;
    const at = this.cursor.at;
    const index = at === null ? times.length - 1 : this.#nearest(at);
    series.forEach(({ values }, i) => setText(this.keys[i].value, inUnit(values[index], this.unit)));
    this.element.classList.toggle('pointed', at !== null);
    if (at === null || at < from || this.width === 0) return this.pointer.replaceChildren();
    const x = this.#x(times[index]);
    const leftHalf = x < this.width / 2;
    const dots = series.flatMap(({ values, colour }) => (values[index] === null ? []
      : [draw('circle', { cx: x, cy: this.#y(values[index]), r: 3.2, class: `dot ${colourClass(colour)}` })]));
    return this.pointer.replaceChildren(
      draw('line', { x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }), ...dots,
      draw('text', { x: leftHalf ? x + 6 : x - 6, y: EDGE.top + 9, 'text-anchor': leftHalf ? 'start' : 'end' }, timeOfDay(times[index])),
    );
  }
}

/** A sparkline for a tile. */
export function sparkline() {
  const path = draw('path', { class: 'line' });
  const area = draw('path', { class: 'area' });
  const svg = draw('svg', { class: 'spark', viewBox: '0 0 100 24', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, area, path);
  const show = ({ times, from, to, values }) => {
    const shown = values.map((value, i) => [times[i], value]).filter(([time, value]) => time >= from && value !== null);
    const top = Math.max(...shown.map(([, value]) => value), 1e-9);
    const points = shown.map(([time, value]) => `${(((time - from) / (to - from)) * 100).toFixed(2)} ${(22.5 - (value / top) * 21).toFixed(2)}`);
    const d = points.length > 1 ? `M${points.join('L')}` : '';
    setAttr(path, 'd', d);
    setAttr(area, 'd', d && `${d}V24H${points[0].split(' ')[0]}Z`);
  };
  return { svg, show };
}
