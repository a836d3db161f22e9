// The plotted figures, computed from two samples of /metrics: gauges, rates, quantiles. A figure is a function of
// (now, before) and returns a number, or null if there is none: no such metric, no second sample yet, nothing observed in
// between.

/** The sum of a family; null if the server does not have it. */
export function total(sample, name, matches = () => true) {
  const family = sample.families.get(name)?.filter((one) => matches(one.labels));
  return family?.length ? family.reduce((sum, one) => sum + one.value, 0) : null;
}

export const gauge = (name, matches) => (now) => total(now, name, matches);

/** The increase of a counter. A lower value than before means that the server restarted from zero. */
export function gained(now, before, name, matches) {
  const newer = total(now, name, matches) ?? 0;
  const older = total(before, name, matches) ?? 0;
  return newer < older ? newer : newer - older;
}

/** The rate a second. A missing counter counts as zero. */
export const rate = (name, matches) => (now, before) => {
  const seconds = before && (now.at - before.at) / 1000;
  return seconds > 0 ? gained(now, before, name, matches) / seconds : null;
};

/** The sorted values of a label in a family, or in the samples that the filter accepts. */
export function valuesOf(sample, name, label, counts = () => true) {
  const found = new Set((sample.families.get(name) ?? []).filter(counts).map((one) => one.labels[label] ?? ''));
  return [...found].sort();
}

/** The increase of a histogram, as cumulative [upper bound, count], bounds ascending. */
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

/** The bucket of a quantile: its bounds, and the position in it; null if nothing was observed. */
function bucketOf(now, before, name, share) {
  const counted = before ? buckets(now, before, name) : [];
  const all = counted.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  const at = counted.findIndex(([, count]) => count >= share * all);
  const [to, upTo] = counted[at];
  const [from, below] = at > 0 ? counted[at - 1] : [0, 0];
  return { from, to, into: (share * all - below) / (upTo - below) };
}

/** A quantile of the observations between the two samples, interpolated linearly within its bucket as Prometheus does. */
export const quantile = (name, share) => (now, before) => {
  const found = bucketOf(now, before, name, share);
  if (!found) return null;
  const { from, to, into } = found;
  // Beyond the last bound the value is unknown; the bound is its minimum.
  return to === Infinity ? from : from + (to - from) * into;
};

/** The same for whole numbers: the bucket's upper bound, without interpolation. */
export const bound = (name, share) => (now, before) => {
  const found = bucketOf(now, before, name, share);
  return found && (found.to === Infinity ? found.from : found.to);
};

/** The mean of the observations between the two samples. */
export const mean = (name) => (now, before) => {
  if (!before) return null;
  const count = gained(now, before, `${name}_count`);
  return count > 0 ? gained(now, before, `${name}_sum`) / count : null;
};
