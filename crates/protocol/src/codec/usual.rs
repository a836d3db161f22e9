//! The fast path for the most frequent frames: `send`, `ack` and `read` as clients write them, a flat object without
//! spaces that begins with its `type`. They are read in one pass. All other frames, valid or not, are left to
//! `decode_any`.

use std::borrow::Cow;

use crate::{ClientFrame, ClientMsgId, ConversationId, Receipt, Ref, Send, UserId, limits};

use super::check_send;

/// The frame, if it has this form.
pub(super) fn read(text: &str) -> Option<ClientFrame> {
    let (kind, rest) = up_to_quote(text.strip_prefix("{\"type\":\"")?)?;
    let fields = Fields(rest);
    match kind {
        "send" => read_send(fields).map(ClientFrame::Send),
        "ack" => read_receipt(fields).map(ClientFrame::Ack),
        "read" => read_receipt(fields).map(ClientFrame::Read),
        _ => None,
    }
}

fn read_send(mut fields: Fields<'_>) -> Option<Send> {
    let (mut reference, mut client_msg_id, mut to, mut conversation_id) = (None, None, None, None);
    let (mut body, mut seen_seq) = (None, None);
    while let Some((name, value)) = fields.next()? {
        match name {
            "ref" => put(&mut reference, value.reference()?)?,
            "client_msg_id" => put(&mut client_msg_id, ClientMsgId::new(&value.text()?).ok()?)?,
            "to" => put(&mut to, UserId::new(&value.text()?).ok()?)?,
            "conversation_id" => put(&mut conversation_id, ConversationId::new(&value.text()?).ok()?)?,
            "body" => put(&mut body, value.text()?.into_owned())?,
            "seen_seq" => put(&mut seen_seq, value.number()?)?,
            _ => return None,
        }
    }
    let send = Send {
        reference,
        client_msg_id: client_msg_id?,
        to,
        conversation_id,
        body: body.unwrap_or_default(),
        attachment: None,
        meta: None,
        seen_seq,
    };
    check_send(send).ok()
}

fn read_receipt(mut fields: Fields<'_>) -> Option<Receipt> {
    let (mut reference, mut conversation_id, mut seq) = (None, None, None);
    while let Some((name, value)) = fields.next()? {
        match name {
            "ref" => put(&mut reference, value.reference()?)?,
            "conversation_id" => put(&mut conversation_id, ConversationId::new(&value.text()?).ok()?)?,
            "seq" => put(&mut seq, value.number()?)?,
            _ => return None,
        }
    }
    Some(Receipt { reference, conversation_id: conversation_id?, seq: seq? })
}

/// Sets a field. A field that comes twice is an error, which `decode_any` reports.
fn put<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// The rest of an object after one of its values.
struct Fields<'a>(&'a str);

enum Value<'a> {
    Text(Cow<'a, str>),
    /// An integer in JSON's notation.
    Number(&'a str),
}

impl<'a> Fields<'a> {
    /// The next name and its value; `Some(None)` at the end of the object, `None` if it does not have the plain form.
    fn next(&mut self) -> Option<Option<(&'a str, Value<'a>)>> {
        if self.0 == "}" {
            return Some(None);
        }
        let (name, rest) = up_to_quote(self.0.strip_prefix(",\"")?)?;
        let rest = rest.strip_prefix(':')?;
        let (value, rest) = match rest.strip_prefix('"') {
            Some(rest) => {
                let (text, rest) = text(rest)?;
                (Value::Text(text), rest)
            }
            None => {
                let end = rest.bytes().position(|b| matches!(b, b',' | b'}'))?;
                let (number, rest) = rest.split_at(end);
                (Value::Number(number), rest)
            }
        };
        self.0 = rest;
        Some(Some((name, value)))
    }
}

fn up_to_quote(text: &str) -> Option<(&str, &str)> {
    let end = memchr::memchr(b'"', text.as_bytes())?;
    Some((&text[..end], &text[end + 1..]))
}

/// A string value after its first quote, and what follows its last one.
fn text(rest: &str) -> Option<(Cow<'_, str>, &str)> {
    let (plain, after) = up_to_quote(rest)?;
    // No early exit, so that the compiler vectorises the loop.
    let (control, escape) = plain
        .bytes()
        .fold((false, false), |(control, escape), b| (control | (b < 0x20), escape | (b == b'\\')));
    if control {
        return None;
    }
    if !escape {
        return Some((Cow::Borrowed(plain), after));
    }
    let mut escaped = false;
    let end = rest.bytes().position(|b| {
        let ends = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        ends
    })?;
    // With the quotes before and after it.
    let unescaped = serde_json::from_str(&format!("\"{}", &rest[..=end])).ok()?;
    Some((Cow::Owned(unescaped), &rest[end + 1..]))
}

impl<'a> Value<'a> {
    fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Value::Text(text) => Some(text),
            Value::Number(_) => None,
        }
    }

    fn number<N: std::str::FromStr>(self) -> Option<N> {
        let Value::Number(number) = self else { return None };
        let digits = number.strip_prefix('-').unwrap_or(number);
        let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (!digits.starts_with('0') || number == "0");
        number.parse().ok().filter(|_| plain)
    }

    fn reference(self) -> Option<Ref> {
        match self {
            Value::Text(text) if text.len() <= limits::REF_MAX_BYTES => Some(Ref::Text(text.into_owned())),
            Value::Text(_) => None,
            number => number.number().map(Ref::Number),
        }
    }
}
