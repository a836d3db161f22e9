/** @internal @param {Frame} wire @param {string} user @returns {MessageFields} */
export function fieldsOf(wire: Frame, user: string): MessageFields;
/** @internal @param {Frame} wire @returns {Attachment} */
export function attachmentOf(wire: Frame): Attachment;
/** The line that stands for a message in a list, as the server makes it. @internal @param {{body: string, attachment?: Attachment}} message */
export function previewOf({ body, attachment }: {
    body: string;
    attachment?: Attachment;
}): string;
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
    /** @internal @param {MessageFields} fields @param {(message: Message) => Tick} tickOf */
    constructor(fields: MessageFields, tickOf: (message: Message) => Tick);
    /** `alice~bob` */
    conversationId: string;
    /** The sender's own id for it, the same on every retry. */
    clientMsgId: string;
    sender: string;
    receiver: string;
    body: string;
    /** Milliseconds since 1970: when the server stored it, and before that when it was written. */
    ts: number;
    /** Whether the client's own user wrote it, on whatever device. */
    own: boolean;
    /** Its position in the conversation; null until the server has it. */
    seq: number | null;
    /** Null until the server has it. */
    messageId: string | null;
    /** What the application put beside it. */
    meta: Record<string, unknown> | undefined;
    attachment: Attachment | undefined;
    /** The file that is being sent, on the device that sends it: for a preview. */
    file: Blob | undefined;
    /** Why it failed, if it did. @type {BluetickError | undefined} */
    error: BluetickError | undefined;
    /** How much of its file is uploaded, 0 to 1. @type {number | undefined} */
    progress: number | undefined;
    /**
     * How far it has come: `waiting` (in the outbox), `sent` (one tick), `delivered` (two), `read` (two blue), `failed`;
     * of the peer's messages `received`.
     *
     * @returns {Tick}
     */
    get tick(): Tick;
    /** Of own messages: done when the server has it, rejected when it failed for good or was discarded. @returns {Promise<Message>} */
    get sent(): Promise<Message>;
    /** The server has it. @internal @param {Frame} wire */
    _wasSent(wire: Frame): void;
    /** @internal @param {BluetickError} error */
    _failed(error: BluetickError): void;
    /** Nobody will try it any more in this life of the client. @internal @param {BluetickError} error */
    _closed(error: BluetickError): void;
    /** It is tried again: `sent` begins anew. @internal */
    _retried(): void;
    #private;
}
export type Frame = import("./thread.js").Frame;
export type Tick = "waiting" | "sent" | "delivered" | "read" | "failed" | "received";
/**
 * A file that a message refers to.
 */
export type Attachment = {
    /**
     * empty while the file is not uploaded
     */
    s3Ref: string;
    name: string;
    mime: string;
    bytes: number;
    sha256: string;
    blurhash?: string | undefined;
    /**
     * the `s3Ref` of a small picture of it
     */
    thumbnail?: string | undefined;
    voice?: boolean | undefined;
};
export type MessageFields = {
    conversationId: string;
    clientMsgId: string;
    sender: string;
    receiver: string;
    body: string;
    ts: number;
    own: boolean;
    seq: number | null;
    messageId: string | null;
    meta?: Record<string, unknown> | undefined;
    attachment?: Attachment | undefined;
    file?: Blob | undefined;
};
import { BluetickError } from './errors.js';
