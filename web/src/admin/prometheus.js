// Parses the text format of /metrics.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/**
 * @returns {{at: number, families: Map<string, {labels: Record<string, string>, value: number}[]>, help: Map<string, string>}}
 *   families by their name in the text: a histogram is three of them, `_bucket`, `_sum` and `_count`
 */
export function parse(text, at) {
  const families = new Map();
  const help = new Map();
  for (const line of text.split('\n')) {
    if (line.startsWith('# HELP ')) {
      const space = line.indexOf(' ', 7);
      help.set(line.slice(7, space), line.slice(space + 1));
    } else if (line !== '' && !line.startsWith('#')) {
      readSample(line, families);
    }
  }
  return { at, families, help };
}

function readSample(line, families) {
  const found = SAMPLE.exec(line);
  if (!found) return;
  const [, name, written = '', value] = found;
  const labels = {};
  for (const [, key, text] of written.matchAll(LABEL)) labels[key] = unescape(text);
  if (!families.has(name)) families.set(name, []);
  families.get(name).push({ labels, value: readNumber(value) });
}

const unescape = (text) => text.replace(/\\(.)/g, (_, ch) => (ch === 'n' ? '\n' : ch));

function readNumber(text) {
  if (text === '+Inf') return Infinity;
  return text === '-Inf' ? -Infinity : Number(text);
}
