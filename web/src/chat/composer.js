// The composer: a text box that grows with its lines, and files by button, by drop or from the clipboard.

import { make, setAttr, setText } from '../lib/dom.js';
import { icon } from '../lib/icons.js';
import { nameOf, words } from './people.js';
import { Tray } from './tray.js';

const ROOM_SHOWN = 500;   // bytes left at which the counter appears

export class Composer {
  constructor(view, talk) {
    this.view = view;
    this.talk = talk;
    this.drafts = new Map();
    this.tray = new Tray(() => { this.fit(); this.focus(); });
    this.build();
    this.listen();
  }

  build() {
    this.box = make('textarea', { rows: '1', 'aria-label': 'Message', enterkeyhint: 'send', autocomplete: 'off' });
    this.send = make('button', { class: 'round strong', type: 'submit', 'aria-label': 'Send', title: 'Send (Enter)', disabled: true }, icon('send'));
    this.picker = make('input', { type: 'file', multiple: true, hidden: true, tabindex: '-1', 'aria-hidden': 'true' });
    this.clip = make('button', { class: 'round', type: 'button', 'aria-label': 'Attach files', title: 'Attach files', onclick: () => this.picker.click() }, icon('clip'));
    this.room = make('p', { class: 'room', role: 'status', hidden: true });
    this.el = make('form', { class: 'say', novalidate: true }, this.tray.el, this.room,
      make('div', { class: 'say-row' }, this.clip, this.picker, this.box, this.send));
    this.drop = make('div', { class: 'drop', 'aria-hidden': 'true', hidden: true }, icon('clip'), make('span', {}, 'Drop files to send them'));
  }

  listen() {
    this.el.addEventListener('submit', (event) => { event.preventDefault(); this.submit(); });
    this.picker.addEventListener('change', () => { this.tray.add(this.picker.files); this.picker.value = ''; });
    this.box.addEventListener('input', () => {
      this.fit();
      if (this.box.value.trim()) this.conversation?.setTyping();
    });
    this.box.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    this.box.addEventListener('paste', (event) => {
      const files = [...event.clipboardData.files];
      if (!files.length) return;
      event.preventDefault();
      this.tray.add(files);
    });
  }

  /** Files may be dropped anywhere on the conversation. */
  takeDrops(el) {
    el.append(this.drop);
    let depth = 0;
    const carries = (event) => this.conversation && event.dataTransfer?.types.includes('Files');
    const show = (shown) => { this.drop.hidden = !shown; };
    el.addEventListener('dragenter', (event) => { if (carries(event)) { event.preventDefault(); depth += 1; show(true); } });
    el.addEventListener('dragover', (event) => { if (carries(event)) event.preventDefault(); });
    el.addEventListener('dragleave', (event) => { if (carries(event)) { depth = Math.max(0, depth - 1); show(depth > 0); } });
    el.addEventListener('drop', (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      depth = 0;
      show(false);
      this.tray.add(event.dataTransfer.files);
    });
  }

  enter(conversation) {
    this.conversation = conversation;
    const { text = '', items = [] } = this.drafts.get(conversation.id) ?? {};
    this.box.value = text;
    this.tray.restore(items);
    this.fit();
  }

  /** An unfinished draft is kept until the chat is opened again. */
  leave(conversation) {
    this.conversation = null;
    if (!conversation) return;
    const items = this.tray.take();
    if (this.box.value || items.length) this.drafts.set(conversation.id, { text: this.box.value, items });
    else this.drafts.delete(conversation.id);
  }

  draw(conversation) {
    setAttr(this.box, 'placeholder', this.tray.size ? 'Add a caption' : 'Message');
    setAttr(this.box, 'aria-label', this.tray.size ? 'Caption' : `Message to ${nameOf(conversation.peer)}`);
  }

  /** Fits the height to the lines, up to a third of a phone, and enables the send button. */
  fit() {
    const { box } = this;
    box.style.height = 'auto';
    box.style.height = `${box.scrollHeight + 2}px`;
    const most = this.view.client.limits?.maxBodyBytes ?? 16_384;
    const left = box.value.length * 3 < most - ROOM_SHOWN ? most : most - new TextEncoder().encode(box.value.trim()).length;
    this.room.hidden = left >= ROOM_SHOWN;
    this.room.classList.toggle('wrong', left < 0);
    setText(this.room, left < 0 ? `Too long by ${-left} bytes` : `${left} bytes left`);
    this.send.disabled = left < 0 || (!box.value.trim() && !this.tray.size) || this.tray.busy;
    if (this.conversation) this.draw(this.conversation);
  }

  submit() {
    const { conversation } = this;
    this.fit();
    if (!conversation || this.send.disabled) return;
    const body = this.box.value.trim();
    const items = this.tray.take();
    try {
      if (!items.length) conversation.send(body);
      else items.forEach((item, at) => this.sendFile(item, at === 0 ? body : ''));
      this.box.value = '';
      this.fit();
    } catch (error) {
      this.refused(words(error));
    }
    this.talk.sending();
    this.focus();
  }

  /** Nothing was sent: the text stays in the box. */
  refused(why) {
    this.room.hidden = false;
    this.room.classList.add('wrong');
    setText(this.room, why);
  }

  /** The caption goes with the first file. A picture's size is sent along, so that space can be reserved for it. */
  sendFile({ file, size, thumbnail, url }, body) {
    const message = this.conversation.send({ body, file, thumbnail, ...(size && { meta: { image: size } }) });
    if (size) this.view.localUrl(message, file);
    URL.revokeObjectURL(url);
  }

  focus() { this.box.focus({ preventScroll: true }); }

  /** Escape first discards the chosen files; pressed again, it leaves the chat. */
  escape() {
    if (!this.tray.size) return false;
    this.tray.clear();
    return true;
  }
}
