// One file, written like a log: a line for each change, and now and then a new file with what is left.

import { constants } from 'node:fs';
import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { randomId } from '../ids.js';

/** Lines beyond what is alive before the file is written anew. */
const SLACK = 1000;
/** Each write goes to the end, also after the file was cut. */
const ANEW = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_APPEND;

/** @typedef {import('./memory.js').OutboxRow} OutboxRow */
/** @typedef {{device: string, outbox: Map<string, OutboxRow>, kept: Map<string, any>}} Contents */
/** @typedef {{device: string, user: string} | {put: OutboxRow} | {remove: string} | {keep: Record<string, any>}} Line */

/**
 * Keeps a device in a file. For one process at a time. Files that wait to be uploaded are not kept: after a restart such a
 * message has failed with `aborted`.
 *
 * @param {string} path
 * @returns {import('./memory.js').Storage}
 */
export function fileStorage(path) {
  return {
    async open(user, device) {
      const contents = await read(path, user);
      if (device !== undefined) contents.device = device;
      const log = new Log(path, user, contents);
      await log.compact();
      return {
        device: contents.device,
        outbox: [...contents.outbox.values()],
        kept: Object.fromEntries(contents.kept),
        put: (row) => log.append({ put: storable(row) }),
        remove: (id) => log.append({ remove: id }),
        keep: (changes) => log.append({ keep: changes }),
        close: () => log.close(),
      };
    },
  };
}

/** @param {OutboxRow} row @returns {OutboxRow} */
function storable({ file, thumbnail, ...row }) {
  // Once it is uploaded, its bytes are there only for the case that the server lets go of its own.
  return file && !row.send.attachment ? { ...row, failed: { code: 'aborted', message: 'the file was not kept across a restart' } } : row;
}

/** @param {string} path @param {string} user @returns {Promise<Contents>} */
async function read(path, user) {
  const text = await readFile(path, 'utf8').catch((error) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  /** @type {Contents} */
  const contents = { device: `node-${randomId()}`, outbox: new Map(), kept: new Map() };
  const lines = text.split('\n');
  // What follows the last line feed was being written when the process ended: nobody was told that it is stored.
  lines.pop();
  for (const [at, line] of lines.entries()) {
    const change = parse(line);
    // The same is true of a last line that is there in part.
    if (change === null && at === lines.length - 1) break;
    if (change === null) throw new Error(`${path} is damaged: line ${at + 1} cannot be read`);
    if (change.user !== undefined && change.user !== user) throw new Error(`${path} belongs to ${change.user}, not to ${user}`);
    apply(contents, change);
  }
  return contents;
}

/** @param {string} line @returns {any} null if it is not one */
function parse(line) {
  try {
    const change = JSON.parse(line);
    return typeof change === 'object' ? change : null;
  } catch {
    return null;
  }
}

/** @param {Contents} contents @param {any} change */
function apply(contents, change) {
  if (change.device) contents.device = change.device;
  if (change.put) contents.outbox.set(change.put.id, change.put);
  if (change.remove !== undefined) contents.outbox.delete(change.remove);
  for (const [key, value] of Object.entries(change.keep ?? {})) {
    if (value === null) contents.kept.delete(key);
    else contents.kept.set(key, value);
  }
}

class Log {
  #path;
  #user;
  #contents;
  /** @type {import('node:fs/promises').FileHandle | null} */
  #file = null;
  /** Bytes that are told as stored. */
  #length = 0;
  /** A write failed: what follows these bytes may be a part of it. */
  #torn = false;
  #lines = 0;
  /** Changes that go out with the next write. @type {Line[]} */
  #waiting = [];
  /** @type {Promise<void> | null} */
  #next = null;
  /** @type {Promise<void>} */
  #last = Promise.resolve();

  /** @param {string} path @param {string} user @param {Contents} contents */
  constructor(path, user, contents) {
    this.#path = path;
    this.#user = user;
    this.#contents = contents;
  }

  /** Done when it is on the disk; what comes while a write is under way goes together with the next. @param {Line} line */
  append(line) {
    this.#waiting.push(line);
    this.#next ??= this.#last = this.#last.catch(() => {}).then(() => this.#write());
    return this.#next;
  }

  async #write() {
    const lines = this.#waiting;
    this.#waiting = [];
    this.#next = null;
    if (!this.#file) throw new Error(`${this.#path} is closed`);
    if (this.#torn) await this.#mend();
    const bytes = encode(lines);
    try {
      await this.#file.appendFile(bytes);
      await this.#file.datasync();
    } catch (error) {
      this.#torn = true;
      throw error;
    }
    this.#length += bytes.length;
    for (const line of lines) apply(this.#contents, line);
    this.#lines += lines.length;
    if (this.#lines > this.#alive() + SLACK) await this.#tidy();
  }

  /** Nothing is written behind half a line. */
  async #mend() {
    try {
      await this.#file?.truncate(this.#length);
      await this.#file?.datasync();
      this.#torn = false;
    } catch {
      await this.compact();
    }
  }

  /** What was asked for is stored already: if there is no room for a second file now, there may be later. */
  async #tidy() {
    try {
      await this.compact();
    } catch {
      this.#lines = this.#alive();
    }
  }

  #alive() {
    return this.#contents.outbox.size + 2;
  }

  /** A new file with what is left takes the place of the old at once, or not at all. */
  async compact() {
    const { device, outbox, kept } = this.#contents;
    const lines = [{ device, user: this.#user }, ...[...outbox.values()].map((put) => ({ put })), { keep: Object.fromEntries(kept) }];
    const bytes = encode(lines);
    await mkdir(dirname(this.#path), { recursive: true });
    const file = await open(`${this.#path}.new`, ANEW, 0o600);
    try {
      await file.writeFile(bytes);
      await file.sync();
      await rename(`${this.#path}.new`, this.#path);
    } catch (error) {
      await file.close().catch(() => {});
      throw error;
    }
    const old = this.#file;
    this.#file = file;
    this.#length = bytes.length;
    this.#torn = false;
    this.#lines = lines.length;
    await old?.close().catch(() => {});
    await syncDirectory(dirname(this.#path));
  }

  async close() {
    await this.#last.catch(() => {});
    // What cannot be cut off now is cut off at the next start.
    if (this.#torn) await this.#mend().catch(() => {});
    await this.#file?.close();
    this.#file = null;
  }
}

/** @param {Line[]} lines */
function encode(lines) {
  return Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
}

/** The new name has to reach the disk as well. @param {string} path */
async function syncDirectory(path) {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } catch {
    // Some systems do not sync directories.
  } finally {
    await directory.close();
  }
}
