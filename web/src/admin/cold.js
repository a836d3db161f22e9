// The size of the cold tier, on request: the server scans its runs in pages, and each answer names the next page.

import { make, setText } from '../lib/dom.js';
import { bytes, exact, moment } from './format.js';

const BEGIN = {
  after: null, conversations: 0, runs: 0, messages: 0, bytes: 0, oldest_ts: null, newest_ts: null, place: '', whole: false,
  progress: { began_at: null, ended_at: null, shard: null, looked_at: 0, moved: { messages: 0, hot_bytes: 0, objects: 0, cold_bytes: 0 }, last_error: null },
};

export class ColdStatus {
  constructor(api) {
    this.api = api;
    this.button = make('button', { class: 'press small', type: 'button', onclick: () => this.#count() }, 'Count what is cold');
    this.said = make('p', { class: 'said', role: 'status' });
    this.facts = make('dl', { class: 'facts' });
    this.element = make('div', { class: 'cold' }, make('div', { class: 'bar' }, this.button, this.said), this.facts);
  }

  async #count() {
    this.button.disabled = true;
    try {
      let survey = BEGIN;
      while (!survey.whole) {
        survey = await this.api.post('cold/status', survey);
        setText(this.said, `${exact(survey.runs)} runs so far…`);
      }
      setText(this.said, '');
      this.#show(survey);
    } catch (error) {
      setText(this.said, error.message);
    } finally {
      this.button.disabled = false;
    }
  }

  clear() {
    setText(this.said, '');
    this.facts.replaceChildren();
  }

  #show(survey) {
    const each = survey.messages ? ` (${(survey.bytes / survey.messages).toFixed(1)} B a message)` : '';
    const facts = {
      Objects: survey.place,
      Conversations: exact(survey.conversations),
      Runs: exact(survey.runs),
      Messages: exact(survey.messages),
      Bytes: `${bytes(survey.bytes)}${each}`,
      Oldest: when(survey.oldest_ts),
      Newest: when(survey.newest_ts),
      'This server': doing(survey.progress),
    };
    if (survey.progress.last_error) facts['Last error'] = survey.progress.last_error;
    this.facts.replaceChildren(...Object.entries(facts).map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, value))));
  }
}

const when = (ts) => (ts === null ? '–' : moment(ts));

function doing({ shard, ended_at, looked_at, moved }) {
  const what = shard !== null ? `moving, in shard ${shard}` : ended_at !== null ? `last looked ${moment(ended_at)}` : 'has not looked yet';
  return `${what}; ${exact(looked_at)} conversations looked at, ${exact(moved.messages)} messages moved since it began`;
}
