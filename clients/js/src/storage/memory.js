// Storage for as long as the process lives: for tests, and for clients that need to keep nothing.

import { randomId } from '../ids.js';

/**
 * A message that waits in the outbox, as it is stored.
 *
 * @typedef {object} OutboxRow
 * @property {string} id its clientMsgId
 * @property {number} n grows in the order of writing
 * @property {number} ts when it was written
 * @property {import('../outbox.js').WireSend} send
 * @property {Blob} [file] what has to be uploaded first
 * @property {Blob} [thumbnail]
 * @property {import('../message.js').Attachment} [attachment]
 * @property {{code: string, message: string}} [failed]
 */
/**
 * What a device has kept, and how it keeps more. Every promise is done when the write is durable.
 *
 * @typedef {object} Saved
 * @property {string} device the id of this device
 * @property {OutboxRow[]} outbox in any order
 * @property {Record<string, any>} kept small values by key, for the client's own use
 * @property {(row: OutboxRow) => Promise<void>} put writes a row of the outbox, or replaces it
 * @property {(id: string) => Promise<void>} remove
 * @property {(changes: Record<string, any>) => Promise<void>} keep writes all of them, or none; null takes a key away
 * @property {(heir: (rows: OutboxRow[]) => void) => Promise<void>} [inherit] where several share a storage: from now on `heir` is
 *   given what others have left unsent, as soon as it is this device's
 * @property {() => Promise<void>} close others may have the device from now on
 */
/**
 * Where a client keeps its outbox. Give one to the client, or write your own.
 *
 * @typedef {object} Storage
 * @property {(user: string, device?: string) => Promise<Saved>} open
 */

/**
 * Keeps everything in memory. The same object given to a second client hands it what the first one left, so a test
 * can restart a client.
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
