


/** A message. Read it, key views on it; only the client changes it. */
export class Message {
    private constructor();
    /** `alice~bob` */
    conversationId: string;
    /** The sender's id of the message, the same on every retry. */
    clientMsgId: string;
    sender: string;
    receiver: string;
    body: string;
    /** Milliseconds since 1970: when the server stored it, and before that when it was written. */
    ts: number;
    /** Whether the client's user wrote it, on any device. */
    own: boolean;
    /** Its position in the conversation; null until the server has it. */
    seq: number | null;
    /** Null until the server has it. */
    messageId: string | null;
    /** The application's own data. */
    meta: Record<string, unknown> | undefined;
    attachment: Attachment | undefined;
    /** The file, on the device that sends it, for a preview. */
    file: Blob | undefined;
    /** Why it failed, if it did. @type {BluetickError | undefined} */
    error: BluetickError | undefined;
    /** How much of its file is uploaded, 0 to 1. @type {number | undefined} */
    progress: number | undefined;
    /**
     * Its delivery status: `waiting` (in the outbox), `sent` (one tick), `delivered` (two), `read` (two blue), `failed`;
     * `received` for the peer's messages.
     *
     * @returns {Tick}
     */
    get tick(): Tick;
    /** For own messages: resolves when the server has stored it, rejects when it failed for good or was discarded. @returns {Promise<Message>} */
    get sent(): Promise<Message>;
}
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
