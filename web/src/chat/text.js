// The text of a message: URLs become links, and a message of a few emoji is shown large.

import { make } from '../lib/dom.js';

// Only http and https, at the start of a word; anything else stays text.
const LINK = /\bhttps?:\/\/[^\s<>"'`\u200b\u202a-\u202e\u2066-\u2069]+/giu;
const TAIL = /[.,:;!?…*_~|]+$/u;

/** The text as nodes, with its URLs as links. */
export function textNodes(text) {
  const nodes = [];
  let done = 0;
  for (const found of text.matchAll(LINK)) {
    const address = trimmed(found[0]);
    if (!isSafe(address)) continue;
    nodes.push(text.slice(done, found.index), make('a', { href: address, target: '_blank', rel: 'noopener noreferrer nofollow' }, address));
    done = found.index + address.length;
  }
  nodes.push(text.slice(done));
  return nodes.filter((node) => node !== '');
}

/** Without a trailing full stop, and without a closing bracket that belongs to the sentence. */
function trimmed(address) {
  let short = address.replace(TAIL, '');
  for (const [open, close] of ['()', '[]', '{}']) {
    while (short.endsWith(close) && short.split(close).length > short.split(open).length) short = short.slice(0, -1).replace(TAIL, '');
  }
  return short;
}

function isSafe(address) {
  try { return /^https?:$/.test(new URL(address).protocol); } catch { return false; }
}

const EMOJI = /^[\p{Extended_Pictographic}\p{Emoji_Modifier}\p{Regional_Indicator}\u200d\ufe0f\u20e3\s]+$/u;
const MOST_EMOJI = 5;

export function isOnlyEmoji(text) {
  if (!text || text.length > 80 || !EMOJI.test(text) || !/\S/u.test(text)) return false;
  const letters = typeof Intl.Segmenter === 'function' ? [...new Intl.Segmenter().segment(text.replace(/\s/gu, ''))] : [...text];
  return letters.length <= MOST_EMOJI;
}
