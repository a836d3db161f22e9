// @bluetick/client: everything that runs anywhere. `@bluetick/client/node.js` adds a storage in a file.

export { Client } from './client.js';
export { Conversation } from './conversation.js';
export { BluetickError } from './errors.js';
export { compareMessageIds, conversationId } from './ids.js';
export { Message } from './message.js';
export { indexedDbStorage } from './storage/indexeddb.js';
export { memoryStorage } from './storage/memory.js';

/** @typedef {import('./client.js').Options} Options */
/** @typedef {import('./client.js').Events} Events */
/** @typedef {import('./connection.js').ConnectionState} ConnectionState */
/** @typedef {import('./conversation.js').AttachmentUrl} AttachmentUrl */
/** @typedef {import('./conversation.js').Draft} Draft */
/** @typedef {import('./conversation.js').Presence} Presence */
/** @typedef {import('./conversation.js').Profile} Profile */
/** @typedef {import('./message.js').Attachment} Attachment */
/** @typedef {import('./message.js').Tick} Tick */
/** @typedef {import('./outbox.js').WireSend} WireSend */
/** @typedef {import('./storage/memory.js').OutboxRow} OutboxRow */
/** @typedef {import('./storage/memory.js').Saved} Saved */
/** @typedef {import('./storage/memory.js').Storage} Storage */
