// The harness of the browser tests: the real server with a new data directory, Chromium, and pages that must log no
// errors. Needs BLUETICK_BIN, the server's binary, and CHROMIUM if it is not /usr/bin/chromium.

import assert from 'node:assert/strict';
import { spawn, execFile } from 'node:child_process';
import { createWriteStream, existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';
import { startProxy as startPlainProxy } from './proxy.js';

export { assertAccessible, assertNoOverflow } from './looks.js';

const SIZES = {
  phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true },
  desk: { viewport: { width: 1280, height: 800 } },
};

function binary() {
  const path = process.env.BLUETICK_BIN;
  if (!path) throw new Error('BLUETICK_BIN must name the bluetick binary to test');
  if (!existsSync(path)) throw new Error(`BLUETICK_BIN: there is no ${path}`);
  return path;
}

/** Polls until the answer is truthy, and fails with the name of what it waited for. */
export async function until(what, ask, ms = 10_000) {
  const end = Date.now() + ms;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`waited ${ms} ms in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** The demo's key, by port. */
const demoKeys = new Map();

/** The address of a page of this server or proxy, with the demo's key. */
export const withDemo = (url, path = '/') => `${url}${path}#demo=${demoKeys.get(Number(new URL(url).port))}`;

/** A proxy in front of a server: see proxy.js. */
export async function startProxy(port) {
  const proxy = await startPlainProxy(port);
  demoKeys.set(proxy.port, demoKeys.get(port));
  return proxy;
}

/** A server process. `stop()` shuts it down, `kill()` kills it; `start()` afterwards serves the same data at the same port. */
export class Server {
  /** @param {Record<string, string>} env settings @param {{ready?: boolean}} [o] ready: false if it is expected to refuse sends */
  static async start(env = {}, { ready = true } = {}) {
    const server = new Server();
    server.awaitsReady = ready;
    server.bin = binary();
    server.env = env;
    server.dir = await mkdtemp(join(tmpdir(), 'bluetick-web-'));
    server.data = join(server.dir, 'data');
    server.listen = '127.0.0.1:0';
    await server.start();
    return server;
  }

  async start() {
    const log = createWriteStream(join(this.dir, 'server.log'), { flags: 'a' });
    const env = { ...process.env, ...this.env, BLUETICK_SERVER__LISTEN: this.listen, BLUETICK_SERVER__DATA_DIR: this.data };
    delete env.BLUETICK_BIN;
    await rm(join(this.data, 'server.url'), { force: true });
    this.process = spawn(this.bin, ['serve'], { cwd: this.dir, env, stdio: ['ignore', 'pipe', 'pipe'] });
    this.process.stdout.pipe(log);
    this.process.stderr.pipe(log);
    this.exited = new Promise((resolve) => this.process.once('exit', resolve));
    this.url = await until('the server says where it listens', () => this.#said());
    this.port = Number(new URL(this.url).port);
    this.listen = `127.0.0.1:${this.port}`;
    const answer = () => fetch(`${this.url}/readyz`).then((r) => r.ok || !this.awaitsReady, () => false);
    await until('the server is ready', answer);
    this.adminKey = (await readFile(join(this.data, 'admin.key'), 'utf8')).trim();
    this.demoKey = await readFile(join(this.data, 'demo.key'), 'utf8').then((text) => text.trim(), () => null);
    demoKeys.set(this.port, this.demoKey);
  }

  /** The address of a page with the demo's key, as the server prints it. */
  page(path = '/') {
    return withDemo(this.url, path);
  }

  /** The headers that the demo asks for. */
  get demoHeaders() {
    return { 'x-bluetick-demo': this.demoKey };
  }

  async #said() {
    if (this.process.exitCode !== null) throw new Error(`the server ended: ${await this.log()}`);
    return readFile(join(this.data, 'server.url'), 'utf8').then((text) => text.trim(), () => null);
  }

  get pid() {
    return this.process.pid;
  }

  log() {
    return readFile(join(this.dir, 'server.log'), 'utf8');
  }

  async stop(signal = 'SIGTERM') {
    if (this.process.exitCode === null && this.process.signalCode === null) this.process.kill(signal);
    await this.exited;
  }

  kill() {
    return this.stop('SIGKILL');
  }

  /** Stops it and removes its data. */
  async end() {
    await this.kill();
    await rm(this.dir, { recursive: true, force: true });
  }

  async token(user) {
    const answer = await this.#json('/demo/token', { method: 'POST', headers: this.demoHeaders, body: JSON.stringify({ user }) });
    return answer.token;
  }

  /** A request as a user: `await server.as('alice', 'POST', '/v1/messages', {...})`. */
  async as(user, method, path, body) {
    this.tokens ??= new Map();
    if (!this.tokens.has(user)) this.tokens.set(user, await this.token(user));
    const headers = { authorization: `Bearer ${this.tokens.get(user)}` };
    return this.#json(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  }

  /** Sends one message over HTTP, for a user without a page. */
  send(from, to, body) {
    const client_msg_id = `t-${Date.now()}-${Math.random().toString(36).slice(2)}`;
    return this.as(from, 'POST', '/v1/messages', { client_msg_id, to, body });
  }

  admin(path, body) {
    const headers = { authorization: `Bearer ${this.adminKey}` };
    const init = body === undefined ? { headers } : { headers, method: 'POST', body: JSON.stringify(body) };
    return this.#json(`/admin/v1/${path}`, init);
  }

  async #json(path, init) {
    const headers = { ...init.headers, 'content-type': 'application/json' };
    const answer = await fetch(this.url + path, { ...init, headers });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${init.method ?? 'GET'} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  async metrics() {
    return (await fetch(`${this.url}/metrics`)).text();
  }

  /** The JSON that the command line prints: `await server.cli('inspect', 'pending', '--user', 'bob', '--json')`. */
  async cli(...args) {
    const { stdout } = await promisify(execFile)(this.bin, [...args, '--data', this.data], { cwd: this.dir });
    return args.includes('--json') ? JSON.parse(stdout) : stdout;
  }
}

/** One browser for a file of tests; close it in `after`. */
export function launchBrowser() {
  const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'];
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args });
}

