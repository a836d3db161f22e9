// Where the files of a conversation can be loaded from: each address for as long as it is good.

/** An address is not used when it ends this soon. */
const MARGIN_MS = 30_000;
const KEPT_MAX = 500;

/** @typedef {import('./conversation.js').AttachmentUrl} AttachmentUrl */

export class Addresses {
  #core;
  #conversationId;
  /** @type {Map<string, AttachmentUrl>} */
  #known = new Map();

  /** @param {import('./core.js').Core} core @param {string} conversationId */
  constructor(core, conversationId) {
    this.#core = core;
    this.#conversationId = conversationId;
  }

  /** @param {string} ref @returns {Promise<AttachmentUrl>} */
  async of(ref) {
    const known = this.#known.get(ref);
    if (known && known.expiresAt - this.#core.environment.now() > MARGIN_MS) return known;
    const path = `/conversations/${encodeURIComponent(this.#conversationId)}/attachments/${ref}`;
    const { expires_at: expiresAt, ...rest } = await this.#core.http.call('GET', path);
    const address = { ...rest, expiresAt };
    this.#known.set(ref, address);
    if (this.#known.size > KEPT_MAX) this.#known.delete(/** @type {string} */ (this.#known.keys().next().value));
    return address;
  }
}
