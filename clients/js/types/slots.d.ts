/** The browser's locks; missing on plain http. @returns {LockManager | undefined} */
export function browserLocks(): LockManager | undefined;
/**
 * Takes the first free slot, and the one this tab had before if it can be had.
 *
 * @param {string} user
 * @param {LockManager} locks
 * @returns {Promise<Slot>}
 */
export function takeSlot(user: string, locks: LockManager): Promise<Slot>;
/**
 * Takes this slot if nobody has it.
 *
 * @param {string} user
 * @param {string} slot
 * @param {LockManager} locks
 * @param {number} [waitMs]
 * @returns {Promise<Slot | null>}
 */
export function take(user: string, slot: string, locks: LockManager, waitMs?: number): Promise<Slot | null>;
export type Slot = {
    slot: string;
    shared: boolean;
    release: () => void;
};
