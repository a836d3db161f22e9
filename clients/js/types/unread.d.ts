export class Unread {
    get count(): number;
    get upto(): number;
    /** What the server says; false if it said so before the newest message, and has to be asked again. @param {number} count @param {number} lastSeq @param {number} read */
    told(count: number, lastSeq: number, read: number): boolean;
    /** A message of the peer's came. @param {number} seq @param {number} read */
    arrived(seq: number, read: number): void;
    /** The user has read up to here; false if what is left can only be told by the server. @param {number} seq */
    read(seq: number): boolean;
    #private;
}
