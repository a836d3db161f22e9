// Files: what kind they are, how large, and how a picture fits into a bubble.

import { make } from '../lib/dom.js';

export const MOST_BYTES = 256 * 2 ** 20;   // the page holds a file in memory to hash it; the server may allow more
export const MOST_FILES = 10;

const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/avif', 'image/bmp']);
const FILMS = new Set(['video/mp4', 'video/webm', 'video/ogg', 'video/quicktime']);

/** Types that browsers show safely; every other file is offered for download. */
export function kindOf(mime = '') {
  const type = mime.split(';')[0].trim().toLowerCase();
  if (PICTURES.has(type)) return 'image';
  if (FILMS.has(type)) return 'video';
  if (/^audio\/(mpeg|mp4|aac|x-m4a|ogg|opus|webm|wav|x-wav|flac|x-flac)$/.test(type)) return 'audio';
  return 'file';
}

export function sizeWords(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ['KB', 'MB', 'GB'];
  let size = bytes / 1000;
  let unit = 0;
  while (size >= 999.5 && unit < 2) { size /= 1000; unit += 1; }
  return `${size < 9.95 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

/** Why a file cannot be sent, before it is read; null if it can. */
export function wrongFile(file) {
  if (file.size === 0) return `“${file.name}” is empty.`;
  if (file.size > MOST_BYTES) return `“${file.name}” is too large: ${sizeWords(file.size)}. At most ${sizeWords(MOST_BYTES)} can be sent from here.`;
  return null;
}

const SMALL = { side: 720, from: 200_000 };   // pixels of a thumbnail's longer side; bytes from which a thumbnail pays

/** A picture's size, and a thumbnail if it is large. `size` is null if this browser cannot show it. */
export async function lookAt(file, url) {
  const img = new Image();
  img.src = url;
  try { await img.decode(); } catch { return { size: null }; }
  const size = { width: img.naturalWidth, height: img.naturalHeight };
  return { size, thumbnail: file.size > SMALL.from && file.type !== 'image/gif' ? await smaller(img, size, file) : undefined };
}

async function smaller(img, { width, height }, file) {
  const scale = Math.min(1, SMALL.side / Math.max(width, height));
  const canvas = make('canvas');
  [canvas.width, canvas.height] = [width, height].map((n) => Math.max(1, Math.round(n * scale)));
  canvas.getContext('2d').drawImage(img, 0, 0, canvas.width, canvas.height);
  const copy = await new Promise((done) => { canvas.toBlob(done, file.type === 'image/jpeg' ? 'image/jpeg' : 'image/webp', 0.82); });
  return copy && copy.size < file.size / 2 ? copy : undefined;
}

const BOX = { width: 300, height: 340, least: 110 };

/** The size of a picture in a bubble. A picture of unknown size gets a fixed box. */
export function fit(size) {
  if (!(size?.width > 0 && size?.height > 0)) return { width: 260, height: 195 };
  const scale = Math.min(BOX.width / size.width, BOX.height / size.height, 1);
  const within = (n) => Math.round(Math.max(BOX.least, n * scale));
  return { width: within(size.width), height: within(size.height) };
}

/** Saves a file under its name. The URL is fetched only now, because URLs expire soon. */
export async function download(shown) {
  make('a', { href: await shown.url(), download: shown.name, target: '_blank', rel: 'noopener' }).click();
}
