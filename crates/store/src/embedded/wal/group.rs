//! The bytes of a group: what is written to a segment with one write and made durable with one
//! fsync.

pub(super) const MAGIC: u32 = 0x314b_5442; // "BTK1"
pub(super) const HEADER_BYTES: usize = 32;
pub(super) const RECORD_HEADER_BYTES: usize = 8;
/// The longest record: far above the hard limit of a body, far below what a damaged length could
/// claim.
const RECORD_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Records for one write and one fsync.
#[derive(Debug, Default)]
pub(in crate::embedded) struct Group {
    pub(super) bytes: Vec<u8>,
    pub(super) records: u32,
}

impl Group {
    pub(in crate::embedded) fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(in crate::embedded) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds one record, written by `encode`.
    pub(in crate::embedded) fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_BYTES, 0);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        encode(&mut self.bytes);
        let length = (self.bytes.len() - start - RECORD_HEADER_BYTES) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
        let crc = record_crc(length, &self.bytes[start + RECORD_HEADER_BYTES..]);
        self.bytes[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        self.records += 1;
    }

    pub(super) fn seal(&mut self, seed: u32, group: u64, first_lsn: u64) {
        let body = (self.bytes.len() - HEADER_BYTES) as u32;
        let header = &mut self.bytes[..HEADER_BYTES];
        header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[8..16].copy_from_slice(&group.to_le_bytes());
        header[16..24].copy_from_slice(&first_lsn.to_le_bytes());
        header[24..28].copy_from_slice(&body.to_le_bytes());
        header[28..32].copy_from_slice(&self.records.to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &header[8..]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.records = 0;
        // A rare burst must not hold its memory for ever.
        self.bytes.shrink_to(4 * 1024 * 1024);
    }
}

pub(super) fn record_crc(length: u32, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length.to_le_bytes()), payload)
}

pub(super) struct GroupHeader {
    pub group: u64,
    pub first_lsn: u64,
    pub bytes: usize,
    pub records: u32,
}

fn read_header(seed: u32, bytes: &[u8]) -> Option<GroupHeader> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if u32_at(0)? != MAGIC || u32_at(4)? != crc32c::crc32c_append(seed, bytes.get(8..HEADER_BYTES)?) {
        return None;
    }
    Some(GroupHeader {
        group: u64_at(8)?,
        first_lsn: u64_at(16)?,
        bytes: u32_at(24)? as usize,
        records: u32_at(28)?,
    })
}

pub(super) fn whole_group(seed: u32, bytes: &[u8]) -> Option<(GroupHeader, Vec<&[u8]>)> {
    let header = read_header(seed, bytes)?;
    let mut body = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(header.bytes)?)?;
    let mut records = Vec::with_capacity(header.records.min(65_536) as usize);
    while !body.is_empty() {
        let length = u32::from_le_bytes(body.get(..4)?.try_into().ok()?);
        let crc = u32::from_le_bytes(body.get(4..8)?.try_into().ok()?);
        if length as usize > RECORD_MAX_BYTES {
            return None;
        }
        let payload = body.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + length as usize)?;
        if crc != record_crc(length, payload) {
            return None;
        }
        records.push(payload);
        body = &body[RECORD_HEADER_BYTES + length as usize..];
    }
    (records.len() == header.records as usize).then_some((header, records))
}

/// Whether a group that was written after the expected one begins in or behind a damaged place.
pub(super) fn has_later_group(seed: u32, bytes: &[u8], expected: Option<u64>) -> bool {
    let magic = MAGIC.to_le_bytes();
    (0..bytes.len().saturating_sub(HEADER_BYTES - 1))
        .filter(|&at| bytes[at..at + 4] == magic)
        .filter_map(|at| Some((at, read_header(seed, &bytes[at..])?)))
        .any(|(at, header)| expected.map_or(at > 0, |expected| header.group > expected))
}
