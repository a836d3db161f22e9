//! Attacks that were tried against a running server, and what stops each. One file per attack.

mod demo;
mod file_permissions;
mod floods;
mod history_before_the_first;
mod identity;
mod reused_client_msg_id;
mod revocation;
mod send_in_somebodys_name;
mod slow_readers;
mod unacked;
mod uploads;
mod user_ids;
