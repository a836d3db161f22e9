//! An object of the cold tier: consecutive messages of one conversation, compressed in blocks, with
//! an index at the end.
//!
//! ```text
//! magic     "BTCOLD\n", version
//! block …   messages in columns, each column one zstd frame
//! index     conversation, first seq, then of each block: messages, length, checksum
//! footer    length of the index, its checksum, version, "BTCOLD\n"
//! ```
//!
//! A reader needs the end of the object and the blocks that hold the wanted seqs. Everything it
//! reads is checked: the index and each block by an XXH3 checksum, and the seqs against the index.
//! The index repeats the row in `cold_runs`, so rows can be rebuilt from objects.

use std::sync::Arc;

use bluetick_protocol::{ClientMsgId, ConversationId, Json, MessageId, Seq, Side};
use xxhash_rust::xxh3::xxh3_64;

use crate::Message;

const MAGIC: &[u8; 7] = b"BTCOLD\n";
const VERSION: u8 = 1;
const HEADER: usize = MAGIC.len() + 1;
const FOOTER: usize = 4 + 8 + 1 + MAGIC.len();
/// The columns of a block.
const COLUMNS: usize = 5;
/// A high level, because objects are written once and kept for years.
const LEVEL: i32 = 19;
/// The limits of a block. A reader refuses larger ones.
const BLOCK_MAX_MESSAGES: usize = 4096;
const BLOCK_TEXT_BYTES: usize = 384 * 1024;
const COLUMN_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Why bytes are not a valid object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage(pub String);

impl From<&str> for Damage {
    fn from(why: &str) -> Damage {
        Damage(why.to_owned())
    }
}

type Parsed<T> = Result<T, Damage>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Index {
    pub conversation: ConversationId,
    pub first_seq: Seq,
    pub blocks: Vec<Block>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub first_seq: Seq,
    pub messages: u64,
    pub at: u64,
    pub bytes: u64,
    checksum: u64,
}

impl Block {
    pub(super) fn last_seq(&self) -> Seq {
        self.first_seq + self.messages - 1
    }
}

/// Packs consecutive messages of one conversation. Returns the object and the length of the index
/// at its end.
pub(super) fn pack(messages: &[Arc<Message>]) -> std::io::Result<(Vec<u8>, u64)> {
    let mut object = Vec::with_capacity(messages.len() * 48 + 256);
    object.extend_from_slice(MAGIC);
    object.push(VERSION);
    let mut index = Vec::new();
    let first = messages.first();
    put_bytes(&mut index, first.map_or("", |m| m.conversation_id.as_str()).as_bytes());
    put_u64(&mut index, first.map_or(0, |m| m.seq));
    let blocks = cut(messages);
    put_u64(&mut index, blocks.len() as u64);
    for block in blocks {
        let packed = pack_block(block)?;
        put_u64(&mut index, block.len() as u64);
        put_u64(&mut index, packed.len() as u64);
        index.extend_from_slice(&xxh3_64(&packed).to_le_bytes());
        object.extend_from_slice(&packed);
    }
    object.extend_from_slice(&index);
    object.extend_from_slice(&(index.len() as u32).to_le_bytes());
    object.extend_from_slice(&xxh3_64(&index).to_le_bytes());
    object.push(VERSION);
    object.extend_from_slice(MAGIC);
    let index_bytes = (index.len() + FOOTER) as u64;
    Ok((object, index_bytes))
}

fn cut(messages: &[Arc<Message>]) -> Vec<&[Arc<Message>]> {
    let (mut blocks, mut rest) = (Vec::new(), messages);
    while !rest.is_empty() {
        let (mut n, mut text) = (0, 0);
        while n < rest.len().min(BLOCK_MAX_MESSAGES) && (n == 0 || text < BLOCK_TEXT_BYTES) {
            text += rest[n].body.len();
            n += 1;
        }
        let (block, after) = rest.split_at(n);
        blocks.push(block);
        rest = after;
    }
    blocks
}

