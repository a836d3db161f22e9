//! All limits on what a client controls, with units in the names.
//!
//! Some are the defaults of the server's configuration; the others are fixed by the format.

/// Longest user id: the ids of identity providers have a prefix.
pub const USER_ID_MAX_BYTES: usize = 128;
/// Longest device id and client_msg_id.
pub const ID_MAX_BYTES: usize = 64;
/// Longest `ref` given as a string.
pub const REF_MAX_BYTES: usize = 64;
/// Longest message body by default.
pub const BODY_DEFAULT_MAX_BYTES: usize = 16 * 1024;
/// Longest body that can be configured: a record must be small compared with a log segment.
pub const BODY_HARD_MAX_BYTES: usize = 1024 * 1024;
/// Longest `meta` object, as JSON text.
pub const META_MAX_BYTES: usize = 4 * 1024;
/// Deepest nesting inside `meta`, for the parsers of other clients.
pub const META_MAX_DEPTH: usize = 16;
/// Longest frame the server reads by default; JSON may escape a byte of the body as six.
pub const FRAME_DEFAULT_MAX_BYTES: usize = 128 * 1024;
/// Longest preview in the inbox, cut at a character.
pub const PREVIEW_MAX_CHARS: usize = 80;
/// Longest name in a profile.
pub const NAME_MAX_BYTES: usize = 128;
/// Longest avatar address in a profile.
pub const AVATAR_URL_MAX_BYTES: usize = 1024;
/// Most users one `watch` may name.
pub const WATCH_MAX_USERS: usize = 256;
/// Most entries in an inbox page, and how many without a `limit`.
pub const INBOX_MAX_LIMIT: u32 = 100;
pub const INBOX_DEFAULT_LIMIT: u32 = 20;
/// Most messages in a history page, and how many without a `limit`.
pub const HISTORY_MAX_LIMIT: u32 = 200;
pub const HISTORY_DEFAULT_LIMIT: u32 = 50;
/// Most bytes of bodies that one read of the store returns, beyond the first message.
pub const PAGE_MAX_BYTES: usize = 512 * 1024;
/// Most bytes of a page of history or of the inbox as it goes over the wire, beyond its first entry. JSON writes some
/// bytes of a body as six, so a page may end before its `limit` does.
pub const PAGE_ENCODED_MAX_BYTES: usize = 256 * 1024;
/// High-water mark of what waits for one socket, in encoded bytes. At or above it no request is started and no message
/// is taken from the store.
pub const OUTBOUND_HIGH_WATER_BYTES: usize = 512 * 1024;
/// Most heads in one `caught_up`.
pub const HEADS_MAX: usize = 1000;
/// Most users one may block.
pub const BLOCKS_MAX: usize = 10_000;
/// Most devices of a user that are notified; beyond it the oldest registration is removed.
pub const PUSH_DEVICES_MAX: usize = 20;
/// Longest token of a device at its provider.
pub const PUSH_TOKEN_MAX_BYTES: usize = 1024;
/// Most conversations one may mute.
pub const MUTES_MAX: usize = 10_000;
/// Longest name and media type of an attachment.
pub const ATTACHMENT_NAME_MAX_BYTES: usize = 255;
pub const ATTACHMENT_MIME_MAX_BYTES: usize = 127;
/// Longest blurhash.
pub const BLURHASH_MAX_BYTES: usize = 128;
/// Most parts of one upload.
pub const UPLOAD_PARTS_MAX: usize = 1000;
/// Smallest part of an upload except the last, as in S3.
pub const UPLOAD_PART_MIN_BYTES: u64 = 5 * 1024 * 1024;
/// Client frames read ahead of the current one; beyond it the socket is not read.
pub const REQUESTS_AHEAD_MAX: usize = 64;

const _: () = assert!(
    FRAME_DEFAULT_MAX_BYTES >= 6 * BODY_DEFAULT_MAX_BYTES + META_MAX_BYTES + 1024,
    "a body of the largest size, fully escaped, must fit a frame"
);
const _: () = assert!(INBOX_DEFAULT_LIMIT <= INBOX_MAX_LIMIT);
const _: () = assert!(HISTORY_DEFAULT_LIMIT <= HISTORY_MAX_LIMIT);
const _: () = assert!(BODY_DEFAULT_MAX_BYTES <= BODY_HARD_MAX_BYTES);
const _: () = assert!(PAGE_MAX_BYTES >= BODY_DEFAULT_MAX_BYTES);
const _: () = assert!(PAGE_ENCODED_MAX_BYTES >= 6 * BODY_DEFAULT_MAX_BYTES);
const _: () = assert!(PAGE_ENCODED_MAX_BYTES <= OUTBOUND_HIGH_WATER_BYTES);
