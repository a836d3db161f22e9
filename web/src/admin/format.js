// Numbers and times for operators: short, and of a stable width.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

/** About three significant digits: 0.42, 3.5, 17, 1,204, 48.2k, 3.1M. */
export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${digits(value / 1e9)}G`;
  if (size >= 1e6) return `${digits(value / 1e6)}M`;
  if (size >= 1e4) return `${digits(value / 1e3)}k`;
  return size >= 100 || Number.isInteger(value) ? whole.format(value) : digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  const places = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.095 ? 2 : 3;
  return String(Number(value.toFixed(places)));
}

export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let at = 0;
  let left = value;
  while (Math.abs(left) >= 1024 && at < units.length - 1) {
    left /= 1024;
    at += 1;
  }
  return `${digits(left)} ${units[at]}`;
}

export function seconds(value) {
  if (value === 0) return '0 ms';
  if (value < 0.001) return `${digits(value * 1e6)} µs`;
  return value < 1 ? `${digits(value * 1e3)} ms` : `${digits(value)} s`;
}

/** By unit: the format of a number, and of an axis label. */
const UNITS = {
  count: short,
  rate: (value) => `${short(value)}/s`,
  seconds,
  bytes,
  byteRate: (value) => `${bytes(value)}/s`,
};

export const inUnit = (value, unit) => (value === null || value === undefined ? '–' : UNITS[unit](value));
export const exact = (value) => (value === null || value === undefined ? '–' : whole.format(value));
export const timeOfDay = (ms) => clock.format(ms);
export const timeToTheMs = (ms) => `${clock.format(ms)}.${String(ms % 1_000).padStart(3, '0')}`;

/** To the millisecond, as `bluetick trace` prints it. */
export const moment = (ms) => new Date(ms).toISOString();

/** 3 d 4 h, 4 h 12 min, 12 min 5 s, 5 s: the two largest units. */
export function duration(secs) {
  const parts = [['d', 86_400], ['h', 3_600], ['min', 60], ['s', 1]];
  let left = Math.max(0, Math.floor(secs));
  const told = [];
  for (const [name, size] of parts) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0 || told.length > 0) told.push(`${count} ${name}`);
  }
  return told.slice(0, 2).join(' ') || '0 s';
}

/** A time difference: +340 ms, +2.1 s, +3 min 4 s. */
export function after(ms) {
  if (ms < 1_000) return `+${ms} ms`;
  return ms < 60_000 ? `+${digits(ms / 1_000)} s` : `+${duration(ms / 1_000)}`;
}
