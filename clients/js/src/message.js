// One message, own or the peer's. The object stays the same while its tick, seq and progress change.

import { BluetickError } from './errors.js';

/** @typedef {import('./thread.js').Frame} Frame */
/** @typedef {'waiting' | 'sent' | 'delivered' | 'read' | 'failed' | 'received'} Tick */
/**
 * A file that a message refers to.
 *
 * @typedef {object} Attachment
 * @property {string} s3Ref empty while the file is not uploaded
 * @property {string} name
 * @property {string} mime
 * @property {number} bytes
 * @property {string} sha256
 * @property {string} [blurhash]
 * @property {string} [thumbnail] the `s3Ref` of a small picture of it
 * @property {boolean} [voice]
 */
/**
 * @internal
 * @typedef {object} MessageFields
 * @property {string} conversationId
 * @property {string} clientMsgId
 * @property {string} sender
 * @property {string} receiver
 * @property {string} body
 * @property {number} ts
 * @property {boolean} own
 * @property {number | null} seq
 * @property {string | null} messageId
 * @property {Record<string, unknown>} [meta]
 * @property {Attachment} [attachment]
 * @property {Blob} [file]
 */

/** A message. Read it, key views on it; only the client changes it. */
export class Message {
  #tickOf;
  /** @type {Promise<Message> | undefined} */
  #sent;
  /** @type {((result: BluetickError | null) => void) | undefined} */
  #settle;
  /** @type {BluetickError | undefined} */
  #closed;

  /** @internal @param {MessageFields} fields @param {(message: Message) => Tick} tickOf */
  constructor(fields, tickOf) {
    this.#tickOf = tickOf;
    /** `alice~bob` */
    this.conversationId = fields.conversationId;
    /** The sender's id of the message, the same on every retry. */
    this.clientMsgId = fields.clientMsgId;
    this.sender = fields.sender;
    this.receiver = fields.receiver;
    this.body = fields.body;
    /** Milliseconds since 1970: when the server stored it, and before that when it was written. */
    this.ts = fields.ts;
    /** Whether the client's user wrote it, on any device. */
    this.own = fields.own;
    /** Its position in the conversation; null until the server has it. */
    this.seq = fields.seq;
    /** Null until the server has it. */
    this.messageId = fields.messageId;
    /** The application's own data. */
    this.meta = fields.meta;
    this.attachment = fields.attachment;
    /** The file, on the device that sends it, for a preview. */
    this.file = fields.file;
    /** Why it failed, if it did. @type {BluetickError | undefined} */
    this.error = undefined;
    /** How much of its file is uploaded, 0 to 1. @type {number | undefined} */
    this.progress = fields.file ? 0 : undefined;
  }

  /**
   * Its delivery status: `waiting` (in the outbox), `sent` (one tick), `delivered` (two), `read` (two blue), `failed`;
   * `received` for the peer's messages.
   *
   * @returns {Tick}
   */
  get tick() {
    return this.#tickOf(this);
  }

  /** For own messages: resolves when the server has stored it, rejects when it failed for good or was discarded. @returns {Promise<Message>} */
  get sent() {
    if (this.#sent) return this.#sent;
    if (this.seq !== null) return (this.#sent = Promise.resolve(this));
    const hopeless = this.error ?? this.#closed;
    this.#sent = hopeless
      ? Promise.reject(hopeless)
      : new Promise((resolve, reject) => {
          this.#settle = (error) => (error ? reject(error) : resolve(this));
        });
    // A caller that does not use the promise need not handle its rejection.
    this.#sent.catch(() => {});
    return this.#sent;
  }

  /** The server has it. @internal @param {Frame} wire */
  _wasSent(wire) {
    this.seq = wire.seq;
    this.messageId = wire.message_id;
    this.ts = wire.ts;
    // It was given up but had arrived: a later caller gets a resolved promise.
    if (this.error) this.#sent = undefined;
    this.error = undefined;
    this.progress = undefined;
    this.#settle?.(null);
  }

  /** @internal @param {BluetickError} error */
  _failed(error) {
    this.error = error;
    this.#settle?.(error);
    this.#settle = undefined;
  }

  /** The client was closed; this process does not try it again. @internal @param {BluetickError} error */
  _closed(error) {
    this.#closed = error;
    this.#settle?.(error);
  }

  /** It is retried: `sent` is a new promise. @internal */
  _retried() {
    this.error = undefined;
    this.#sent = undefined;
  }
}

/** @internal @param {Frame} wire @param {string} user @returns {MessageFields} */
export function fieldsOf(wire, user) {
  return {
    conversationId: wire.conversation_id,
    clientMsgId: wire.client_msg_id,
    sender: wire.sender,
    receiver: wire.receiver,
    body: wire.body,
    ts: wire.ts,
    own: wire.sender === user,
    seq: wire.seq,
    messageId: wire.message_id,
    meta: wire.meta,
    attachment: wire.attachment && attachmentOf(wire.attachment),
  };
}

/** @internal @param {Frame} wire @returns {Attachment} */
export function attachmentOf(wire) {
  const { s3_ref: s3Ref, ...rest } = wire;
  return /** @type {Attachment} */ ({ s3Ref, ...rest });
}

/** The preview line of a message in a list, in the server's format. @internal @param {{body: string, attachment?: Attachment}} message */
export function previewOf({ body, attachment }) {
  const kind = attachment && kindOf(attachment);
  const text = kind && body ? `${kind}: ${body}` : kind || body;
  const line = text.replace(/[\s\u0000-\u001f\u007f-\u009f]+/g, ' ').trim();
  const characters = [...line];
  return characters.length > 80 ? `${characters.slice(0, 80).join('')}…` : line;
}

/** @param {Attachment} attachment */
function kindOf({ voice, mime, name }) {
  if (/^image\//i.test(mime)) return 'Photo';
  if (/^video\//i.test(mime)) return 'Video';
  return voice && /^audio\//i.test(mime) ? 'Voice message' : name;
}
