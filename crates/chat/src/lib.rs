//! The delivery rules ([`rules`]) and everything that follows from them, one file per operation. No
//! sockets, no environment, no wall clock.
//!
//! What happens to a message: `send.rs`, whose first lines are the path. What happens when Bob
//! reconnects: [`session`] registers him and asks [`ChatService`] for a plan (`plan.rs`), and
//! `session/delivery.rs` merges the planned conversations into one stream.

mod ack;
mod admin;
mod app;
mod attachments;
mod background;
mod budget;
mod cold;
mod deliver;
mod devices;
mod error;
mod fanout;
mod gateway;
mod history;
mod inbox;
mod observer;
mod plan;
mod presence;
mod profiles;
mod push;
mod range;
mod revocation;
pub mod rules;
mod send;
mod service;
pub mod session;
mod settle;
mod slot;
mod subscribers;
mod trace;
mod users;

pub use admin::{
    Admin, AdminCall, Erased, ExportedAttachment, Operator, Recounted, Repaired, Revoked, TraceReport,
    UploadUsageRow, UserExport,
};
pub use app::*;
pub use attachments::{BegunUpload, Collector, DownloadLink, UploadLimits, Uploads};
pub use background::{Background, Spawner};
pub use budget::{Exhausted, RequestBudget, SendBudget, SendCost, Taking, Unlimited, rate_limited, units};
pub use cold::{
    ColdMoved, ColdPlace, ColdProgress, ColdStep, ColdStepped, ColdSurvey, ColdVerified, Mover, MoverConfig,
};
pub use error::wire;
pub use gateway::Gateway;
pub use observer::DeliveryObserver;
pub use profiles::{ProfileRules, ProfileSource};
pub use push::{
    About, Notification, NotificationKind, Notifier, Push, PushConfig, PushTested, Pushed, RouteHealth,
};
pub use revocation::{is_revoked, token_revoked};
pub use rules::Rule;
pub use service::{ChatConfig, ChatService};
pub use subscribers::{StepEvent, Subscription};
pub use trace::{TraceEvent, TraceStep};
