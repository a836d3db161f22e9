//! The notification service: who is told of a message that no live session took, when, and how often (R14).

mod notifier;

pub use notifier::{About, Notification, NotificationKind, Notifier, Pushed};
