//! The attacks of `it` that are about more than one process or its files, once more against a cluster.

#[path = "../it/attacks/floods.rs"]
mod floods;
#[path = "../it/attacks/history_before_the_first.rs"]
mod history_before_the_first;
#[path = "../it/attacks/identity.rs"]
mod identity;
#[path = "../it/attacks/reused_client_msg_id.rs"]
mod reused_client_msg_id;
#[path = "../it/attacks/revocation.rs"]
mod revocation;
#[path = "../it/attacks/send_in_somebodys_name.rs"]
mod send_in_somebodys_name;
#[path = "../it/attacks/unacked.rs"]
pub mod unacked;
#[path = "../it/attacks/user_ids.rs"]
mod user_ids;
