//! `bluetick chat`: a terminal client for one conversation.
//!
//! In a terminal it draws the conversation; without one (a pipe, a script) it reads and prints
//! lines. Both are thin layers over `bluetick_client`, which reconnects and keeps unsent messages.

pub(super) mod clock;
mod input;
mod keys;
mod lines;
mod model;
mod screen;
mod text;
mod view;

use std::{
    io::IsTerminal,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bluetick_client::{Client, Lost, Options};
use bluetick_protocol::{ConversationId, DeviceId, UserId};

use super::trust::CERTIFICATE_HINT;

/// Who talks to whom, and where.
#[derive(Debug, Clone)]
pub struct ChatOptions {
    pub me: UserId,
    pub to: UserId,
    /// The address of the server's WebSocket, `ws://…/v1/ws`.
    pub url: String,
    pub token: String,
    /// Certificate authorities of one's own.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// Runs until the user leaves, or, without a terminal, until the input ends and all of it is sent.
pub async fn run(options: ChatOptions) -> Result<(), String> {
    let ChatOptions { me, to, url, token, tls } = options;
    let conversation = ConversationId::between(&me, &to).ok_or("one cannot write to oneself")?;
    let shown_url = url.clone();
    let (client, events) = Client::connect(Options { tls, ..Options::new(url, device()?, token) });
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        let model = model::Model::new(me, to, conversation, now_ms());
        Box::pin(screen::run(model, client, events)).await
    } else {
        Box::pin(lines::run(lines::Talk { to, conversation, url: shown_url }, client, events)).await
    }
}

/// What is wrong with the connection, and what to do about it.
fn explain(why: &Lost) -> String {
    match why {
        Lost::Certificate(why) => format!("{why}; {CERTIFICATE_HINT}"),
        Lost::Connection(why) => why.clone(),
    }
}

/// Every run is a device of its own: two terminals of one user must not replace each other.
fn device() -> Result<DeviceId, String> {
    let name = format!("cli-{:x}-{:x}", now_ms(), std::process::id());
    DeviceId::new(&name).map_err(|e| e.to_string())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
