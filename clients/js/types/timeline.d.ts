export class Timeline {
    /** Whether the newest page is here, so that what comes live may be appended. */
    ready: boolean;
    /** The lowest seq covered; what is below has to be loaded. */
    from: number;
    /** Where the page before this begins, null if there is none. @type {number | null} */
    earlier: number | null;
    get items(): import("./message.js").Message[];
    /** @param {number} seq */
    find(seq: number): import("./message.js").Message | undefined;
    /** What a history page brought, newest page. @param {Message[]} messages @param {{from_seq: number, to_seq: number, next: number | null}} page */
    begin(messages: Message[], page: {
        from_seq: number;
        to_seq: number;
        next: number | null;
    }): void;
    /** The page before what is here. @param {Message[]} messages @param {{from_seq: number, next: number | null}} page */
    prepend(messages: Message[], page: {
        from_seq: number;
        next: number | null;
    }): void;
    /** A message that came live, or that was sent from here. @param {Message} message */
    add(message: Message): void;
    /** Nothing of this is sure any more: the newest page has to be loaded again. */
    doubt(): void;
    /** Gives back what came while nothing is loaded or loading. */
    forget(): void;
    /** How many of the peer's come after `seq`. @param {number} seq */
    countAfter(seq: number): number;
    /** The newest of the peer's. @returns {Message | undefined} */
    get newestOfPeer(): Message | undefined;
    #private;
}
export type Message = import("./message.js").Message;
