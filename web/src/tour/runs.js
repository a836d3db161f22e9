// Groups events into runs: the steps of one message, or of one phone that reconnects. The rail shows the newest run of
// each lane.

import { laneOf, peerOf, placeOf } from './steps.js';

const KEPT = 60;

/**
 * steps: how often each place of the lane was reached; named: by which step.
 * @typedef {{lane: string, from: string|null, to: string|null, seq: number|null, steps: Map<string, number>, named: Map<string, string>}} Run
 */

const newRun = (lane, facts) => ({ lane, from: null, to: null, seq: null, steps: new Map(), named: new Map(), ...facts });

export class Runs {
  constructor() {
    this.sends = new Map();   // by conversation and seq
    this.begun = new Map();   // by conversation: looked up, and no seq yet
    this.receives = new Map(); // by user
  }

  /** Adds an event to its run and returns the run; null for a step that this page does not know. */
  take(event) {
    const lane = laneOf(event.step);
    if (!lane) return null;
    const run = lane === 'send' ? this.send(event) : this.receive(event);
    const place = placeOf(event.step);
    run.steps.set(place, (run.steps.get(place) ?? 0) + 1);
    run.named.set(place, event.step);
    if (event.step === 'handed_over' && event.user) this.receives.set(event.user, newRun('receive', { to: event.user, from: run.from, seq: event.seq }));
    return run;
  }

  send(event) {
    const { conversation_id: conversation, seq, step } = event;
    if (step === 'looked_up') return this.begin(event);
    const key = `${conversation} ${seq}`;
    if (!this.sends.has(key)) {
      const run = this.begun.get(conversation)?.shift() ?? newRun('send', {});
      run.seq = seq;
      this.sends.set(key, run);
      if (this.sends.size > KEPT) this.sends.delete(this.sends.keys().next().value);
    }
    const run = this.sends.get(key);
    const isSender = step === 'stored' || step === 'sent';
    if (event.user) run[isSender ? 'from' : 'to'] ??= event.user;
    run.from ??= peerOf(conversation, run.to);
    run.to ??= peerOf(conversation, run.from);
    return run;
  }

  begin({ conversation_id: conversation, user, seq }) {
    const run = newRun('send', { to: user, from: peerOf(conversation, user), seq });
    if (seq != null) this.sends.set(`${conversation} ${seq}`, run);
    else this.begun.set(conversation, [...(this.begun.get(conversation) ?? []).slice(-KEPT), run]);
    return run;
  }

  receive({ step, user, conversation_id: conversation, seq }) {
    // A phone that reconnects continues the run in which it left.
    const left = this.receives.get(user)?.steps;
    const returns = step === 'registered' && !(left?.size === 1 && left.has('unregistered'));
    if (returns || step === 'unregistered' || !left) this.receives.set(user, newRun('receive', { to: user }));
    const run = this.receives.get(user);
    run.from ??= peerOf(conversation, user);
    run.seq = seq ?? run.seq;
    return run;
  }
}
