// The admin API, with the operator's key. The key is kept as long as the tab, and sent only to /admin/v1/ of this server.

const KEPT = 'bluetick-admin-key';
const PATIENCE_MS = 10_000;

/** A request that failed. `status` is 0 if there was no answer. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export class Api {
  #key = null;

  constructor() {
    try {
      this.#key = sessionStorage.getItem(KEPT);
    } catch { /* storage is forbidden here: the key lasts as long as the page */ }
  }

  get hasKey() {
    return this.#key !== null;
  }

  setKey(key) {
    this.#key = key;
    try {
      if (key === null) sessionStorage.removeItem(KEPT);
      else sessionStorage.setItem(KEPT, key);
    } catch { /* as above */ }
  }

  /** Rows, reports: JSON. */
  async get(path) {
    return (await this.#ask(path)).json();
  }

  async text(path) {
    return (await this.#ask(path)).text();
  }

  async post(path, body) {
    const headers = body === undefined ? {} : { 'content-type': 'application/json' };
    const answer = await this.#ask(path, { method: 'POST', headers, body: body === undefined ? undefined : JSON.stringify(body) });
    return answer.json();
  }

  /** A streamed answer: the caller reads its body and ends it by the signal. */
  stream(path, signal) {
    return this.#ask(path, { headers: { accept: 'text/event-stream' } }, signal);
  }

  /** Whether the server accepts messages. Needs no key. */
  async ready() {
    const answer = await reach('/readyz', {}, AbortSignal.timeout(PATIENCE_MS));
    return answer.json();
  }

  async #ask(path, init = {}, signal = AbortSignal.timeout(PATIENCE_MS)) {
    const headers = { ...init.headers, authorization: `Bearer ${this.#key}` };
    const answer = await reach(`/admin/v1/${path}`, { ...init, headers }, signal);
    if (answer.ok) return answer;
    const said = await answer.json().catch(() => null);
    throw new Refused(answer.status, said?.error?.code ?? 'unknown', said?.error?.message ?? `the server answered ${answer.status}`);
  }
}

async function reach(path, init, signal) {
  try {
    return await fetch(path, { ...init, signal, cache: 'no-store', credentials: 'omit' });
  } catch (error) {
    if (signal.aborted && signal.reason?.name !== 'TimeoutError') throw signal.reason;
    const why = error.name === 'TimeoutError' ? 'the server does not answer' : 'the server cannot be reached';
    throw new Refused(0, 'unreachable', why);
  }
}
