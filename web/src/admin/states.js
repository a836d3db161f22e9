// What a number means: a level for its colour, and a word for the same level.

import { gained, total, valuesOf } from './figures.js';
import { bytes, duration, exact } from './format.js';
import { has } from './panels.js';

const state = (level, word, detail = '') => ({ level, word, detail });
export const good = (word, detail) => state('good', word, detail);
export const warn = (word, detail) => state('warn', word, detail);
export const bad = (word, detail) => state('bad', word, detail);
export const idle = (word, detail) => state('idle', word, detail);

const GIB = 1024 ** 3;
/** Errors of the server; every other code is a client's mistake or a limit. */
const FAULTS = ['internal', 'unavailable', 'storage_full'];

/** The slowest fsyncs. */
export function commitState(p99) {
  if (p99 === null) return idle('idle');
  if (p99 < 0.025) return good('quick');
  return p99 < 0.1 ? warn('slow') : bad('very slow');
}

export function requestState(p95) {
  if (p95 === null) return idle('idle');
  if (p95 < 0.1) return good('quick');
  return p95 < 1 ? warn('slow') : bad('very slow');
}

/** The server's configured floor comes before the defaults here. */
export function diskState(free, refusing = null) {
  if (refusing?.includes('bytes are free')) return bad('too full');
  if (free === null) return idle('unknown');
  if (free > 5 * GIB) return good('ample');
  return free > GIB ? warn('filling') : bad('full soon');
}

export const activity = (perSecond) => (perSecond > 0 ? good('active') : idle('idle'));

/** Errors since the sample `past`: the server's or the clients'. */
export function errorState(now, past) {
  if (!past) return idle('none yet');
  if (gained(now, past, 'bluetick_errors_total', ({ code }) => FAULTS.includes(code)) > 0) return bad('faults');
  return gained(now, past, 'bluetick_errors_total') > 0 ? warn('refusals') : good('none');
}

/** A problem counter since `past`. */
const lately = (now, past, name) => (past ? gained(now, past, name) : 0);

export function readyState(ready) {
  if (ready.ready) return ready.store?.degraded ? warn('Degraded', ready.store.degraded) : good('Ready', 'takes messages');
  if (ready.reason === 'the server is going down') return warn('Draining', ready.reason);
  return bad('Refusing', ready.reason ?? '');
}

/** Each backend and component with a health state: [name, state]. */
export function healthOf(now, past, ready, info) {
  const parts = [['Store', storeState(now, ready)]];
  const free = total(now, 'bluetick_free_bytes');
  if (free !== null) parts.push(['Disk', { ...diskState(free, ready.store.refusing), detail: `${bytes(free)} free` }]);
  if (total(now, 'bluetick_log_bytes') !== null) parts.push(['Log', logState(now, past)]);
  parts.push(['Sockets', socketState(now, past)]);
  for (const route of valuesOf(now, 'bluetick_push_route_ok', 'route')) parts.push([`Push: ${route}`, routeState(now, ready, route)]);
  if (has(now, 'bluetick_app_servers')) parts.push(['App servers', appState(now)]);
  if (has(now, 'bluetick_dynamodb')) parts.push(['DynamoDB', errorsOf(now, past, 'bluetick_dynamodb_errors_total')]);
  if (has(now, 'bluetick_redis')) parts.push(['Redis', errorsOf(now, past, 'bluetick_redis_errors_total')]);
  parts.push(['Cold tier', coldState(now, past)]);
  parts.push(['Process', idle(`up ${duration(info.uptime_secs)}`, `version ${info.version}, pid ${info.pid}`)]);
  return parts;
}

function storeState(now, ready) {
  const { backend, refusing, degraded } = ready.store;
  if (refusing || total(now, 'bluetick_store_refusing') === 1) return bad('refuses sends', refusing ?? backend);
  return degraded ? warn('degraded', degraded) : good('takes sends', backend);
}

function logState(now, past) {
  const told = `${bytes(total(now, 'bluetick_log_bytes'))}, ${exact(total(now, 'bluetick_unflushed_messages'))} unflushed`;
  if (lately(now, past, 'bluetick_checkpoint_errors_total') > 0) return bad('checkpoints fail', told);
  return lately(now, past, 'bluetick_checkpoint_stalls_total') > 0 ? warn('writes waited', told) : good('well', told);
}

function socketState(now, past) {
  const errors = lately(now, past, 'bluetick_accept_errors_total');
  const refused = lately(now, past, 'bluetick_connections_refused_total');
  const told = `${exact(total(now, 'bluetick_connections'))} open`;
  if (errors > 0) return bad('cannot accept', `${told}, ${exact(errors)} failed in a minute`);
  return refused > 0 ? warn('some refused', `${told}, ${exact(refused)} refused in a minute`) : good('accepting', told);
}

function routeState(now, ready, route) {
  const trouble = ready.push.find((one) => one.route === route);
  if (trouble) return bad(trouble.misconfigured ? 'misconfigured' : 'failing', trouble.misconfigured ?? trouble.failing);
  const open = total(now, 'bluetick_push_route_ok', (labels) => labels.route === route) === 1;
  return open ? good('open', 'takes notifications') : warn('paused', 'tried again later');
}

function appState(now) {
  const linked = total(now, 'bluetick_app_servers');
  return linked > 0 ? good('linked', `${exact(linked)} reachable`) : bad('none', 'no app server is linked');
}

function errorsOf(now, past, name) {
  const count = lately(now, past, name);
  const told = `${exact(total(now, name) ?? 0)} errors since start`;
  return count > 0 ? warn('errors', `${exact(count)} in a minute, ${told}`) : good('well', told);
}

function coldState(now, past) {
  const moved = total(now, 'bluetick_cold_moved_messages_total') ?? 0;
  const told = `${exact(moved)} moved since start`;
  if (lately(now, past, 'bluetick_cold_errors_total') > 0) return warn('errors', `tried again; ${told}`);
  return lately(now, past, 'bluetick_cold_moved_messages_total') > 0 ? good('moving', told) : idle('at rest', told);
}
