// Builds web/dist, the files that the server embeds. They are committed, so that building the server needs no Node.
//
//   node web/build.js           writes web/dist
//   node web/build.js admin     writes only that page (or chat, tour, client)
//   node web/build.js --check   fails if web/dist is not what the sources give
//
// A page is a directory of web/src with index.html, main.js and main.css. The same sources give the same bytes.

import { existsSync } from 'node:fs';
import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import esbuild from 'esbuild';

const web = dirname(fileURLToPath(import.meta.url));
const src = join(web, 'src');
const dist = join(web, 'dist');
const sdk = join(web, '..', 'clients', 'js', 'src', 'index.js');

/** Each page, and the name of its HTML in web/dist. */
const PAGES = { chat: 'index.html', tour: 'tour.html', admin: 'admin.html' };

const OPTIONS = {
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022', 'chrome123', 'firefox120', 'safari17.5'],
  charset: 'utf8',
  legalComments: 'none',
  write: false,
  logLevel: 'warning',
  absWorkingDir: web,
};

/** One bundle of one entry file. */
async function bundle(entry) {
  const result = await esbuild.build({ ...OPTIONS, entryPoints: [entry] });
  return Buffer.from(result.outputFiles[0].contents);
}

/** Without comments and indentation; line ends stay, because they may separate words. */
function small(markup) {
  const lines = markup.replace(/<!--[\s\S]*?-->/g, '').split('\n').map((line) => line.trim());
  return Buffer.from(`${lines.filter(Boolean).join('\n')}\n`);
}

async function page(name, html, files) {
  const dir = join(src, name);
  if (!existsSync(join(dir, 'index.html'))) return;
  files.set(html, small(await readFile(join(dir, 'index.html'), 'utf8')));
  for (const kind of ['js', 'css']) {
    const entry = join(dir, `main.${kind}`);
    if (existsSync(entry)) files.set(`${name}.${kind}`, await bundle(entry));
  }
}

/** The contents of web/dist by name, or the pages that were asked for. */
async function built(asked) {
  const files = new Map();
  const wanted = (name) => asked.length === 0 || asked.includes(name);
  for (const [name, html] of Object.entries(PAGES)) if (wanted(name)) await page(name, html, files);
  if (wanted('client') && existsSync(sdk)) files.set('client.js', await bundle(sdk));
  files.set('icon.svg', small(await readFile(join(src, 'icon.svg'), 'utf8')));
  return files;
}

async function present() {
  return existsSync(dist) ? readdir(dist) : [];
}

async function check(files, isAll) {
  const wrong = (isAll ? await present() : []).filter((name) => !files.has(name)).map((name) => `${name} has no source`);
  for (const [name, bytes] of files) {
    const path = join(dist, name);
    if (!existsSync(path)) wrong.push(`${name} is missing`);
    else if (!bytes.equals(await readFile(path))) wrong.push(`${name} is not what the sources give`);
  }
  if (wrong.length === 0) return;
  console.error(`web/dist: ${wrong.join('; ')}. Run: npm run build -w web`);
  process.exit(1);
}

async function write(files, isAll) {
  await mkdir(dist, { recursive: true });
  for (const name of isAll ? await present() : []) if (!files.has(name)) await rm(join(dist, name));
  for (const [name, bytes] of files) {
    await writeFile(join(dist, name), bytes);
    console.log(`${name.padEnd(12)} ${String(bytes.length).padStart(8)} bytes ${String(gzipSync(bytes).length).padStart(8)} gzipped`);
  }
}

const asked = process.argv.slice(2).filter((arg) => !arg.startsWith('-'));
const files = await built(asked);
await (process.argv.includes('--check') ? check : write)(files, asked.length === 0);
