


/** A message. Read it, key views on it; only the client changes it. */
export class Message {
    private constructor();
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
