// Converts between a draft, the frame that is sent, the message that is shown, and the row that is stored.

import { BluetickError } from './errors.js';
import { checkClientMsgId, randomId } from './ids.js';
import { Message, attachmentOf } from './message.js';

/** The server remembers a client_msg_id for 30 days; an older message is not sent automatically. */
const OUTBOX_AGE_MAX_MS = 30 * 24 * 3600 * 1000;

/** @typedef {import('./conversation.js').Conversation} Conversation */
/** @typedef {import('./storage/memory.js').OutboxRow} OutboxRow */
/**
 * What the client keeps with each outbox entry.
 *
 * @typedef {object} Item
 * @property {Message} message
 * @property {number} n
 * @property {Blob | undefined} file kept until the message is sent: the server deletes unreferenced uploads after a day
 * @property {Blob | undefined} thumbnail
 * @property {AbortController | null} abort of the running upload
 */

/** Replaces unpaired surrogates, which are not valid text. @param {string} text */
function wellFormed(text) {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(new TextEncoder().encode(text));
}

/** @param {unknown} meta @returns {Record<string, unknown>} */
function checkMeta(meta) {
  const text = JSON.stringify(meta);
  if (typeof meta !== 'object' || meta === null || Array.isArray(meta) || text === undefined) {
    throw new BluetickError('bad_request', 'meta must be an object');
  }
  // JSON.stringify escapes a surrogate only if it is unpaired.
  if (/(?<!\\)(?:\\\\)*\\ud[89a-f]/i.test(text)) throw new BluetickError('bad_request', 'meta has half a surrogate pair');
  if (new TextEncoder().encode(text).length > 4096) throw new BluetickError('bad_request', 'meta is longer than 4096 bytes');
  // A copy, independent of later changes by the application.
  return JSON.parse(text);
}

/**
 * @param {import('./conversation.js').Draft} draft
 * @param {Conversation} conversation
 * @param {string} user
 * @param {number} now
 * @param {number} maxBodyBytes
 */
export function compose(draft, conversation, user, now, maxBodyBytes) {
  const body = wellFormed(draft.body ?? '');
  if (body === '' && !draft.file && !draft.attachment) throw new BluetickError('empty_body', 'there is nothing to send');
  if (new TextEncoder().encode(body).length > maxBodyBytes) {
    throw new BluetickError('body_too_large', `the body is longer than ${maxBodyBytes} bytes`);
  }
  const clientMsgId = draft.clientMsgId === undefined ? randomId() : checkClientMsgId(draft.clientMsgId);
  const to = conversation.peer.userId;
  /** @type {import('./outbox.js').WireSend} */
  const send = { client_msg_id: clientMsgId, to, body, seen_seq: 0 };
  if (draft.meta !== undefined) send.meta = checkMeta(draft.meta);
  const attachment = attachmentFor(draft);
  if (attachment?.s3Ref) {
    const { s3Ref, blurhash, thumbnail, voice } = attachment;
    send.attachment = { s3_ref: s3Ref, ...(blurhash && { blurhash }), ...(thumbnail && { thumbnail }), ...(voice && { voice }) };
  }
  const fields = { conversationId: conversation.id, clientMsgId, sender: user, receiver: to, body, ts: now, own: true, seq: null, messageId: null };
  const message = new Message({ ...fields, meta: send.meta, attachment, file: draft.file }, conversation._tickOf);
  return { send, message };
}

/** @param {import('./conversation.js').Draft} draft @returns {import('./message.js').Attachment | undefined} */
function attachmentFor(draft) {
  const { file, attachment, blurhash, voice } = draft;
  if (attachment) return { name: '', mime: 'application/octet-stream', bytes: 0, sha256: '', ...attachment };
  if (!file) return undefined;
  const name = draft.name ?? /** @type {{name?: string}} */ (file).name ?? 'file';
  const mime = file.type || 'application/octet-stream';
  return { s3Ref: '', name, mime, bytes: file.size, sha256: '', ...(blurhash && { blurhash }), ...(voice && { voice }) };
}

/** The stored row of an entry. @param {import('./outbox.js').Entry<Item>} entry @returns {OutboxRow} */
export function rowOf({ send, item: { message, n, file, thumbnail } }) {
  const { error, attachment, ts } = message;
  return {
    id: send.client_msg_id,
    n,
    ts,
    send: { ...send },
    ...(file && { file }),
    ...(thumbnail && { thumbnail }),
    ...(attachment && { attachment: { ...attachment } }),
    ...(error && { failed: { code: error.code, message: error.message } }),
  };
}

/** The message of a stored row. @param {OutboxRow} row @param {Conversation} conversation @param {string} user */
export function messageOf(row, conversation, user) {
  const { client_msg_id: clientMsgId, to, body, meta, attachment: wire } = row.send;
  const attachment = row.attachment ?? (wire && attachmentOf(wire));
  const fields = { conversationId: conversation.id, clientMsgId, sender: user, receiver: to, body, ts: row.ts, own: true, seq: null, messageId: null };
  const message = new Message({ ...fields, meta, attachment, file: row.file }, conversation._tickOf);
  if (row.file && wire) message.progress = 1;
  return message;
}

/** @param {OutboxRow} row @param {number} now */
export function isTooOld(row, now) {
  return now - row.ts > OUTBOX_AGE_MAX_MS;
}
