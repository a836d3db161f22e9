/** A client that stays connected, keeps unsent messages, and keeps ticks current. */
export class Client {
    /** @param {Options} options */
    constructor(options: Options);
    /** The user of this client. */
    get user(): string;
    /** The id of this device; empty until the storage is open, known when the client is online. */
    get device(): string;
    /** `waiting` is the delay before the next attempt: see `retryAt`. `offline` is on purpose, or for the given `reason`. */
    get state(): import("./connection.js").ConnectionState;
    /** The time of the next attempt, in milliseconds since 1970; null if none is planned. */
    get retryAt(): number | null;
    /** Why there is no connection; null if there is one, or if the application disconnected. */
    get reason(): BluetickError | null;
    /** Whether everything that was pending when the connection began has arrived. */
    get caughtUp(): boolean;
    /** The server's limits, known after the first connection. */
    get limits(): {
        maxBodyBytes: number;
    };
    /** Goes online, and reconnects after every loss. During the delay before the next attempt, connects at once. */
    connect(): void;
    /** Goes offline. Messages that are sent meanwhile wait. */
    disconnect(): void;
    /** Ends the client. Unsent messages stay in the storage. @returns {Promise<void>} */
    close(): Promise<void>;
    /**
     * @template {keyof Events} K
     * @param {K} event
     * @param {(...args: Events[K]) => void} handler
     * @returns {() => void} removes the handler
     */
    on<K extends keyof Events>(event: K, handler: (...args: Events[K]) => void): () => void;
    /** The known conversations, newest first; unsent messages count as newest. @returns {Conversation[]} */
    get conversations(): Conversation[];
    /** Unread messages in the known conversations. */
    get unread(): number;
    /** The conversation with a user; it exists on the server from its first message on. @param {string} peer @returns {Conversation} */
    conversation(peer: string): Conversation;
    /** Loads one more page of the list; the first is loaded automatically after each connect. @returns {Promise<{more: boolean}>} */
    loadInbox(): Promise<{
        more: boolean;
    }>;
    /** The same as `conversation(to).send(draft)`. @param {string} to @param {string | Draft} draft @returns {Message} */
    send(to: string, draft: string | Draft): Message;
    /** The user's own profile. @returns {Promise<Profile>} */
    profile(): Promise<Profile>;
    /** Sets the user's profile; fields that are left out are removed. @param {{name?: string | null, avatarUrl?: string | null}} profile @returns {Promise<Profile>} */
    setProfile({ name, avatarUrl }: {
        name?: string | null;
        avatarUrl?: string | null;
    }): Promise<Profile>;
    /** The profile of a user with a common conversation. @param {string} id @returns {Promise<Profile>} */
    userProfile(id: string): Promise<Profile>;
    /** The users that the user blocks. @returns {Promise<string[]>} */
    blocks(): Promise<string[]>;
    /** @param {string} user @returns {Promise<void>} */
    block(user: string): Promise<void>;
    /** @param {string} user @returns {Promise<void>} */
    unblock(user: string): Promise<void>;
    /** The muted conversations. @returns {Promise<{conversationId: string, until: number | null}[]>} */
    mutes(): Promise<{
        conversationId: string;
        until: number | null;
    }[]>;
    /** Mutes notifications of this conversation, permanently or until a time in milliseconds since 1970. @param {string} conversationId @param {number} [until] @returns {Promise<void>} */
    mute(conversationId: string, until?: number): Promise<void>;
    /** @param {string} conversationId @returns {Promise<void>} */
    unmute(conversationId: string): Promise<void>;
    /** The notification providers of the server. @returns {Promise<{providers: string[], vapidPublicKey: string | null, content: string}>} */
    push(): Promise<{
        providers: string[];
        vapidPublicKey: string | null;
        content: string;
    }>;
    /** Registers this device for notifications; see docs/protocol.md, "Registering". Null removes the registration. @param {Record<string, unknown> | null} registration @returns {Promise<void>} */
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
     * or a function that returns one: called for every connection, and before a token expires
     */
    token: string | (() => string | Promise<string>);
    /**
     * a fixed device id; if absent, the storage has one
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
     * whether to watch the peers' presence; true if absent
     */
    presence?: boolean | undefined;
    /**
     * whether every message counts as read when it arrives, for bots; false if absent
     */
    autoRead?: boolean | undefined;
    /**
     * for platforms without one: Node before 22
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
 * The events, and the arguments of their handlers.
 *
 * - `state`: `state`, `retryAt` or `reason` changed
 * - `caughtUp`: everything that was pending when the connection began has arrived
 * - `message`: a message of the peer, or an own message from another device, arrived. Once, and in order within its conversation
 * - `sent`: the server has stored an own message
 * - `failed`: a message was refused for good; it stays in its conversation until it is retried or discarded
 * - `ticks`: a user (the user id) has received or read more
 * - `typing`, `presence`: the peer's typing or presence changed
 * - `change`: a conversation, or (null) the list or the connection, has to be drawn again. Emitted once per turn of the event loop
 * - `reset`: the cursor was too old; inbox and histories are being reloaded
 * - `frame`: every frame in both directions, without tokens, for debugging
 * - `error`: a background task failed, or a handler threw; without a handler it is logged to the console
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
