// The users on this page: Alice, Bob and Carol, with a number if those names have been used on this server. Unused names
// have empty tables. The number is in the address, so a reload shows the same users.

import { fetchRows, isEmpty } from './rows.js';

const NAMES = ['alice', 'bob', 'carol'];
const MOST = 500;

export const people = (n) => NAMES.map((name) => (n > 1 ? `${name}${n}` : name));

/** The name without its number. */
export const called = (user) => `${user[0].toUpperCase()}${user.slice(1).replace(/\d+$/, '')}`;

export function numberInAddress() {
  const n = Number(new URLSearchParams(location.search).get('n'));
  return Number.isInteger(n) && n >= 1 && n <= 99_999 ? n : null;
}

const KEY = 'bluetick-tour-n';

/** The last number that this browser used: the search for an unused one begins there. */
function lastNumber() {
  try { return Number(localStorage.getItem(KEY)) || 0; } catch { return 0; }
}

function keep(n) {
  try { localStorage.setItem(KEY, n); } catch { /* storage is forbidden here: the search is longer next time */ }
  const query = new URLSearchParams(location.search);
  query.set('n', n);
  history.replaceState(null, '', `?${query}`);
}

/** The first unused number after `after`. */
async function unused(after) {
  for (let n = after + 1; n <= after + MOST; n += 1) {
    const rows = await fetchRows(people(n));
    if (!rows || isEmpty(rows)) return n;
  }
  return 1000 + Math.floor(Math.random() * 98_000);
}

/** The users of this page. `fresh`: not those in the address. */
export async function choosePeople({ fresh = false } = {}) {
  const kept = numberInAddress();
  const n = kept && !fresh ? kept : await unused(kept ?? lastNumber());
  keep(n);
  return people(n);
}
