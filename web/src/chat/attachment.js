// Attachments: a picture, a video, sound, or a file to download. Nothing is fetched before it is about to be visible.

import { make, setAttr, setText } from '../lib/dom.js';
import { icon } from '../lib/icons.js';
import { download, fit, kindOf, sizeWords } from './files.js';
import { lightbox } from './lightbox.js';

export function attachmentView(log, message) {
  const { attachment } = message;
  if (!attachment) return null;
  const kind = kindOf(attachment.mime);
  if (kind === 'image') return new Picture(log, message);
  if (kind === 'video' || kind === 'audio') return new Player(log, message, kind);
  return new FileCard(log, message);
}

/** What all kinds share: the URL, fetched on demand, and the upload's progress. */
class Shown {
  constructor(log, message) {
    this.log = log;
    this.message = message;
    this.local = log.view.localUrl(message);
  }

  get name() { return this.message.attachment.name || 'file'; }

  async url() {
    return this.local ?? (await this.log.conversation.attachmentUrl(this.message)).url;
  }

  /** Calls `show` when the element is about to be visible. */
  whenNear(el, show) {
    el.addEventListener('near', show);
    this.log.lazy.observe(el);
    this.watched = el;
  }

  makeProgress() {
    this.bar = make('span', { class: 'bar' });
    return make('span', { class: 'progress', role: 'progressbar', 'aria-label': `Uploading ${this.name}`, 'aria-valuemin': '0', 'aria-valuemax': '100', hidden: true }, this.bar);
  }
  /** In percent; null if nothing is being uploaded. */
  get uploaded() {
    const { progress, tick } = this.message;
    return tick === 'waiting' && typeof progress === 'number' && progress < 1 ? Math.round(progress * 100) : null;
  }

  draw() {
    const { uploaded } = this;
    setAttr(this.progress, 'hidden', uploaded === null);
    if (uploaded === null) return;
    setAttr(this.progress, 'aria-valuenow', uploaded);
    this.bar.style.transform = `scaleX(${Math.max(2, uploaded) / 100})`;
  }
  destroy() { if (this.watched) this.log.lazy.unobserve(this.watched); }
}

class Picture extends Shown {
  bare = true;
  constructor(log, message) {
    super(log, message);
    const { width, height } = fit(message.meta?.image);
    this.progress = this.makeProgress();
    this.img = make('img', { alt: '', width, height, decoding: 'async', draggable: 'false' });
    this.note = make('span', { class: 'broken', hidden: true }, icon('image'), make('span', {}, 'The picture could not be loaded'));
    this.el = make('button', { class: 'picture', type: 'button', 'aria-label': `Picture ${this.name}, open`, onclick: () => this.open() }, this.img, this.note, this.progress);
    this.el.style.width = `${width}px`;
    this.el.style.aspectRatio = `${width} / ${height}`;
    this.img.addEventListener('load', () => this.el.classList.add('there'));
    this.img.addEventListener('error', () => this.failed());
    this.whenNear(this.el, () => this.show());
  }

  async show() {
    this.note.hidden = true;
    try { this.img.src = await this.smallUrl(); } catch { this.failed(); }
  }

  /** The thumbnail, if there is one and nothing better is loaded. */
  async smallUrl() {
    if (this.local || !this.message.attachment.thumbnail || this.again) return this.url();
    return (await this.log.conversation.thumbnailUrl(this.message)).url;
  }

  /** The URL may have expired meanwhile: try one new URL, then report the failure. */
  failed() {
    this.el.classList.remove('there');
    if (!this.again) { this.again = true; this.show(); return; }
    this.note.hidden = false;
  }

  open() {
    if (this.note.hidden) lightbox(this.log.view, this);
    else { this.again = false; this.show(); }
  }
}

class Player extends Shown {
  constructor(log, message, kind) {
    super(log, message);
    this.progress = this.makeProgress();
    this.media = make(kind, { controls: true, preload: 'metadata', 'aria-label': this.words(kind) });
    this.el = make('div', { class: `player ${kind}` }, this.media, this.progress);
    this.media.addEventListener('error', () => this.renew());
    this.whenNear(this.el, () => this.load());
  }

  words(kind) {
    if (kind === 'video') return `Video ${this.name}`;
    return this.message.attachment.voice ? 'Voice message' : `Sound ${this.name}`;
  }

  async load() {
    try { this.media.src = await this.url(); } catch { /* the controls show that there is nothing */ }
  }

  /** URLs expire after a few minutes. A later play gets a new one and resumes at the same position. */
  async renew() {
    if (this.renewedAt > Date.now() - 10_000) return;
    this.renewedAt = Date.now();
    const { currentTime } = this.media;
    await this.load();
    if (currentTime > 0) this.media.currentTime = currentTime;
  }

  destroy() {
    super.destroy();
    this.media.removeAttribute('src');
    this.media.load();
  }
}

class FileCard extends Shown {
  constructor(log, message) {
    super(log, message);
    const { bytes, mime } = message.attachment;
    this.progress = this.makeProgress();
    this.state = make('span', { class: 'sub' });
    this.size = [sizeWords(bytes), extension(this.name, mime)].filter(Boolean).join(' · ');
    this.el = make('button', { class: 'file', type: 'button', onclick: () => this.download() },
      make('span', { class: 'paper' }, icon('file')), make('span', { class: 'quiet' }, 'Download'),
      make('span', { class: 'names' }, make('span', { class: 'file-name' }, this.name), this.state),
      make('span', { class: 'get' }, icon('download')),
      this.progress);
  }

  draw() {
    super.draw();
    const there = !!this.message.attachment.s3Ref;
    if (there === this.there && there) return;
    this.there = there;
    this.el.disabled = !there;
    setText(this.state, this.uploaded === null ? this.size : `${this.uploaded} % of ${this.size}`);
  }

  async download() {
    setText(this.state, 'Fetching…');
    try {
      await download(this);
      setText(this.state, this.size);
    } catch {
      setText(this.state, 'Could not be fetched. Try again.');
    }
  }
}

function extension(name, mime) {
  const end = /\.([A-Za-z0-9]{1,6})$/.exec(name)?.[1] ?? mime?.split('/')[1]?.slice(0, 8);
  return end?.toUpperCase();
}
