/** A conversation with one other user. Get it from `client.conversation(peer)`. */
export class Conversation {
    private constructor();
    /** `alice~bob` */
    id: string;
    /** The other member. The name is null until the inbox has told it, or if there is none. */
    get peer(): Profile;
    /** What is loaded, in order and without a gap, then what waits in the outbox, in order. @returns {Message[]} */
    get messages(): Message[];
    /** How many of the peer's messages the user has not read. */
    get unread(): number;
    /** The last message on one line. */
    get preview(): string;
    /** When the last message was written; 0 if there is none. */
    get lastTs(): number;
    /** Who wrote the last message. */
    get lastSender(): string | null;
    /** The seq of the newest message that the server has; 0 if there is none. */
    get lastSeq(): number;
    /** The tick of the last message, null if it is the peer's. @returns {Tick | null} */
    get lastTick(): Tick | null;
    /** Whether the peer is writing just now. */
    get typing(): boolean;
    /** Null while it is not known. */
    get presence(): Presence | null;
    /** Whether the newest page is loaded. */
    get loaded(): boolean;
    /** Whether a page is on its way. */
    get loading(): boolean;
    /** Whether there is more to load above. */
    get hasEarlier(): boolean;
    /** Up to which seq the user has read. */
    get ownRead(): number;
    /** Up to which seq the peer has received. */
    get peerDelivered(): number;
    /** Up to which seq the peer has read. */
    get peerRead(): number;
    /** Loads the newest page, once; from then on what comes is appended. Waits while offline. @returns {Promise<void>} */
    load(): Promise<void>;
    /** Loads the page above. @returns {Promise<void>} */
    loadEarlier(): Promise<void>;
    /**
     * Sends. The message is in `messages` at once, with the tick `waiting`; it is stored on the device before it goes out,
     * and goes out as often as it takes. With a `file` that is uploaded first.
     *
     * @param {string | Draft} draft
     * @returns {Message}
     * @throws {BluetickError} `empty_body`, `body_too_large`, `bad_request`, `to_self`, `outbox_full` or `closed`
     */
    send(draft: string | Draft): Message;
    /**
     * The user has seen the peer's messages up to `seq`, or all that are here. Said offline, it is kept.
     *
     * @param {number} [seq] beyond the newest known message it means that one
     * @throws {BluetickError} `bad_request` if it is not a positive integer
     */
    read(seq?: number): void;
    /** The user is typing. Call it with every key: it is said every few seconds. */
    setTyping(): void;
    /** Tries a failed message again, or one that waits. @param {Message} message */
    retry(message: Message): void;
    /** Takes a failed or waiting message out of the outbox. The server may have it already; then it comes back as sent. @param {Message} message */
    discard(message: Message): void;
    /** Where the file of a message can be loaded from, for a few minutes. @param {Message} message @returns {Promise<AttachmentUrl>} */
    attachmentUrl(message: Message): Promise<AttachmentUrl>;
    /** The same of its thumbnail. @param {Message} message @returns {Promise<AttachmentUrl>} */
    thumbnailUrl(message: Message): Promise<AttachmentUrl>;
}
export type Tick = import("./message.js").Tick;
export type Profile = {
    userId: string;
    name: string | null;
    avatarUrl: string | null;
};
export type Presence = {
    online: boolean;
    lastSeen: number | null;
};
export type AttachmentUrl = {
    url: string;
    expiresAt: number;
    name: string;
    mime: string;
    bytes: number;
    sha256: string;
};
/**
 * What to send. One of `body`, `attachment` and `file` must be there.
 */
export type Draft = {
    body?: string | undefined;
    /**
     * yours: at most 4 KiB of JSON
     */
    meta?: Record<string, unknown> | undefined;
    /**
     * uploaded before
     */
    attachment?: ({
        s3Ref: string;
    } & Partial<import("./message.js").Attachment>) | undefined;
    /**
     * uploaded first, then sent; a `File` brings its name
     */
    file?: Blob | undefined;
    /**
     * of the file, where it has none
     */
    name?: string | undefined;
    /**
     * the file was spoken for this message
     */
    voice?: boolean | undefined;
    blurhash?: string | undefined;
    /**
     * a small picture of the file, uploaded with it
     */
    thumbnail?: Blob | undefined;
    /**
     * the same id always means the same message. Made up if absent; derive it from what you
     * answer to, and an answer given twice is sent once
     */
    clientMsgId?: string | undefined;
};
import { Message } from './message.js';
