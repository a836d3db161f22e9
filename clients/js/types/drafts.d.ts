/**
 * @param {import('./conversation.js').Draft} draft
 * @param {Conversation} conversation
 * @param {string} user
 * @param {number} now
 * @param {number} maxBodyBytes
 */
export function compose(draft: import("./conversation.js").Draft, conversation: Conversation, user: string, now: number, maxBodyBytes: number): {
    send: import("./outbox.js").WireSend;
    message: Message;
};
/** As it is stored. @param {import('./outbox.js').Entry<Item>} entry @returns {OutboxRow} */
export function rowOf({ send, item: { message, n, file, thumbnail } }: import("./outbox.js").Entry<Item>): OutboxRow;
/** As it is shown after a restart. @param {OutboxRow} row @param {Conversation} conversation @param {string} user */
export function messageOf(row: OutboxRow, conversation: Conversation, user: string): Message;
/** @param {OutboxRow} row @param {number} now */
export function isTooOld(row: OutboxRow, now: number): boolean;
export type Conversation = import("./conversation.js").Conversation;
export type OutboxRow = import("./storage/memory.js").OutboxRow;
/**
 * What is kept with each message of the outbox.
 */
export type Item = {
    message: Message;
    n: number;
    /**
     * what is left to upload
     */
    file: Blob | undefined;
    thumbnail: Blob | undefined;
    /**
     * of the upload under way
     */
    abort: AbortController | null;
};
import { Message } from './message.js';
