// Times for people. Formatters are made once: making one costs more than using it a hundred times.

const clock = new Intl.DateTimeFormat([], { hour: '2-digit', minute: '2-digit' });
const weekday = new Intl.DateTimeFormat([], { weekday: 'long' });
const shortWeekday = new Intl.DateTimeFormat([], { weekday: 'short' });
const shortDay = new Intl.DateTimeFormat([], { day: 'numeric', month: 'short' });
const longDay = new Intl.DateTimeFormat([], { day: 'numeric', month: 'long' });
const dayAndYear = new Intl.DateTimeFormat([], { day: 'numeric', month: 'long', year: 'numeric' });
const digits = new Intl.DateTimeFormat([], { day: '2-digit', month: '2-digit', year: '2-digit' });
const full = new Intl.DateTimeFormat([], { dateStyle: 'full', timeStyle: 'medium' });

export const clockTime = (ms) => clock.format(ms);
export const fullTime = (ms) => full.format(ms);

/** Local midnight of that day: equal for two times of one day. */
export function dayStart(ms) {
  const day = new Date(ms);
  return day.setHours(0, 0, 0, 0);
}

/** The number of midnights between then and now. Rounded, because a day may have 23 or 25 hours. */
export function daysAgo(ms, now = Date.now()) {
  return Math.round((dayStart(now) - dayStart(ms)) / 86_400_000);
}

/** Today, Yesterday, Tuesday, 3 May, 3 May 2024. */
export function dayName(ms, now = Date.now()) {
  const ago = daysAgo(ms, now);
  if (ago === 0) return 'Today';
  if (ago === 1) return 'Yesterday';
  if (ago > 1 && ago < 7) return weekday.format(ms);
  return new Date(ms).getFullYear() === new Date(now).getFullYear() ? longDay.format(ms) : dayAndYear.format(ms);
}

/** For one line of a list: 14:03, Yesterday, Tue, 3 May, 03/05/24. */
export function shortTime(ms, now = Date.now()) {
  const ago = daysAgo(ms, now);
  if (ago <= 0) return clock.format(ms);
  if (ago === 1) return 'Yesterday';
  if (ago < 7) return shortWeekday.format(ms);
  return new Date(ms).getFullYear() === new Date(now).getFullYear() ? shortDay.format(ms) : digits.format(ms);
}

/** last seen today at 14:03 */
export function lastSeen(ms, now = Date.now()) {
  if (now - ms < 60_000) return 'last seen just now';
  const ago = daysAgo(ms, now);
  const day = ago === 0 ? 'today' : ago === 1 ? 'yesterday' : ago < 7 ? weekday.format(ms) : shortDay.format(ms);
  return `last seen ${day} at ${clock.format(ms)}`;
}