fn pack_block(messages: &[Arc<Message>]) -> std::io::Result<Vec<u8>> {
    let [mut flags, mut ids, mut names, mut sizes, mut text]: [Vec<u8>; COLUMNS] = Default::default();
    let mut before = (0i64, [String::new(), String::new()]);
    for m in messages {
        let at = m.message_id.ms() as i64;
        let shift = m.ts as i64 - at;
        flags.push(
            m.from as u8
                | u8::from(m.withheld) << 1
                | u8::from(m.void) << 2
                | u8::from(m.attachment.is_some()) << 3
                | u8::from(m.meta.is_some()) << 4
                | u8::from(shift != 0) << 5,
        );
        put_signed(&mut ids, at - before.0);
        put_u64(&mut ids, m.message_id.0 - MessageId::at(m.message_id.ms()).0);
        if shift != 0 {
            put_signed(&mut ids, shift);
        }
        let last = &mut before.1[m.from.index()];
        put_name(&mut names, m.client_msg_id.as_str(), last);
        last.clear();
        last.push_str(m.client_msg_id.as_str());
        before.0 = at;
        let parts = [
            Some(m.body.as_str()),
            m.attachment.as_ref().map(Json::as_str),
            m.meta.as_ref().map(Json::as_str),
        ];
        for part in parts.into_iter().flatten() {
            put_u64(&mut sizes, part.len() as u64);
            text.extend_from_slice(part.as_bytes());
        }
    }
    let mut block = Vec::new();
    for column in [flags, ids, names, sizes, text] {
        let packed = zstd::bulk::compress(&column, LEVEL)?;
        put_u64(&mut block, column.len() as u64);
        put_bytes(&mut block, &packed);
    }
    Ok(block)
}

/// A `client_msg_id`: a UUID as its 16 bytes, anything else as the difference from the sender's
/// previous one.
fn put_name(out: &mut Vec<u8>, name: &str, last: &str) {
    if let Some(uuid) = uuid_bytes(name) {
        out.push(u8::MAX);
        out.extend_from_slice(&uuid);
        return;
    }
    let shared = name.bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
    out.push(shared as u8);
    put_bytes(out, &name.as_bytes()[shared..]);
}

/// The bytes of a UUID in its usual form: lower case, with hyphens.
fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 36 || [8, 13, 18, 23].iter().any(|&at| text[at] != b'-') {
        return None;
    }
    let mut nibbles =
        text.iter().enumerate().filter(|(at, _)| ![8, 13, 18, 23].contains(at)).map(|(_, &b)| match b {
            b'0'..=b'9' => Some(b - b'0'),
            b'a'..=b'f' => Some(b - b'a' + 10),
            _ => None,
        });
    let mut uuid = [0; 16];
    for byte in &mut uuid {
        *byte = nibbles.next()?? << 4 | nibbles.next()??;
    }
    Some(uuid)
}

