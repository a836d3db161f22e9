// Runs a script against an adapter and compares what the client did with what the script demands.
// README.md describes the format.

/** Fields of a frame that a client may choose. */
const FREE_FIELDS = new Set(['ref', 'limit', 'token', 'optional']);
/** Requests that a client may make at any time for its own purposes. */
const FREE_REQUESTS = new Set(['inbox', 'status', 'watch', 'ping']);
const ORDERED = ['hello', 'auth', 'send'];
const RECEIPTS = ['ack', 'read'];

/** What a client did differs from what the script demands. */
export class Difference extends Error {}

/**
 * Runs one script to its first difference, which it throws.
 *
 * @param {any} script
 * @param {(event: any) => Promise<any>} apply gives an event to the adapter and returns its report
 * @param {{strict?: boolean}} [options] `strict` also requires the frames that are marked as optional
 */
export async function runScript(script, apply, { strict = false } = {}) {
  const comparison = new Comparison(strict, script.user);
  const { user, device, tokens } = script;
  await apply({ event: 'start', user, device, tokens });
  for (const [n, step] of script.steps.entries()) {
    const { out, told, state, as, ...event } = comparison.bind(step);
    const report = await apply(comparison.deliverable(event));
    try {
      if (report.error) throw new Difference(`the adapter failed: ${report.error}`);
      comparison.step(step, report);
    } catch (error) {
      if (!(error instanceof Difference)) throw error;
      throw new Difference(`step ${n + 1} (${step.event}): ${error.message}\n    the client did ${text(report)}`);
    }
  }
}

class Comparison {
  #strict;
  #user;
  /** What each `$name` stands for: the value that stood in its place the first time. @type {Map<string, any>} */
  #bound = new Map();
  /** The highest ack of each conversation: saying it again is always allowed. @type {Map<string, number>} */
  #acked = new Map();

  /** @param {boolean} strict @param {string} user */
  constructor(strict, user) {
    this.#strict = strict;
    this.#user = user;
  }

