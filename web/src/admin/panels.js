// The figures of the page, in their order, and the metrics they come from. The sections are those of the Grafana
// dashboard (deploy/grafana).

import { bound, gauge, mean, quantile, rate, valuesOf } from './figures.js';

const one = (name, figure) => ({ names: () => [name], figure: () => figure });
const counter = (name, metric) => one(name, rate(metric));
/** One series for each label value with a count above 0: the server exports all of them from the start. */
const each = (metric, label, of = rate) => ({
  byLabel: true,
  names: (sample) => valuesOf(sample, metric, label, ({ value }) => value > 0),
  figure: (value) => of(metric, (labels) => (labels[label] ?? '') === value),
});
const shares = (metric) => [
  one('p50', quantile(metric, 0.5)), one('p95', quantile(metric, 0.95)), one('p99', quantile(metric, 0.99)),
];

/** Whether the server has a metric with this prefix. */
export const has = (sample, beginning) => [...sample.families.keys()].some((name) => name.startsWith(beginning));

const plot = (id, title, unit, metric, series, note) => ({ id, title, unit, metric, series, note, byLabel: series.some((s) => s.byLabel) });

export const SECTIONS = [
  {
    id: 'traffic', title: 'Traffic', plots: [
      plot('connections', 'Connections', 'count', 'bluetick_connections', [one('open', gauge('bluetick_connections'))]),
      plot('messages', 'Messages', 'rate', null, [
        counter('sends', 'bluetick_sends_total'), counter('deliveries', 'bluetick_deliveries_total'),
        counter('acks', 'bluetick_acks_total'), counter('reads', 'bluetick_reads_total'),
      ], 'Sends answered, messages written to sessions, and the receipts that came back'),
      plot('sessions', 'Sessions', 'rate', null, [
        counter('opened', 'bluetick_sessions_opened_total'), counter('ended', 'bluetick_sessions_ended_total'),
      ], 'Sessions that began and ended'),
    ],
  },
  {
    id: 'latency', title: 'Latency', plots: [
      plot('send_time', 'Sends', 'seconds', 'bluetick_send_seconds', shares('bluetick_send_seconds')),
      plot('fsync', 'Commit (fsync of the log)', 'seconds', 'bluetick_fsync_seconds', shares('bluetick_fsync_seconds')),
      plot('http_time', 'HTTP requests', 'seconds', 'bluetick_http_request_seconds', shares('bluetick_http_request_seconds')),
    ],
  },
  {
    id: 'delivery', title: 'Delivery', plots: [
      plot('pending', 'Pending rows', 'rate', null, [
        counter('written', 'bluetick_pending_rows_written_total'), counter('deleted', 'bluetick_pending_rows_deleted_total'),
      ], 'Rows written for receivers who are away, and deleted when they have everything'),
      plot('hand_overs', 'Hand-overs', 'rate', null, [
        counter('to live sessions', 'bluetick_hand_overs_total'), counter('stale entries', 'bluetick_stale_sessions_total'),
      ], 'Messages handed to a live session at once, and stale session entries'),
      plot('drains', 'Conversations to drain', 'count', 'bluetick_drain_conversations', [
        one('mean', mean('bluetick_drain_conversations')), one('p99 at most', bound('bluetick_drain_conversations', 0.99)),
      ]),
    ],
  },
  {
    id: 'push', title: 'Push', when: 'bluetick_push_', otherwise: 'No device has been notified, or none can be: no provider is set up in [push].', plots: [
      plot('push_queue', 'Outbox in memory', 'count', 'bluetick_push_queue', [one('waiting', gauge('bluetick_push_queue'))]),
      plot('push', 'Notifications', 'rate', null, [
        counter('sent', 'bluetick_push_sent_total'), counter('failed', 'bluetick_push_failed_total'),
        counter('taken again', 'bluetick_push_claimed_total'), counter('left to the outbox', 'bluetick_push_queue_full_total'),
      ], 'Notifications that the providers accepted and rejected'),
      plot('push_time', 'Providers', 'seconds', 'bluetick_push_request_seconds', shares('bluetick_push_request_seconds')),
    ],
  },
  {
    id: 'store', title: 'Store', plots: [
      plot('log', 'Log', 'bytes', 'bluetick_log_bytes', [one('log', gauge('bluetick_log_bytes'))]),
      plot('lag', 'Checkpoint lag', 'count', 'bluetick_unflushed_messages', [
        one('unflushed', gauge('bluetick_unflushed_messages')), one('commit queue', gauge('bluetick_commit_queue')),
      ], 'Messages in the log and not yet in the engine; writes that wait for the group being committed'),
      plot('groups', 'Writes per fsync', 'count', 'bluetick_group_answers', [
        one('mean', mean('bluetick_group_answers')), one('p99 at most', bound('bluetick_group_answers', 0.99)),
      ]),
      plot('checkpoint', 'Checkpoints', 'seconds', 'bluetick_checkpoint_seconds', shares('bluetick_checkpoint_seconds')),
    ],
  },
  {
    id: 'cluster', title: 'Cluster', when: /^bluetick_(dynamodb|redis|rpc|app_servers|heartbeat)/, plots: [
      plot('apps', 'App servers', 'count', 'bluetick_app_servers', [one('linked', gauge('bluetick_app_servers'))]),
      plot('backend_errors', 'Backend errors', 'rate', null, [
        counter('DynamoDB', 'bluetick_dynamodb_errors_total'), counter('Redis', 'bluetick_redis_errors_total'),
        counter('RPC retries', 'bluetick_rpc_retries_total'), counter('links refused', 'bluetick_rpc_refused_total'),
      ], 'Tries that failed; most are repeated and succeed'),
      plot('capacity', 'DynamoDB capacity', 'rate', 'bluetick_dynamodb_half_units_total', [
        each('bluetick_dynamodb_half_units_total', 'table'),
      ], 'Halves of capacity units consumed, by table'),
    ],
  },
  {
    id: 'cold', title: 'Cold tier', plots: [
      plot('cold_moved', 'Messages moved', 'rate', 'bluetick_cold_moved_messages_total', [counter('moved', 'bluetick_cold_moved_messages_total')]),
      plot('cold_bytes', 'Bytes of objects', 'byteRate', null, [
        counter('written', 'bluetick_cold_written_bytes_total'), counter('read', 'bluetick_cold_read_bytes_total'),
      ], 'Bytes written to and read from the object store'),
      plot('cold_calls', 'Reads and errors', 'rate', null, [
        counter('reads', 'bluetick_cold_reads_total'), counter('errors', 'bluetick_cold_errors_total'),
        counter('lost races', 'bluetick_cold_lost_races_total'),
      ], 'Range reads of objects, failed rounds, and runs that another server moved first'),
    ],
  },
  {
    id: 'http', title: 'HTTP and errors', plots: [
      plot('http', 'HTTP requests by status', 'rate', 'bluetick_http_requests_total', [each('bluetick_http_requests_total', 'status')]),
      plot('errors', 'Errors by code', 'rate', 'bluetick_errors_total', [each('bluetick_errors_total', 'code')]),
      plot('refused', 'Turned away', 'rate', null, [
        counter('rate limited', 'bluetick_rate_limited_total'), counter('connections', 'bluetick_connections_refused_total'),
        counter('accept errors', 'bluetick_accept_errors_total'),
      ], 'Sends beyond a user\'s limit, connections beyond their address\'s, connections that could not be accepted'),
    ],
  },
];

export function isShown(section, sample) {
  if (!section.when) return true;
  if (typeof section.when === 'string') return has(sample, section.when);
  return [...sample.families.keys()].some((name) => section.when.test(name));
}

export const seriesId = (plotId, name) => `${plotId}/${name}`;

/** All plotted values of a sample, by series. */
export function collect(now, before) {
  // It has a tile and no plot.
  const values = new Map([['disk/free', gauge('bluetick_free_bytes')(now)]]);
  for (const { plots } of SECTIONS) {
    for (const { id, series } of plots) {
      for (const { names, figure } of series) {
        for (const name of names(now)) values.set(seriesId(id, name), figure(name)(now, before));
      }
    }
  }
  return values;
}
