// The current numbers, each with its state, its total since the server's start, and a sparkline of the last minutes.

import { make, setAttr, setText } from '../lib/dom.js';
import { total } from './figures.js';
import { bytes, exact, inUnit } from './format.js';
import { sparkline } from './plot.js';
import { activity, commitState, diskState, errorState, idle, good, requestState, warn } from './states.js';

/** A latency stays shown for a while after the last request. */
const LINGER_MS = 30_000;

const sum = (now, name) => total(now, name) ?? 0;
const counted = (id, title, series, metric) => ({
  id, title, series, unit: 'rate',
  note: (now) => `${exact(sum(now, metric))} in all`,
  state: ({ value }) => activity(value),
});

const TILES = [
  {
    id: 'connections', title: 'Connections', series: 'connections/open', unit: 'count',
    note: (now) => `${exact(sum(now, 'bluetick_sessions_opened_total'))} opened in all`,
    state: ({ value }) => activity(value),
  },
  counted('sends', 'Sends', 'messages/sends', 'bluetick_sends_total'),
  counted('deliveries', 'Deliveries', 'messages/deliveries', 'bluetick_deliveries_total'),
  counted('acks', 'Acks', 'messages/acks', 'bluetick_acks_total'),
  counted('reads', 'Reads', 'messages/reads', 'bluetick_reads_total'),
  {
    id: 'pending', title: 'Pending', series: 'pending/written', unit: 'rate',
    note: (now) => `${exact(sum(now, 'bluetick_pending_rows_written_total'))} written, ${exact(sum(now, 'bluetick_pending_rows_deleted_total'))} deleted`,
    state: ({ value }) => (value > 0 ? good('writing') : idle('idle')),
  },
  {
    id: 'send_time', title: 'Send p99', series: 'send_time/p99', unit: 'seconds', linger: LINGER_MS,
    note: (now) => `${exact(sum(now, 'bluetick_fsync_seconds_count'))} fsyncs in all`,
    state: ({ value }) => commitState(value),
  },
  {
    id: 'http', title: 'HTTP p95', series: 'http_time/p95', unit: 'seconds', linger: LINGER_MS,
    note: (now) => `${exact(sum(now, 'bluetick_http_requests_total'))} requests in all`,
    state: ({ value }) => requestState(value),
  },
  {
    id: 'errors', title: 'Errors', unit: 'rate', sum: 'errors/',
    note: (now) => `${exact(sum(now, 'bluetick_errors_total'))} in all`,
    state: ({ now, past }) => errorState(now, past),
  },
  {
    id: 'disk', title: 'Free disk', series: 'disk/free', unit: 'bytes',
    note: (now) => `log ${bytes(sum(now, 'bluetick_log_bytes'))}`,
    state: ({ value }) => diskState(value),
  },
  {
    id: 'push', title: 'Push queue', series: 'push_queue/waiting', unit: 'count',
    note: (now) => `${exact(sum(now, 'bluetick_push_sent_total'))} sent, ${exact(sum(now, 'bluetick_push_failed_total'))} failed`,
    state: ({ value, now }) => pushState(value, now),
  },
  {
    id: 'cold', title: 'Cold moves', series: 'cold_moved/moved', unit: 'rate',
    note: (now) => `${exact(sum(now, 'bluetick_cold_moved_messages_total'))} in all`,
    state: ({ value }) => (value > 0 ? good('moving') : idle('at rest')),
  },
];

function pushState(value, now) {
  const routes = now.families.get('bluetick_push_route_ok');
  if (!routes) return idle(value === null ? 'off' : 'idle');
  return routes.every((route) => route.value === 1) ? good('open') : warn('closed');
}

class Tile {
  constructor(what) {
    this.what = what;
    this.value = make('p', { class: 'value' });
    this.note = make('p', { class: 'note' });
    this.state = make('span', { class: 'state' });
    this.spark = sparkline();
    this.element = make('li', { class: 'tile', 'data-tile': what.id },
      make('p', { class: 'label' }, make('span', {}, what.title), this.state), this.value, this.note, this.spark.svg);
  }

  show(history, now, past, window) {
    const { what } = this;
    const values = what.sum ? added(history, what.sum) : history.of(what.series);
    const value = what.linger ? history.last(what.series, what.linger) : values.at(-1) ?? null;
    const state = what.state({ value, now, past });
    setText(this.value, inUnit(value, what.unit));
    setText(this.note, what.note(now));
    setAttr(this.note, 'title', this.note.textContent);
    setText(this.state, state.word);
    setAttr(this.state, 'class', `state ${state.level}`);
    this.spark.show({ ...window, times: history.times, values });
  }
}

/** The sum of several series: null only where all of them are null. */
function added(history, prefix) {
  const all = history.names(prefix).map((name) => history.of(name));
  return history.times.map((_, i) => {
    const known = all.map((values) => values[i]).filter((value) => value !== null);
    return known.length || i > 0 ? known.reduce((a, b) => a + b, 0) : null;
  });
}

export class Tiles {
  constructor() {
    this.tiles = TILES.map((what) => new Tile(what));
    this.element = make('ul', { class: 'tiles', 'aria-label': 'Now' }, this.tiles.map(({ element }) => element));
  }

  show(...seen) {
    for (const tile of this.tiles) tile.show(...seen);
  }
}
