/** @typedef {import('./thread.js').Frame} Frame */
/** @typedef {import('./message.js').Message} Message */
/** @typedef {import('./drafts.js').Item} Item */
/** @typedef {import('./outbox.js').Entry<Item>} Entry */
/** @typedef {import('./client.js').Events} Events */
/**
 * @typedef {object} Settings
 * @property {string} user
 * @property {string} base
 * @property {string | (() => string | Promise<string>)} token
 * @property {string | undefined} device
 * @property {import('./storage/memory.js').Storage} storage
 * @property {((message: Message) => void | Promise<void>) | undefined} receive
 * @property {boolean} presence
 * @property {boolean} autoRead
 * @property {import('./environment.js').Environment} environment
 * @property {() => any} client what handlers of `state` are given
 */
export class Core {
    /** @param {Settings} settings */
    constructor(settings: Settings);
    user: string;
    environment: import("./environment.js").Environment;
    /** @type {Emitter<Events>} */
    emitter: Emitter<Events>;
    /** @type {Sync<Item>} */
    sync: Sync<Item>;
    connection: Connection;
    http: Http;
    inbox: Inbox;
    /** @type {Map<string, Conversation>} */
    conversations: Map<string, Conversation>;
    device: string;
    caughtUp: boolean;
    connect(): void;
    disconnect(): void;
    close(): Promise<void>;
    deviceId(): Promise<string>;
    checkOpen(): void;
    /** @param {string} peer */
    conversation(peer: string): Conversation;
    /** @param {Frame} frame */
    ask(frame: Frame): Promise<Record<string, any>>;
    /** @param {Frame} frame */
    write(frame: Frame): void;
    watchSoon(): void;
    /** How far `read` goes by itself: with `receive` the stream must have brought it, else a page of history will do. @param {number} heard @param {number} loaded */
    readable(heard: number, loaded: number): number;
    /** @param {Conversation} conversation @param {import('./conversation.js').Draft} draft */
    compose(conversation: Conversation, draft: import("./conversation.js").Draft): import("./message.js").Message;
    /** @param {Conversation} conversation @param {Message} message */
    retry(conversation: Conversation, message: Message): void;
    /** @param {Conversation} conversation @param {Message} message */
    discard(conversation: Conversation, message: Message): void;
    /** What has to be said goes out after what has already come in: one ack then stands for many messages. */
    pumpSoon(): void;
    /** What the device remembers is written when nothing is left that it does not hold yet. */
    keepSoon(): void;
    /**
     * @template {keyof Events} K
     * @param {K} event
     * @param {Events[K]} args
     */
    emit<K extends keyof Events>(event: K, ...args: Events[K]): void;
    /** Something is worth a redraw; told once, however much happens at once. @param {Conversation | null} what */
    changed(what: Conversation | null): void;
    /** Of what nobody waits for. @param {Promise<unknown>} promise */
    quietly(promise: Promise<unknown>): void;
    #private;
}
export type Frame = import("./thread.js").Frame;
export type Message = import("./message.js").Message;
export type Item = import("./drafts.js").Item;
export type Entry = import("./outbox.js").Entry<Item>;
export type Events = import("./client.js").Events;
export type Settings = {
    user: string;
    base: string;
    token: string | (() => string | Promise<string>);
    device: string | undefined;
    storage: import("./storage/memory.js").Storage;
    receive: ((message: Message) => void | Promise<void>) | undefined;
    presence: boolean;
    autoRead: boolean;
    environment: import("./environment.js").Environment;
    /**
     * what handlers of `state` are given
     */
    client: () => any;
};
import { Emitter } from './emitter.js';
import { Sync } from './sync.js';
import { Connection } from './connection.js';
import { Http } from './http.js';
import { Inbox } from './inbox.js';
import { Conversation } from './conversation.js';
