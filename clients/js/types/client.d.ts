/** A client that keeps itself connected, its messages safe and its ticks right. */
export class Client {
    /** @param {Options} options */
    constructor(options: Options);
    /** Who this is. */
    get user(): string;
    /** The id of this device; empty until the storage is open, known when the client is online. */
    get device(): string;
    /** `waiting` is between two tries: see `retryAt`. `offline` is on purpose, or for the `reason` given. */
    get state(): import("./connection.js").ConnectionState;
    /** When the next try is made, in milliseconds since 1970; null if none is planned. */
    get retryAt(): number | null;
    /** Why there is no connection; null if there is one, or if it was not wanted. */
    get reason(): BluetickError | null;
    /** Whether everything that was waiting when the connection began is here. */
    get caughtUp(): boolean;
    /** What the server takes; known after the first connection. */
    get limits(): {
        maxBodyBytes: number;
    };
    /** Be online from now on, through every loss. While waiting for the next try, it is made at once. */
    connect(): void;
    /** Go offline. What is sent meanwhile waits. */
    disconnect(): void;
    /** Ends the client for good. What it could not send stays in the storage. @returns {Promise<void>} */
    close(): Promise<void>;
    /**
     * @template {keyof Events} K
     * @param {K} event
     * @param {(...args: Events[K]) => void} handler
     * @returns {() => void} takes the handler away again
     */
    on<K extends keyof Events>(event: K, handler: (...args: Events[K]) => void): () => void;
    /** The known conversations, newest first; unsent messages count as newest. @returns {Conversation[]} */
    get conversations(): Conversation[];
    /** Unread messages in the known conversations. */
    get unread(): number;
    /** The conversation with a user; it exists on the server with its first message. @param {string} peer @returns {Conversation} */
    conversation(peer: string): Conversation;
    /** Loads one page more of the list; the first is loaded by itself after each connect. @returns {Promise<{more: boolean}>} */
    loadInbox(): Promise<{
        more: boolean;
    }>;
    /** The same as `conversation(to).send(draft)`. @param {string} to @param {string | Draft} draft @returns {Message} */
    send(to: string, draft: string | Draft): Message;
    /** One's own profile. @returns {Promise<Profile>} */
    profile(): Promise<Profile>;
    /** What is left out is removed. @param {{name?: string | null, avatarUrl?: string | null}} profile @returns {Promise<Profile>} */
    setProfile({ name, avatarUrl }: {
        name?: string | null;
        avatarUrl?: string | null;
    }): Promise<Profile>;
    /** The profile of somebody one shares a conversation with. @param {string} id @returns {Promise<Profile>} */
    userProfile(id: string): Promise<Profile>;
    /** Whom the user blocks. @returns {Promise<string[]>} */
    blocks(): Promise<string[]>;
    /** @param {string} user @returns {Promise<void>} */
    block(user: string): Promise<void>;
    /** @param {string} user @returns {Promise<void>} */
    unblock(user: string): Promise<void>;
    /** What is muted now. @returns {Promise<{conversationId: string, until: number | null}[]>} */
    mutes(): Promise<{
        conversationId: string;
        until: number | null;
    }[]>;
    /** No notifications of this conversation, for ever or until a time in milliseconds since 1970. @param {string} conversationId @param {number} [until] @returns {Promise<void>} */
    mute(conversationId: string, until?: number): Promise<void>;
    /** @param {string} conversationId @returns {Promise<void>} */
    unmute(conversationId: string): Promise<void>;
    /** Which providers of notifications the server has. @returns {Promise<{providers: string[], vapidPublicKey: string | null, content: string}>} */
    push(): Promise<{
        providers: string[];
        vapidPublicKey: string | null;
        content: string;
    }>;
    /** Registers this device for notifications; see docs/protocol.md, "Registering". Null takes the registration away. @param {Record<string, unknown> | null} registration @returns {Promise<void>} */
    registerPush(registration: Record<string, unknown> | null): Promise<void>;
    /** The devices that are registered for notifications. @returns {Promise<{device: string, provider: string, content: string, registeredAt: number}[]>} */
    devices(): Promise<{
        device: string;
        provider: string;
        content: string;
        registeredAt: number;
    }[]>;
}
export type Conversation = import("./conversation.js").Conversation;
export type Draft = import("./conversation.js").Draft;
export type Profile = import("./conversation.js").Profile;
export type ConnectionState = import("./connection.js").ConnectionState;
export type Message = import("./message.js").Message;
export type Storage = import("./storage/memory.js").Storage;
export type Options = {
    /**
     * the server's address, `https://chat.example`; the page's own origin if absent
     */
    url?: string | undefined;
    /**
     * who this is: the `sub` of the token
     */
    user: string;
    /**
     * or a function that gets one: called for every connection, and before a token ends
     */
    token: string | (() => string | Promise<string>);
    /**
     * a fixed device id; without it the storage has one
     */
    device?: string | undefined;
    /**
     * where the outbox is kept: IndexedDB in browsers, memory elsewhere, if absent
     */
    storage?: import("./storage/memory.js").Storage | undefined;
    /**
     * stores a message. It is awaited before the message is acked, and called again
     * if it fails. Only with it the device's place in the stream is kept across restarts; it may then see a message again after a crash
     */
    receive?: ((message: Message) => void | Promise<void>) | undefined;
    /**
     * whether to hear of the peers' coming and going; true if absent
     */
    presence?: boolean | undefined;
    /**
     * whether every message counts as read when it comes: for bots; false if absent
     */
    autoRead?: boolean | undefined;
    /**
     * where there is none: Node before 22
     */
    WebSocket?: (new (url: string) => WebSocket) | undefined;
    fetch?: typeof fetch | undefined;
    /**
     * for tests
     */
    random?: (() => number) | undefined;
    /**
     * for tests
     */
    now?: (() => number) | undefined;
    /**
     * for tests
     */
    setTimeout?: ((then: () => void, ms: number) => unknown) | undefined;
    /**
     * for tests
     */
    clearTimeout?: ((timer: any) => void) | undefined;
};
/**
 * What there is to listen to, and what a handler is given.
 *
 * - `state`: state, retryAt or reason are others now
 * - `caughtUp`: everything that was waiting when the connection began is here
 * - `message`: a message came, the peer's or one's own from another device. In order within its conversation, and once
 * - `sent`: the server has a message of one's own
 * - `failed`: a message was refused for good; it stays in its conversation until it is retried or discarded
 * - `ticks`: somebody (the user id) has received or read more
 * - `typing`, `presence`: of the conversation's peer
 * - `change`: anything worth a redraw, of a conversation, or (null) of the list and the connection. Told once however much happens at once
 * - `reset`: the device was away for too long; inbox and histories are being loaded anew
 * - `frame`: everything that goes over the wire, tokens blanked; for debugging
 * - `error`: something failed that nobody waits for, or a handler threw; without a handler it goes to the console
 */
export type Events = {
    state: [client: Client];
    caughtUp: [];
    message: [message: Message, conversation: Conversation];
    sent: [message: Message];
    failed: [message: Message, error: BluetickError];
    ticks: [conversation: Conversation, userId: string];
    typing: [conversation: Conversation];
    presence: [conversation: Conversation];
    change: [conversation: Conversation | null];
    reset: [];
    frame: [traced: {
        direction: "in" | "out";
        frame: Record<string, any>;
    }];
    error: [error: BluetickError];
};
import { BluetickError } from './errors.js';
