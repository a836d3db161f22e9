// /tour: real phones, the rows behind them and the steps between, of this running server. Phones are clients of the SDK,
// and steps come from the server's event stream with the rows they wrote. The server works at full speed; the timeline
// replays steps, rows and phones together.

import { addressHasDemoKey, hasDemoKey, takeDemoKey } from '../lib/demo.js';
import { make } from '../lib/dom.js';
import { icon } from '../lib/icons.js';
import { applyTheme } from '../lib/theme.js';
import { drawLegend } from './legend.js';
import { choosePeople } from './people.js';
import { Phones } from './phones.js';
import { Rail } from './rail.js';
import { Rows, fetchRows } from './rows.js';
import { Runs } from './runs.js';
import { STEPS, peerOf } from './steps.js';
import { Stream } from './stream.js';
import { Tables } from './tables.js';
import { Telling } from './telling.js';
import { Timeline } from './timeline.js';
import { drawTools } from './tools.js';
import { Walk } from './walk.js';

/** No step for so long, and a walk's step is over. */
const CALM_MS = 350;

const at = (selector) => document.querySelector(selector);

class Tour {
  constructor() {
    this.runs = new Runs();
    this.waiting = new Set();
    this.lastEvent = 0;
    this.gapMs = null;
    this.story = null;
    this.timeline = new Timeline(() => this.tools?.replay.draw(this.timeline));
    this.rail = new Rail(at('.rail'), (step) => this.telling.about(step));
    this.telling = new Telling(at('.telling'));
    this.tables = new Tables(at('.tables'));
    this.phones = new Phones({ left: at('.left'), right: at('.right'), pick: at('.pick') }, this.timeline);
    this.rows = new Rows((rows) => this.tables.show(rows), () => this.timeline.isPaused || this.timeline.waiting > 0);
    this.stream = new Stream({ event: (event) => this.arrived(event), open: (open) => this.opened(open), refused: () => this.leave() });
    this.tools = drawTools(at('.tools'), {
      pause: () => this.togglePause(),
      step: () => { if (this.timeline.isPaused) this.timeline.step(); },
      speed: (gapMs) => { this.gapMs = gapMs; this.setGap(); },
      carol: (on) => this.setCarol(on),
      over: () => this.startOver(),
    });
    this.tools.replay.draw(this.timeline);
    this.walk = new Walk(at('.walk'), {
      stage: () => this.stage(),
      begin: (story) => this.tell(story),
      end: () => this.tell(null),
      settled: () => this.settled(),
      quiet: (ms) => this.quiet(ms),
      point: (tables) => this.tables.point(tables),
    });
    drawLegend(at('.legend'));
  }

  /** Starts with these users and an empty page. */
  async meet(users) {
    this.users = users;
    this.timeline.clear();
    this.timeline.play();
    this.runs = new Runs();
    this.rail.clear();
    this.telling.clear();
    this.tables.empty();
    this.stream.close();
    await this.phones.meet(users);
    // They connect before the stream opens: the page starts with two connected phones.
    await this.phones.start();
    await Promise.all([this.stream.follow(users), this.rows.of(users)]);
    document.body.dataset.ready = users[0];
  }

  /** The server does not accept the key any more: it was restarted. */
  async leave() {
    this.rows.users = [];
    this.walk.end();
    await Promise.all(this.phones.all.map((phone) => phone.end()));
    explain();
  }

  async startOver() {
    delete document.body.dataset.ready;
    this.walk.end();
    await this.meet(await choosePeople({ fresh: true }));
  }

  togglePause() {
    if (this.timeline.isPaused) this.timeline.play();
    else this.timeline.pause();
  }

  /** The visitor's speed counts; at the speed "live" a story has one of its own. */
  setGap() { this.timeline.setGap(this.gapMs ?? this.story?.gapMs ?? null); }

  setCarol(on) {
    this.tools.carol.set(on);
    this.phones.setCarol(on);
  }

  /** A story begins, or (null) ends. */
  tell(story) {
    this.story = story;
    this.waiting.clear();
    this.setGap();
    if (story) this.timeline.play();
    else this.tables.point([]);
  }

  opened(open) {
    document.body.dataset.stream = open ? 'open' : 'lost';
    this.rail.lost(!open);
    if (open) this.rows.soon();
  }

  /** The server took a step. It is shown when its turn comes. */
  arrived(event) {
    this.lastEvent = performance.now();
    for (const waits of this.waiting) waits(event);
    if (!(event.step in STEPS)) return;
    this.rows.arrived();
    this.timeline.addStep(event.at, () => this.show(event));
  }

  show(event) {
    this.lastEvent = performance.now();
    this.rows.apply(event);
    const run = this.runs.take(event);
    this.rail.show(run, event.step);
    const row = this.rows.now?.pending_deliveries.find((one) => one.receiver_id === run.to && one.conversation_id === event.conversation_id) ?? null;
    const to = run.to ?? event.user ?? '';
    this.telling.happened(event, { event, row, to, from: run.from ?? peerOf(event.conversation_id, to) ?? '' });
    this.tables.light(STEPS[event.step].tables);
    this.rows.soon();
  }

  /** What a story can use. */
  stage() {
    const [alice, bob] = this.phones.all;
    return { alice: this.phones.held(alice), bob: this.phones.held(bob), after: (step, user) => this.after(step, user) };
  }

  /** The next such event of this user. */
  after(step, user) {
    return new Promise((resolve) => {
      const waits = (event) => {
        if (event.step !== step || event.user !== user) return;
        this.waiting.delete(waits);
        resolve(event);
      };
      this.waiting.add(waits);
    });
  }

  /** No step was taken or shown for so long, and none waits. */
  async quiet(ms, since = performance.now()) {
    const past = () => performance.now() - Math.max(this.lastEvent, since) > ms && this.timeline.isEmpty;
    while (!past()) await new Promise((resolve) => setTimeout(resolve, 60));
  }

  /** Every step so far is shown, and the rows are current. */
  async settled() {
    await this.quiet(CALM_MS, 0);
    await this.rows.reconcile();
  }
}

/** This server shows no rows to this page: it is not in demo mode, or the page lacks the current key. */
function explain() {
  at('main').replaceChildren(make('section', { class: 'absent' },
    make('h2', {}, hasDemoKey() ? 'This address is from an earlier start of the server' : 'The tour needs the address that the server printed'),
    make('p', {}, 'The tour shows the rows of the store and signs in as any user. So the server offers it in demo mode only, on its own machine, at the address that it prints when it starts. ',
      'That address ends with ', make('code', {}, '/tour#demo='), ' and a key that changes with each start.'),
    make('p', {}, 'Start ', make('code', {}, 'bluetick'), ' without a configuration on your own machine and open the address that it prints. ',
      make('a', { href: '/v1/docs' }, 'API documentation of this server'))));
}

/** Whether this server shows rows to this page. Retries while it does not answer. */
async function showsRows() {
  for (;;) {
    try {
      return await fetchRows(['alice', 'bob', 'carol']) !== null;
    } catch { await new Promise((resolve) => setTimeout(resolve, 1000)); }
  }
}

async function main() {
  applyTheme();
  takeDemoKey();
  addEventListener('hashchange', () => { if (addressHasDemoKey()) location.reload(); });
  at('.logo').append(icon('logo'));
  if (!await showsRows()) { explain(); return; }
  const tour = new Tour();
  await tour.meet(await choosePeople());
}

main();
