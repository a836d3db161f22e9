//! Rate limits per user. Sends have a budget of messages and bytes, which app servers keep. Every
//! other request has a cost in units, which the gateway takes from one budget per user before it
//! does anything, whichever session, connection or API the request came through.

use std::future::{Ready, ready};

use bluetick_protocol::{ClientFrame, ErrorCode, UserId, WireError, limits};
use futures_util::future::{BoxFuture, Either};

/// The cost of sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendCost {
    pub messages: u32,
    /// Of body, `meta` and attachment together.
    pub bytes: u32,
}

/// How much a user may send, and how often they may change their profile.
pub trait SendBudget: Send + Sync {
    /// Takes the whole cost from the user's budget, or nothing. The error is the number of
    /// milliseconds until there is enough.
    fn take<'a>(&'a self, user: &'a UserId, cost: SendCost) -> Taking<'a>;

    /// The same for a change of the profile, which rewrites a row for each of the user's
    /// conversations.
    fn take_profile_change<'a>(&'a self, user: &'a UserId) -> Taking<'a>;
}

/// Ready at once if this process keeps the budget; otherwise after a round trip.
pub type Taking<'a> = Either<Ready<Result<(), u64>>, BoxFuture<'a, Result<(), u64>>>;

/// One budget per user for everything but sends, in units.
pub trait RequestBudget: Send + Sync {
    /// Takes `units`. The error is the number of milliseconds until there is enough. It is local
    /// and never waits.
    fn take(&self, user: &UserId, units: u32) -> Result<(), u64>;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl SendBudget for Unlimited {
    fn take<'a>(&'a self, _user: &'a UserId, _cost: SendCost) -> Taking<'a> {
        Either::Left(ready(Ok(())))
    }

    fn take_profile_change<'a>(&'a self, _user: &'a UserId) -> Taking<'a> {
        Either::Left(ready(Ok(())))
    }
}

impl RequestBudget for Unlimited {
    fn take(&self, _user: &UserId, _units: u32) -> Result<(), u64> {
        Ok(())
    }
}

/// What requests cost. A unit is about the work of one ack that is merged with others; a history
/// page of the largest size reads and writes half a megabyte.
pub mod units {
    /// A receipt that is stored. Receipts of one conversation that arrive together are merged into
    /// one.
    pub const RECEIPT: u32 = 1;
    pub const PING: u32 = 5;
    pub const TYPING: u32 = 10;
    /// A signature is checked.
    pub const AUTH: u32 = 50;
    /// A session is registered and its plan made.
    pub const HELLO: u32 = 100;
    /// One or two rows are read.
    pub const LOOKUP: u32 = 20;
    /// A row is written.
    pub const CHANGE: u32 = 50;
    /// A list whose length the user chooses.
    pub const LIST: u32 = 100;
    /// An inbox page, and each of its entries.
    pub const INBOX: u32 = 20;
    pub const INBOX_ENTRY: u32 = 2;
    /// A history page, and each of its messages.
    pub const HISTORY: u32 = 20;
    pub const HISTORY_MESSAGE: u32 = 1;
    /// Each user that a `watch` names: their row, their block and their sessions are looked up.
    pub const WATCHED: u32 = 10;
    pub const PROFILE: u32 = 500;
    pub const UPLOAD: u32 = 200;

    /// An inbox page of this size.
    pub fn inbox(limit: Option<u32>) -> u32 {
        let entries = limit.unwrap_or(super::limits::INBOX_DEFAULT_LIMIT).min(super::limits::INBOX_MAX_LIMIT);
        INBOX + entries * INBOX_ENTRY
    }

    /// A history page of this size.
    pub fn history(limit: Option<u32>) -> u32 {
        let messages =
            limit.unwrap_or(super::limits::HISTORY_DEFAULT_LIMIT).min(super::limits::HISTORY_MAX_LIMIT);
        HISTORY + messages * HISTORY_MESSAGE
    }
}

/// The cost of a frame. Sends have a budget of their own, and receipts are charged when they are
/// stored.
pub(crate) fn units_of(frame: &ClientFrame) -> u32 {
    match frame {
        ClientFrame::Send(_) | ClientFrame::Ack(_) | ClientFrame::Read(_) => 0,
        ClientFrame::Ping(_) | ClientFrame::Hello(_) => units::PING,
        ClientFrame::Typing(_) => units::TYPING,
        ClientFrame::Auth(_) => units::AUTH,
        ClientFrame::Status(_) => units::LOOKUP,
        ClientFrame::Inbox(query) => units::inbox(query.limit),
        ClientFrame::History(query) => units::history(query.limit),
        ClientFrame::Watch(watch) => units::LOOKUP + units::WATCHED * watch.users.len() as u32,
    }
}

/// Which budget was exhausted, as the metric names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    Sends,
    Requests,
    Profile,
}

impl Exhausted {
    pub const ALL: [Exhausted; 3] = [Exhausted::Sends, Exhausted::Requests, Exhausted::Profile];

    pub fn as_str(self) -> &'static str {
        match self {
            Exhausted::Sends => "sends",
            Exhausted::Requests => "requests",
            Exhausted::Profile => "profile",
        }
    }
}

/// The error for a request beyond its budget, which is counted here.
pub fn rate_limited(budget: Exhausted, retry_after_ms: u64) -> WireError {
    metrics::counter!("bluetick_rate_limited_total", "budget" => budget.as_str()).increment(1);
    let why = match budget {
        Exhausted::Sends => "too many messages, or too long ones, in a short time",
        Exhausted::Requests => "too many requests in a short time",
        Exhausted::Profile => "the profile was changed too often in a short time",
    };
    WireError::new(ErrorCode::RateLimited, why).retry_after(retry_after_ms)
}