  /** Replaces every placeholder that is bound by now. @param {any} value @returns {any} */
  bind(value) {
    if (typeof value === 'string') return this.#bound.has(value) ? this.#bound.get(value) : value;
    if (Array.isArray(value)) return value.map((item) => this.bind(item));
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, key === 'as' ? item : this.bind(item)]));
  }

  /**
   * An answer to a request that the client did not make is left out. The numbers of a `status` reach the client as
   * `ticks` then: it may learn them in its own way.
   *
   * @param {any} event
   */
  deliverable(event) {
    if (event.event !== 'frames') return event;
    const frames = event.frames.flatMap((/** @type {any} */ frame) => {
      if (typeof frame.ref !== 'string' || !frame.ref.startsWith('$')) return [frame];
      return frame.type === 'status' ? ticksOf(frame, this.#user) : [];
    });
    return { ...event, frames };
  }

  /** @param {any} step @param {any} report */
  step(step, report) {
    if (step.as) this.#bound.set(step.as, report.client_msg_id);
    this.#frames(step.out ?? [], (report.frames ?? []).map((/** @type {any} */ frame) => (frame.type === 'send' ? withReceiver(frame, this.#user) : frame)));
    const told = this.bind(step.told === undefined ? [] : step.told);
    if (told !== null && !isSame(told, report.told)) throw new Difference(`the application must be told ${text(told)}`);
    this.#state(step.state ?? {}, report.state ?? {}, 'state');
  }

  /** Sends keep their order, receipts count by their highest seq, and requests come in any order. @param {any[]} expected @param {any[]} actual */
  #frames(expected, actual) {
    for (const kind of ORDERED) {
      const [wanted, given] = [expected, actual].map((frames) => frames.filter(({ type }) => type === kind));
      if (wanted.length !== given.length) throw new Difference(`${wanted.length} frames "${kind}" must go out, not ${given.length}`);
      wanted.forEach((frame, n) => this.#frame(frame, given[n]));
    }
    this.#receipts(expected, actual);
    this.#requests(expected, actual);
  }

  /** @param {any[]} expected @param {any[]} actual */
  #receipts(expected, actual) {
    const given = highest(actual);
    for (const [key, frame] of highest(expected)) {
      const found = given.get(key);
      given.delete(key);
      if (!found && this.#isOptional(frame)) continue;
      if (!found) throw new Difference(`${text(frame)} must go out`);
      this.#frame(frame, found);
      if (frame.type === 'ack') this.#acked.set(frame.conversation_id, frame.seq);
    }
    for (const frame of given.values()) {
      const isRepetition = frame.type === 'ack' && frame.seq <= (this.#acked.get(frame.conversation_id) ?? 0);
      if (!isRepetition) throw new Difference(`${text(frame)} must not go out`);
    }
  }

  /** @param {any[]} expected @param {any[]} actual */
  #requests(expected, actual) {
    const isRequest = (/** @type {any} */ { type }) => !ORDERED.includes(type) && !RECEIPTS.includes(type);
    const rest = actual.filter(isRequest);
    for (const frame of expected.filter(isRequest)) {
      const at = rest.findIndex((given) => this.#differs(frame, given) === null);
      if (at >= 0) this.#bindRef(frame, rest.splice(at, 1)[0]);
      else if (!this.#isOptional(frame)) throw new Difference(`${text(this.bind(frame))} must go out`);
    }
    const extra = rest.find(({ type, after_seq }) => !FREE_REQUESTS.has(type) && !(type === 'history' && after_seq === undefined));
    if (extra) throw new Difference(`${text(extra)} must not go out`);
  }

  /** @param {any} frame */
  #isOptional(frame) {
    return frame.optional === true && !this.#strict;
  }

  /** @param {any} wanted @param {any} given */
  #frame(wanted, given) {
    const difference = this.#differs(wanted, given);
    if (difference !== null) throw new Difference(difference);
    this.#bindRef(wanted, given);
  }

  /** @param {any} wanted @param {any} given @returns {string | null} */
  #differs(wanted, given) {
    for (const [key, value] of Object.entries(wanted)) {
      if (key === 'ref' || key === 'optional') continue;
      if (!isSame(given[key], this.bind(value))) return `${text(this.bind(wanted))} must go out, not ${text(given)}`;
    }
    const extra = Object.keys(given).find((key) => !FREE_FIELDS.has(key) && !(key in wanted));
    if (extra !== undefined) return `${text(given)} must not have "${extra}"`;
    const ref = wanted.ref === undefined ? undefined : this.#bound.get(wanted.ref);
    return ref === undefined || ref === given.ref ? null : `${text(given)} must have the ref ${text(ref)}`;
  }

  /** @param {any} wanted @param {any} given */
  #bindRef(wanted, given) {
    if (wanted.ref !== undefined && given.ref !== undefined) this.#bound.set(wanted.ref, given.ref);
  }

  /** What the script names must be as it says; what it does not name is not compared. @param {any} expected @param {any} actual @param {string} path */
  #state(expected, actual, path) {
    for (const [key, value] of Object.entries(expected)) {
      const given = actual?.[key];
      if (value !== null && typeof value === 'object' && !Array.isArray(value)) this.#state(value, given, `${path}.${key}`);
      else if (!isSame(given, this.bind(value))) throw new Difference(`${path}.${key} must be ${text(this.bind(value))}, not ${text(given)}`);
    }
  }
}

/** The highest receipt of each kind and conversation. @param {any[]} frames @returns {Map<string, any>} */
function highest(frames) {
  const found = new Map();
  for (const frame of frames.filter(({ type }) => RECEIPTS.includes(type))) {
    const key = `${frame.type} ${frame.conversation_id}`;
    if (frame.seq >= (found.get(key)?.seq ?? 0)) found.set(key, frame);
  }
  return found;
}

/** The same numbers as two `ticks` frames. @param {any} status @param {string} user */
function ticksOf({ conversation_id, own, peer }, user) {
  const ticks = (/** @type {string} */ user_id, /** @type {any} */ boundaries) => ({ type: 'ticks', conversation_id, user_id, ...boundaries });
  return [ticks(user, own), ticks(otherMember(conversation_id, user), peer)];
}

/** @param {string} conversationId @param {string} user @returns {string} */
function otherMember(conversationId, user) {
  return conversationId.split('~').find((member) => member !== user) ?? user;
}

/** A send may name its conversation instead of the receiver. @param {any} frame @param {string} user */
function withReceiver({ conversation_id, ...frame }, user) {
  return { ...frame, to: frame.to ?? otherMember(conversation_id, user) };
}

/** @param {any} value */
function text(value) {
  return JSON.stringify(value);
}

/** @param {any} a @param {any} b @returns {boolean} */
function isSame(a, b) {
  if (a === null || b === null || typeof a !== 'object' || typeof b !== 'object') return a === b;
  const keys = Object.keys(a);
  return Array.isArray(a) === Array.isArray(b) && keys.length === Object.keys(b).length && keys.every((key) => isSame(a[key], b[key]));
}
