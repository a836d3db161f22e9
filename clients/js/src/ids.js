// The ids of the protocol: how they look, how they compare, how new ones are made.

import { BluetickError } from './errors.js';

const USER_ID = /^[A-Za-z0-9._@+|:=-]{1,128}$/;
const DEVICE = /^[A-Za-z0-9._@-]{1,64}$/;
const CLIENT_MSG_ID = /^[\x21-\x7e]{1,64}$/;

/** @param {unknown} id @param {string} what @returns {string} */
export function checkId(id, what) {
  if (typeof id !== 'string' || !USER_ID.test(id)) {
    throw new BluetickError('invalid_id', `${what} must be 1 to 128 of A-Z a-z 0-9 . _ - @ + | : =`);
  }
  return id;
}

/** @param {unknown} id @returns {string} */
export function checkDevice(id) {
  if (typeof id !== 'string' || !DEVICE.test(id)) {
    throw new BluetickError('invalid_id', 'device must be 1 to 64 of A-Z a-z 0-9 . _ - @');
  }
  return id;
}

/** @param {unknown} id @returns {string} */
export function checkClientMsgId(id) {
  if (typeof id !== 'string' || !CLIENT_MSG_ID.test(id)) {
    throw new BluetickError('invalid_id', 'clientMsgId must be 1 to 64 visible ASCII characters');
  }
  return id;
}

/** @param {string} one @param {string} other */
export function conversationId(one, other) {
  return one < other ? `${one}~${other}` : `${other}~${one}`;
}

/** The other member, or null if `user` is no member. @param {string} conversation @param {string} user */
export function peerOf(conversation, user) {
  const [one, other] = conversation.split('~');
  if (one === user) return other ?? null;
  return other === user ? one : null;
}

/** Message ids are numbers beyond what a double holds: by length, then by characters. @param {string} a @param {string} b */
export function compareMessageIds(a, b) {
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
}

/** @param {string | null} a @param {string | null} b */
export function laterId(a, b) {
  if (a === null || b === null) return a ?? b;
  return compareMessageIds(a, b) >= 0 ? a : b;
}

/** 128 random bits in hexadecimal. `randomUUID` is missing on plain http; `getRandomValues` is not. */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
