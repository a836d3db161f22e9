/** @param {unknown} id @param {string} what @returns {string} */
export function checkId(id: unknown, what: string): string;
/** @param {unknown} id @returns {string} */
export function checkDevice(id: unknown): string;
/** @param {unknown} id @returns {string} */
export function checkClientMsgId(id: unknown): string;
/** @param {string} one @param {string} other */
export function conversationId(one: string, other: string): string;
/** The other member, or null if `user` is no member. @param {string} conversation @param {string} user */
export function peerOf(conversation: string, user: string): string | null;
/** Message ids are numbers beyond what a double holds: by length, then by characters. @param {string} a @param {string} b */
export function compareMessageIds(a: string, b: string): number;
/** @param {string | null} a @param {string | null} b */
export function laterId(a: string | null, b: string | null): string | null;
/** 128 random bits in hexadecimal. `randomUUID` is missing on plain http; `getRandomValues` is not. */
export function randomId(): string;