/**
 * A page in a context (a person's browser) of its own. When the test `t` ends, the context is closed, and the test
 * fails if the page logged an error, threw one or broke its Content-Security-Policy, unless an expression of `allow`
 * matches it: a page that loses its connection logs that.
 *
 * @param {{size?: 'phone'|'desk', scheme?: 'light'|'dark', allow?: RegExp[], bypassCSP?: boolean, context?: object}} [o]
 *   bypassCSP only for `assertAccessible`; context: further options of Playwright's newContext
 * @returns {Promise<import('playwright-core').Page>}
 */
export async function openPage(t, browser, url, o = {}) {
  const context = await browser.newContext({
    ...SIZES[o.size ?? 'desk'],
    colorScheme: o.scheme ?? 'light',
    reducedMotion: 'reduce',
    bypassCSP: o.bypassCSP ?? false,
    locale: 'en-GB',
    ...o.context,
  });
  context.setDefaultTimeout(10_000);
  const loud = listen(context);
  t.after(async () => {
    await context.close();
    assert.deepEqual(loud.filter((line) => !(o.allow ?? []).some((allowed) => allowed.test(line))), [], 'the page was not quiet');
  });
  const page = await context.newPage();
  if (url) await page.goto(url);
  return page;
}

/** Collects the errors of a context, those of later pages too. */
function listen(context) {
  const loud = [];
  context.on('console', (message) => {
    if (message.type() === 'error') loud.push(`console: ${message.text()} (${message.location().url})`);
  });
  context.on('weberror', (error) => loud.push(`page: ${error.error().stack ?? error.error()}`));
  context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (e) => {
      console.error(`CSP: ${e.violatedDirective} refused ${e.blockedURI} ${e.sample} at ${e.sourceFile}:${e.lineNumber}`);
    });
  });
  return loud;
}

/** Saves a screenshot in BLUETICK_SHOTS or a temporary directory. */
export async function screenshot(page, name, options = {}) {
  const path = join(process.env.BLUETICK_SHOTS ?? join(tmpdir(), 'bluetick-shots'), `${name}.png`);
  await mkdir(dirname(path), { recursive: true });
  await page.screenshot({ path, ...options });
  return path;
}

