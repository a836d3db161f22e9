//! The encoding of records and rows: varints and length-prefixed text.

use bluetick_protocol::{ConversationId, DeviceId, Json, Side, UserId};

/// The bytes are not a value of the expected kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed(pub &'static str);

impl From<Malformed> for crate::StoreError {
    fn from(m: Malformed) -> Self {
        crate::StoreError::Corrupt(format!("a stored record is malformed: {}", m.0))
    }
}

/// The version byte that every record and row starts with. A reader refuses a higher one.
pub(super) const FORMAT: u8 = 1;
pub(super) const NEWER: Malformed = Malformed("written by a newer version of bluetick");

pub(super) fn put_u64(out: &mut Vec<u8>, mut n: u64) {
    if n < 0x80 {
        return out.push(n as u8);
    }
    let (mut bytes, mut length) = ([0; 10], 1);
    while n >= 0x80 {
        bytes[length - 1] = n as u8 | 0x80;
        n >>= 7;
        length += 1;
    }
    bytes[length - 1] = n as u8;
    // Appends all ten bytes and truncates: a copy of constant length is two moves, any other a
    // call.
    let end = out.len() + length;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_str(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// An optional text: its length plus one, or zero.
pub(super) fn put_opt(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        None => put_u64(out, 0),
        Some(text) => {
            put_u64(out, text.len() as u64 + 1);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

pub(super) struct ByteReader<'a>(pub &'a [u8]);

impl<'a> ByteReader<'a> {
    /// Fails if bytes are left: they were not written by this encoding.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes left over")) }
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed("cut short"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(Malformed("a number is too long"))
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed("a length is too large"))?;
        if len > self.0.len() {
            return Err(Malformed("a length points past the end"));
        }
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u64()?;
        self.take(len)
    }

    pub(super) fn str(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("text is not UTF-8"))
    }

    pub(super) fn opt(&mut self) -> Result<Option<&'a str>, Malformed> {
        match self.u64()? {
            0 => Ok(None),
            len => {
                let bytes = self.take(len - 1)?;
                std::str::from_utf8(bytes).map(Some).map_err(|_| Malformed("text is not UTF-8"))
            }
        }
    }

    pub(super) fn json(&mut self) -> Result<Option<Json>, Malformed> {
        let text = self.opt()?;
        text.map(Json::from_text).transpose().map_err(|_| Malformed("stored JSON does not parse"))
    }

    pub(super) fn conversation(&mut self) -> Result<ConversationId, Malformed> {
        ConversationId::new(self.str()?).map_err(|_| Malformed("not a conversation id"))
    }

    pub(super) fn user(&mut self) -> Result<UserId, Malformed> {
        UserId::new(self.str()?).map_err(|_| Malformed("not a user id"))
    }

    pub(super) fn device(&mut self) -> Result<DeviceId, Malformed> {
        DeviceId::new(self.str()?).map_err(|_| Malformed("not a device id"))
    }
}

pub(super) fn check_format(r: &mut ByteReader<'_>) -> Result<(), Malformed> {
    match r.u8()? {
        FORMAT => Ok(()),
        _ => Err(NEWER),
    }
}

pub(super) fn side(bit: u8) -> Side {
    if bit == 0 { Side::Low } else { Side::High }
}
