//! Attributes of items: building and parsing.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use bluetick_protocol::{ConversationId, MessageId, Seq, UserId};

use crate::{Result, StoreError};

pub(super) type Item = HashMap<String, AttributeValue>;
pub(super) type ItemKey = HashMap<String, AttributeValue>;

pub(super) fn s(text: impl ToString) -> AttributeValue {
    AttributeValue::S(text.to_string())
}

pub(super) fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(super) fn flag() -> AttributeValue {
    AttributeValue::Bool(true)
}

pub(super) fn key<const N: usize>(parts: [(&str, AttributeValue); N]) -> ItemKey {
    parts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Parses attributes; an error names the attribute.
pub(super) trait Attributes {
    fn text(&self, name: &str) -> Option<&str>;
    fn number(&self, name: &str) -> Option<u64>;
    fn has(&self, name: &str) -> bool;

    fn need_text(&self, name: &str) -> Result<&str> {
        self.text(name).ok_or_else(|| missing(name))
    }

    fn need_number(&self, name: &str) -> Result<u64> {
        self.number(name).ok_or_else(|| missing(name))
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    fn seq(&self, name: &str) -> Seq {
        self.number(name).unwrap_or_default()
    }

    fn user(&self, name: &str) -> Result<UserId> {
        UserId::new(self.need_text(name)?).map_err(|e| damaged(name, e))
    }

    fn conversation(&self) -> Result<ConversationId> {
        ConversationId::new(self.need_text("conversation_id")?).map_err(|e| damaged("conversation_id", e))
    }

    fn message_id(&self, name: &str) -> Result<MessageId> {
        self.need_number(name).map(MessageId)
    }
}

impl Attributes for Item {
    fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| value.as_s().ok()).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).and_then(|value| value.as_n().ok()).and_then(|text| text.parse().ok())
    }

    fn has(&self, name: &str) -> bool {
        self.contains_key(name)
    }
}

fn missing(name: &str) -> StoreError {
    StoreError::Corrupt(format!("a row has no good `{name}`"))
}

pub(super) fn damaged(name: &str, why: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("a row's `{name}`: {why}"))
}
