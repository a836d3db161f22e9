// Texts about users: names, presence, errors; and the check of user ids.

import { lastSeen } from '../lib/time.js';

export const nameOf = (peer) => peer.name?.trim() || peer.userId;

/** What is wrong with a user id, or null. The server's rule: docs/protocol.md, "Ids". */
export function wrongUserId(id) {
  if (!id) return 'Type a user id.';
  const strange = /[^A-Za-z0-9._@+|:=-]/u.exec(id);
  if (strange) return `A user id has letters a–z, digits and . _ - @ + | : = only, ${/\s/u.test(strange[0]) ? 'and no spaces' : `not “${strange[0]}”`}.`;
  return id.length > 128 ? 'A user id has at most 128 characters.' : null;
}

/** The line under a name: [text, whether the user is online]. */
export function presenceLine(conversation, online) {
  if (conversation.typing) return ['typing…', true];
  const { presence } = conversation;
  if (!online || !presence) return ['', false];
  if (presence.online) return ['online', true];
  return [presence.lastSeen ? lastSeen(presence.lastSeen) : 'offline', false];
}

/** The text of an error for users. */
export function words(error) {
  const known = {
    offline: 'There is no connection to the server.',
    blocked: 'You block this user. Unblock them to write.',
    body_too_large: 'The message is too long.',
    client_msg_id_conflict: 'A message with this id was sent before, with another content.',
    to_self: 'You cannot write to yourself.',
    invalid_id: 'This is not a valid user id.',
    attachment_too_large: 'The file is larger than this server takes.',
    type_refused: 'This server does not take files of this type.',
    upload_failed: 'The upload broke off.',
    upload_mismatch: 'The file changed while it was being sent.',
    upload_too_slow: 'The upload was too slow.',
    quota_exceeded: 'You have uploaded as much as this server allows.',
    not_uploaded: 'The upload did not complete.',
    unsupported: 'This server does not take files.',
    rate_limited: 'Too many messages in a short time.',
    storage_full: 'The server’s disk is full.',
    unavailable: 'The server cannot store messages at the moment.',
    not_found: 'It is not there any more.',
  };
  return known[error?.code] ?? (error?.message ? `${error.message[0].toUpperCase()}${error.message.slice(1)}.`.replace(/\.\.$/, '.') : 'It did not work.');
}
