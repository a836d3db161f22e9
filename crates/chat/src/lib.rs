//! The rules of delivery. A file an operation; no sockets, no environment, no wall clock.
//!
//! What happens when Bob reconnects: [`session`] registers him, asks [`ChatService`] for a plan (`plan.rs`), and its
//! delivery (`session/delivery.rs`) merges what the plan names into one stream.

mod ack;
mod admin;
mod app;
mod attachments;
mod budget;
mod cold;
mod deliver;
mod devices;
mod error;
mod fanout;
mod gateway;
mod history;
mod inbox;
mod onlookers;
mod plan;
mod presence;
mod profiles;
mod push;
mod range;
mod revocation;
mod rules;
mod send;
mod service;
pub mod session;
mod settle;
mod slot;
mod trace;
mod users;

pub use admin::{
    Admin, AdminCall, Erased, ExportedAttachment, Operator, Recounted, Repaired, Revoked, TraceReport,
    UploadUsageRow, UserExport,
};
pub use app::*;
pub use attachments::{Begun, Collector, Link, UploadLimits, Uploads};
pub use budget::{Exhausted, RequestBudget, SendBudget, SendCost, Taking, Unlimited, rate_limited, units};
pub use cold::{
    ColdMoved, ColdPlace, ColdProgress, ColdStep, ColdStepped, ColdSurvey, ColdVerified, Mover, MoverConfig,
};
pub use error::wire;
pub use fanout::{Background, Spawner};
pub use gateway::Gateway;
pub use onlookers::{Onlookers, Onlooking, Seen};
pub use profiles::{ProfileRules, ProfileSource};
pub use push::{
    About, Notification, NotificationKind, Notifier, Push, PushConfig, PushTested, Pushed, RouteHealth,
};
pub use revocation::{is_revoked, token_revoked};
#[cfg(feature = "sim")]
pub use rules::Rule;
pub use rules::Rules;
pub use service::{ChatConfig, ChatService};
pub use trace::{Step, Trace, TraceEvent};
