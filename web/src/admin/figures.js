// What is plotted, computed from two looks at /metrics: gauges, rates, shares of a histogram. A figure is a function of
// (now, before) and gives a number, or null where there is nothing to say: no such gauge, no second look yet, nothing
// observed in between.

/** All of a family added up; null if the server has none. */
export function total(sample, name, matches = () => true) {
  const family = sample.families.get(name)?.filter((one) => matches(one.labels));
  return family?.length ? family.reduce((sum, one) => sum + one.value, 0) : null;
}

export const gauge = (name, matches) => (now) => total(now, name, matches);

/** What a counter gained. Less than before means that the server began anew, from nothing. */
export function gained(now, before, name, matches) {
  const newer = total(now, name, matches) ?? 0;
  const older = total(before, name, matches) ?? 0;
  return newer < older ? newer : newer - older;
}

/** How much a second. A counter that the server has not begun counts nothing. */
export const rate = (name, matches) => (now, before) => {
  const seconds = before && (now.at - before.at) / 1000;
  return seconds > 0 ? gained(now, before, name, matches) / seconds : null;
};

/** The values that a label has in a family, in order, or in those of its samples that count. */
export function valuesOf(sample, name, label, counts = () => true) {
  const found = new Set((sample.families.get(name) ?? []).filter(counts).map((one) => one.labels[label] ?? ''));
  return [...found].sort();
}

/** What a histogram gained in each bucket, as [upper bound, count up to it], bounds ascending. */
function buckets(now, before, name) {
  const sums = (sample) => {
    const counts = new Map();
    for (const { labels, value } of sample.families.get(`${name}_bucket`) ?? []) {
      const bound = labels.le === '+Inf' ? Infinity : Number(labels.le);
      counts.set(bound, (counts.get(bound) ?? 0) + value);
    }
    return counts;
  };
  const [newer, older] = [sums(now), sums(before)];
  const begunAnew = (newer.get(Infinity) ?? 0) < (older.get(Infinity) ?? 0);
  const gain = ([bound, count]) => [bound, begunAnew ? count : count - (older.get(bound) ?? 0)];
  return [...newer].map(gain).sort(([a], [b]) => a - b);
}

/** Where the bucket of a quantile begins and ends, and how far into it that is; null if nothing was observed. */
function bucketOf(now, before, name, share) {
  const counted = before ? buckets(now, before, name) : [];
  const all = counted.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  const at = counted.findIndex(([, count]) => count >= share * all);
  const [to, upTo] = counted[at];
  const [from, below] = at > 0 ? counted[at - 1] : [0, 0];
  return { from, to, into: (share * all - below) / (upTo - below) };
}

/** A quantile of what was observed between the two looks, as Prometheus estimates it: a straight line within the bucket. */
export const quantile = (name, share) => (now, before) => {
  const found = bucketOf(now, before, name, share);
  if (!found) return null;
  const { from, to, into } = found;
  // Beyond the last bound nobody knows; the bound is the least it was.
  return to === Infinity ? from : from + (to - from) * into;
};

/** The same for things that are counted, where half of one makes no sense: the bucket's end. */
export const bound = (name, share) => (now, before) => {
  const found = bucketOf(now, before, name, share);
  return found && (found.to === Infinity ? found.from : found.to);
};

/** The mean of what a histogram observed between the two looks. */
export const mean = (name) => (now, before) => {
  if (!before) return null;
  const count = gained(now, before, `${name}_count`);
  return count > 0 ? gained(now, before, `${name}_sum`) / count : null;
};
