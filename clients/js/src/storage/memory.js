// Storage in memory: for tests, and for clients that need no persistence.

import { randomId } from '../ids.js';

/**
 * A stored outbox entry.
 *
 * @typedef {object} OutboxRow
 * @property {string} id its clientMsgId
 * @property {number} n grows in the order of writing
 * @property {number} ts when it was written
 * @property {import('../outbox.js').WireSend} send
 * @property {Blob} [file] the file to upload first
 * @property {Blob} [thumbnail]
 * @property {import('../message.js').Attachment} [attachment]
 * @property {{code: string, message: string}} [failed]
 */
/**
 * The stored state of a device, and how to write it. Every promise resolves when the write is durable.
 *
 * @typedef {object} Saved
 * @property {string} device the id of this device
 * @property {OutboxRow[]} outbox in any order
 * @property {Record<string, any>} kept small values by key, for the client's own use
 * @property {(row: OutboxRow) => Promise<void>} put writes a row of the outbox, or replaces it
 * @property {(id: string) => Promise<void>} remove
 * @property {(changes: Record<string, any>) => Promise<void>} keep writes all of them, or none; null removes a key
 * @property {(heir: (rows: OutboxRow[]) => void) => Promise<void>} [inherit] for a storage that several tabs share: from now on `heir`
 *   receives the unsent rows of closed tabs, once they belong to this device
 * @property {() => Promise<void>} close releases the device for others
 */
/**
 * Where a client stores its state. Pass one to the client, or write your own.
 *
 * @typedef {object} Storage
 * @property {(user: string, device?: string) => Promise<Saved>} open
 */

/**
 * Keeps everything in memory. A second client with the same object finds what the first one stored, so a test can
 * restart a client.
 *
 * @returns {Storage}
 */
export function memoryStorage() {
  /** @type {Map<string, {device: string, outbox: Map<string, OutboxRow>, kept: Record<string, any>}>} */
  const users = new Map();
  return {
    async open(user, device) {
      const found = users.get(`${user} ${device ?? ''}`);
      /** @type {NonNullable<typeof found>} */
      const own = found ?? { device: device ?? `m-${randomId()}`, outbox: new Map(), kept: {} };
      users.set(`${user} ${device ?? ''}`, own);
      return {
        device: own.device,
        outbox: [...own.outbox.values()],
        kept: structuredClone(own.kept),
        put: async (row) => void own.outbox.set(row.id, { ...row }),
        remove: async (id) => void own.outbox.delete(id),
        keep: async (changes) => {
          for (const [key, value] of Object.entries(structuredClone(changes))) {
            if (value === null) delete own.kept[key];
            else own.kept[key] = value;
          }
        },
        close: async () => {},
      };
    },
  };
}
