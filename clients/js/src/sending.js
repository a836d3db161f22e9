// The life of an own message, from draft to confirmation: stored, uploaded, sent, failed, retried.

import { compose, isTooOld, messageOf, rowOf } from './drafts.js';
import { BluetickError, asError } from './errors.js';
import { conversationId } from './ids.js';
import { OUTBOX_MAX } from './outbox.js';
import { Uploads } from './uploads.js';

/** @typedef {import('./thread.js').Frame} Frame */
/** @typedef {import('./conversation.js').Conversation} Conversation */
/** @typedef {import('./message.js').Message} Message */
/** @typedef {import('./outbox.js').Entry<import('./drafts.js').Item>} Entry */

export class Sending {
  #core;
  #persistence;
  #uploads;
  #lastN = 0;
  /** Uploads that wait for a connection. @type {Set<() => void>} */
  #waitingForOnline = new Set();

  /** @param {import('./core.js').Core} core @param {import('./persistence.js').Persistence} persistence */
  constructor(core, persistence) {
    this.#core = core;
    this.#persistence = persistence;
    this.#uploads = new Uploads(core.environment, core.http, (signal) => this.#online(signal));
  }

  /** Restores the outbox of an earlier process. @param {import('./storage/memory.js').OutboxRow[]} rows */
  restore(rows) {
    const now = this.#core.environment.now();
    /** @type {Map<Conversation, Message[]>} */
    const queued = new Map();
    /** @type {Entry[]} */
    const entries = [];
    for (const row of rows) {
      if (this.#core.sync.outbox.get(row.id)) continue;
      const conversation = this.#core.conversation(row.send.to);
      const sent = conversation._sentMessage(row.id);
      const message = sent ?? messageOf(row, conversation, this.#core.user);
      const failed = row.failed ?? (isTooOld(row, now) ? { code: 'too_old', message: 'it waited too long: send it again if it is still wanted' } : undefined);
      const progress = failed ? 'failed' : row.file && !row.send.attachment ? 'uploading' : 'waiting';
      this.#lastN = Math.max(this.#lastN, row.n);
      if (sent && progress !== 'waiting') {
        // The server has it, and it would not be sent again.
        this.#persistence.remove(row.id);
        continue;
      }
      if (failed) message._failed(new BluetickError(failed.code, failed.message));
      if (!sent) queued.set(conversation, [...(queued.get(conversation) ?? []), message]);
      const item = { message, n: row.n, file: row.file, thumbnail: row.thumbnail, abort: null };
      entries.push({ send: row.send, progress, refusals: 0, isStored: sent !== undefined, item });
    }
    this.#core.sync.outbox.restore(entries);
    for (const [conversation, messages] of queued) conversation._restore(messages);
    for (const entry of entries) if (entry.progress === 'uploading') void this.#upload(entry);
  }

  /** Takes over the outbox of a closed tab. @param {import('./storage/memory.js').OutboxRow[]} rows */
  inherit(rows) {
    // The rows are in this device's storage, where the next process finds them.
    if (this.#core.isClosed) return;
    this.restore(rows.sort((a, b) => a.n - b.n));
    this.#core.changed(null);
    this.#core.pumpSoon();
  }

  /** @param {Conversation} conversation @param {import('./conversation.js').Draft} draft */
  compose(conversation, draft) {
    this.#core.checkOpen();
    const now = this.#core.environment.now();
    const made = compose(draft, conversation, this.#core.user, now, this.#core.sync.maxBodyBytes);
    const known = this.#core.sync.outbox.get(made.send.client_msg_id);
    if (known) return known.item.message;
    if (this.#core.sync.outbox.size >= OUTBOX_MAX) throw new BluetickError('outbox_full', 'too many messages wait to be sent');
    this.#lastN = Math.max(this.#lastN + 1, now * 1000);
    // Fixed now: the author has not seen what arrives before the message is sent.
    made.send.seen_seq = this.#core.sync.thread(conversation.id).heard;
    const item = { message: made.message, n: this.#lastN, file: draft.file, thumbnail: draft.thumbnail, abort: null };
    const entry = this.#core.sync.outbox.push(made.send, 'saving', item);
    conversation._queue(made.message);
    this.#core.changed(null);
    void this.#save(entry);
    return made.message;
  }

  /** Stores the message before anything of it is sent. @param {Entry} entry */
  async #save(entry) {
    try {
      const early = !this.#core.isOpen;
      await this.#core.opened;
      if (early) entry.send.seen_seq = this.#core.sync.thread(conversationId(this.#core.user, entry.send.to)).heard;
      await this.#persistence.put(rowOf(entry));
    } catch (error) {
      if (this.#still(entry)) {
        entry.progress = 'failed';
        this.onFailed(entry, asError(error, 'storage_failed'));
      }
      return;
    }
    if (!this.#still(entry)) {
      // If the same id was sent again meanwhile, the row belongs to that message.
      if (!this.#core.sync.outbox.get(entry.send.client_msg_id)) this.#persistence.remove(entry.send.client_msg_id);
      return;
    }
    if (entry.item.message.attachment && !entry.send.attachment) return void this.#upload(entry);
    entry.progress = 'waiting';
    this.#core.pumpSoon();
  }

  /** @param {Entry} entry */
  #still(entry) {
    return this.#core.sync.outbox.get(entry.send.client_msg_id) === entry;
  }

  /** Uploads the file, then sends the message that refers to it. @param {Entry} entry */
  async #upload(entry) {
    const { item } = entry;
    const conversation = this.#core.conversation(entry.send.to);
    entry.progress = 'uploading';
    item.abort = new AbortController();
    try {
      await this.#uploads.run(item, item.abort.signal, () => this.#core.changed(conversation));
      if (!this.#still(entry) || this.#core.isClosed) return;
      const { s3Ref, thumbnail, blurhash, voice } = /** @type {import('./message.js').Attachment} */ (item.message.attachment);
      entry.send.attachment = { s3_ref: s3Ref, ...(thumbnail && { thumbnail }), ...(blurhash && { blurhash }), ...(voice && { voice }) };
      entry.progress = 'saving';
      await this.#save(entry);
    } catch (error) {
      if (!this.#still(entry) || this.#core.isClosed) return;
      entry.progress = 'failed';
      this.onFailed(entry, asError(error, 'upload_failed'));
    }
  }

  /** The server has stored it: shows it as sent. @param {Entry} entry @param {Frame} wire */
  onStored(entry, wire) {
    const { message } = entry.item;
    const conversation = this.#core.conversation(entry.send.to);
    entry.item.abort?.abort();
    const isNew = conversation.lastSeq === 0;
    message._wasSent(wire);
    conversation._sent(message, !wire.duplicate);
    if (isNew) this.#core.onNewConversation();
    this.#core.changed(null);
    this.#core.emit('sent', message);
  }

  /** It is confirmed and leaves the storage. @param {Entry} entry */
  onDone(entry) {
    this.#persistence.remove(entry.send.client_msg_id);
  }

  /** @param {Entry} entry @param {BluetickError} error */
  onFailed(entry, error) {
    const { message } = entry.item;
    message._failed(error);
    this.#core.changed(this.#core.conversation(entry.send.to));
    this.#persistence.put(rowOf(entry)).catch((/** @type {unknown} */ e) => {
      // A failing storage is reported already.
      if (error.code !== 'storage_failed') this.#core.report(e);
    });
    this.#core.emit('failed', message, error);
  }

  /** @param {Conversation} conversation @param {Message} message */
  retry(conversation, message) {
    this.#core.checkOpen();
    const entry = this.#core.sync.outbox.get(message.clientMsgId);
    if (entry?.item.message !== message || entry.progress !== 'failed') return this.#core.connection.nudge();
    const bytesAreGone = message.error?.code === 'not_uploaded' && entry.item.file !== undefined;
    message._retried();
    // It moves behind the messages that were written since.
    this.#core.sync.outbox.remove(message.clientMsgId);
    this.#lastN += 1;
    const item = { ...entry.item, n: this.#lastN };
    if (bytesAreGone && message.attachment) {
      delete entry.send.attachment;
      // The thumbnail is as old, and gone as well.
      const { thumbnail: gone, ...attachment } = message.attachment;
      message.attachment = { ...attachment, s3Ref: '' };
    }
    conversation._unqueue(message);
    conversation._queue(message);
    void this.#save(this.#core.sync.outbox.push(entry.send, 'saving', item));
  }

  /** @param {Conversation} conversation @param {Message} message */
  discard(conversation, message) {
    const entry = this.#core.sync.outbox.get(message.clientMsgId);
    if (entry?.item.message !== message || entry.isStored) return;
    this.#core.sync.outbox.discard(message.clientMsgId);
    entry.item.abort?.abort();
    conversation._unqueue(message);
    message._failed(new BluetickError('aborted', 'the message was taken back'));
    this.#persistence.remove(message.clientMsgId);
    this.#core.changed(null);
    this.#core.pumpSoon();
  }

  /** Resolves when there is a connection, with whether it had to wait. @param {AbortSignal} signal @returns {Promise<boolean>} */
  #online(signal) {
    return new Promise((resolve, reject) => {
      const aborted = () => {
        this.#waitingForOnline.delete(done);
        reject(new BluetickError('aborted', 'the upload was taken back'));
      };
      const done = () => {
        signal.removeEventListener('abort', aborted);
        resolve(true);
      };
      if (signal.aborted) return aborted();
      if (this.#core.sync.isUp) return resolve(false);
      signal.addEventListener('abort', aborted, { once: true });
      this.#waitingForOnline.add(done);
    });
  }

  /** A connection is up: starts the uploads that waited for it. */
  connected() {
    for (const done of this.#waitingForOnline) done();
    this.#waitingForOnline.clear();
  }

  /** The client is closed; unsent messages stay in the storage. @param {BluetickError} error */
  close(error) {
    for (const { item, progress } of this.#core.sync.outbox.entries) {
      item.abort?.abort();
      if (progress !== 'failed') item.message._closed(error);
    }
  }
}