fn uuid_text(uuid: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (n, byte) in uuid.iter().enumerate() {
        if matches!(n, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Parses the end of an object.
pub(super) fn read_index(end: &[u8], object_bytes: u64) -> Parsed<Index> {
    let footer = end.len().checked_sub(FOOTER).ok_or("it is shorter than its footer")?;
    let (index, footer) = end.split_at(footer);
    let mut r = ColumnReader(footer);
    let length = u32::from_le_bytes(r.array()?) as usize;
    let checksum = u64::from_le_bytes(r.array()?);
    let version = r.array::<1>()?[0];
    if r.0 != MAGIC {
        return Err("it does not end as a cold object does".into());
    }
    if version != VERSION {
        return Err(Damage(format!("it has format {version}, and this version of bluetick reads {VERSION}")));
    }
    if length != index.len() || xxh3_64(index) != checksum {
        return Err("its index does not have the checksum it should".into());
    }
    let mut r = ColumnReader(index);
    let conversation = std::str::from_utf8(r.bytes()?).ok().and_then(|id| ConversationId::new(id).ok());
    let conversation = conversation.ok_or("its index names no conversation")?;
    let first_seq = r.u64()?;
    let (mut blocks, mut seq, mut at) = (Vec::new(), first_seq, HEADER as u64);
    for _ in 0..r.u64()? {
        let (messages, bytes) = (r.u64()?, r.u64()?);
        let checksum = u64::from_le_bytes(r.array()?);
        if messages == 0 || messages > BLOCK_MAX_MESSAGES as u64 {
            return Err("a block of its index has an impossible length".into());
        }
        blocks.push(Block { first_seq: seq, messages, at, bytes, checksum });
        seq = seq.checked_add(messages).ok_or("its seqs end nowhere")?;
        at = at.checked_add(bytes).ok_or("its blocks end nowhere")?;
    }
    if !r.0.is_empty() || at.checked_add(end.len() as u64) != Some(object_bytes) {
        return Err("its blocks do not add up to its length".into());
    }
    Ok(Index { conversation, first_seq, blocks })
}

/// Parses a whole object.
pub(super) fn unpack(object: &[u8]) -> Parsed<(Index, Vec<Arc<Message>>)> {
    let footer = object.len().checked_sub(FOOTER).ok_or("it is shorter than its footer")?;
    let length = u32::from_le_bytes(ColumnReader(&object[footer..]).array()?) as usize;
    let index = footer.checked_sub(length).ok_or("it is shorter than its index")?;
    let index = read_index(&object[index..], object.len() as u64)?;
    let mut messages = Vec::new();
    for block in &index.blocks {
        messages.extend(read_block(
            &index,
            block,
            &object[block.at as usize..(block.at + block.bytes) as usize],
        )?);
    }
    Ok((index, messages))
}

/// Parses one block.
pub(super) fn read_block(index: &Index, block: &Block, bytes: &[u8]) -> Parsed<Vec<Arc<Message>>> {
    if xxh3_64(bytes) != block.checksum {
        return Err("a block does not have the checksum it should".into());
    }
    let mut r = ColumnReader(bytes);
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    for column in &mut columns {
        let length = usize::try_from(r.u64()?).ok().filter(|&n| n <= COLUMN_MAX_BYTES);
        let length = length.ok_or("a column has an impossible length")?;
        *column = zstd::bulk::decompress(r.bytes()?, length).map_err(|e| Damage(e.to_string()))?;
        if column.len() != length {
            return Err("a column is not as long as it should be".into());
        }
    }
    let [mut flags, mut ids, mut names, mut sizes, mut text] =
        columns.each_ref().map(|column| ColumnReader(column));
    let mut messages = Vec::with_capacity(block.messages as usize);
    let mut before = (0i64, [String::new(), String::new()]);
    for n in 0..block.messages {
        let flag = flags.array::<1>()?[0];
        let on = |bit: u8| flag >> bit & 1 == 1;
        let from = if on(0) { Side::High } else { Side::Low };
        let at = before.0.checked_add(ids.signed()?).ok_or("a time ends nowhere")?;
        let ms = u64::try_from(at).map_err(|_| "a time lies before all times")?;
        let message_id = MessageId(MessageId::at(ms).0.checked_add(ids.u64()?).ok_or("an id ends nowhere")?);
        let shift = if on(5) { ids.signed()? } else { 0 };
        let ts = u64::try_from(at.saturating_add(shift)).map_err(|_| "a time lies before all times")?;
        let name = names.name(&before.1[from.index()])?;
        let client_msg_id = ClientMsgId::new(&name).map_err(|e| Damage(e.to_string()))?;
        before.0 = at;
        before.1[from.index()] = name;
        let mut part = || -> Parsed<String> {
            let bytes = text.take(sizes.u64()?)?;
            String::from_utf8(bytes.to_vec()).map_err(|_| "a text is none".into())
        };
        let body = part()?;
        let mut json = |there: bool| -> Parsed<Option<Json>> {
            match there {
                false => Ok(None),
                true => Json::from_text(&part()?).map(Some).map_err(|e| Damage(e.to_string())),
            }
        };
        let (attachment, meta) = (json(on(3))?, json(on(4))?);
        messages.push(Arc::new(Message {
            conversation_id: index.conversation.clone(),
            seq: block.first_seq + n,
            message_id,
            client_msg_id,
            from,
            body,
            ts,
            attachment,
            meta,
            withheld: on(1),
            void: on(2),
        }));
    }
    if [flags, ids, names, sizes, text].iter().any(|column| !column.0.is_empty()) {
        return Err("a column holds more than its messages".into());
    }
    Ok(messages)
}

fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_u64(out, (value << 1 ^ value >> 63) as u64);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

struct ColumnReader<'a>(&'a [u8]);

impl<'a> ColumnReader<'a> {
    fn take(&mut self, n: u64) -> Parsed<&'a [u8]> {
        let n = usize::try_from(n).ok().filter(|&n| n <= self.0.len()).ok_or("it ends too early")?;
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        self.take(N as u64)?.try_into().map_err(|_| "it ends too early".into())
    }

    fn u64(&mut self) -> Parsed<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.array::<1>()?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number ends nowhere".into())
    }

    fn signed(&mut self) -> Parsed<i64> {
        let value = self.u64()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn bytes(&mut self) -> Parsed<&'a [u8]> {
        let n = self.u64()?;
        self.take(n)
    }

    fn name(&mut self, last: &str) -> Parsed<String> {
        match self.array::<1>()?[0] {
            u8::MAX => Ok(uuid_text(self.take(16)?)),
            shared => {
                let shared = last.get(..shared.into()).ok_or("an id begins with more than there is")?;
                let rest = std::str::from_utf8(self.bytes()?).map_err(|_| "an id is no text")?;
                Ok(format!("{shared}{rest}"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
