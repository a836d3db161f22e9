//! A bot that answers each message once with its own text, also across restarts and crashes.
//!
//! ```text
//! cargo run                                            # a server, in another terminal
//! cargo run -p bluetick-client --example echo -- --token "$(cargo run -q -- token --user echo)" --state echo.json
//! ```
//!
//! Two things ensure that. The state file is written after every answer. And the id of an answer is
//! derived from the message: a bot that was killed before it wrote the file receives the message again,
//! answers again, and the server recognises the id.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

use bluetick_client::{
    Client, Draft, Event, Options, Saved,
    protocol::{ClientMsgId, DeviceId, Json, MessageFrame, UserId},
};
use clap::Parser;

/// Marks an answer, so that two bots do not answer each other endlessly.
const MARK: &str = r#"{"echo":true}"#;

/// Answer each message with its own text
#[derive(Parser)]
struct EchoArguments {
    /// The server's WebSocket
    #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:8080/v1/ws")]
    server: String,
    /// The bot's token, as `bluetick token --user echo` prints it
    #[arg(long, env = "BLUETICK_TOKEN", hide_env_values = true)]
    token: String,
    /// The state file; without it, each start is that of a new device
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The device id; a second bot with the same id replaces the first
    #[arg(long, default_value = "echo-bot")]
    device: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let EchoArguments { server, token, state, device } = EchoArguments::parse();
    let saved = state.as_deref().map(load).transpose()?.flatten();
    let options = Options::new(server, DeviceId::new(&device)?, token).saved(saved);
    let (client, mut events) = Client::connect(options);
    let mut me: Option<UserId> = None;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // The last `Saved` and `Closed` follow, and end the loop.
            _ = tokio::signal::ctrl_c() => {
                client.close().await?;
                continue;
            }
        };
        match event {
            Some(Event::Connected { user_id, .. }) => {
                println!("connected as {user_id}");
                me = Some(user_id);
            }
            Some(Event::Message(message)) if wants_answer(&message, me.as_ref()) => {
                println!("{}: {}", message.sender, message.body);
                answer(&client, message).await?;
            }
            Some(Event::SendFailed { error, .. }) => eprintln!("an answer was refused: {error}"),
            Some(Event::Saved(saved)) => {
                if let Some(file) = &state {
                    store(file, &saved)?;
                }
            }
            Some(Event::Disconnected { will_retry_in: Some(wait), .. }) => {
                println!("offline, next try in {wait:.0?}")
            }
            Some(Event::Closed { code: Some(code), reason }) => {
                return Err(format!("{code:?}: {reason}").into());
            }
            Some(_) => {}
            None => return Ok(()),
        }
    }
}

/// Not what another device of the bot's own wrote, and not another bot's answer.
fn wants_answer(message: &MessageFrame, me: Option<&UserId>) -> bool {
    Some(&message.sender) != me && message.meta.as_ref().is_none_or(|meta| meta.as_str() != MARK)
}

async fn answer(client: &Client, message: MessageFrame) -> Result<(), Box<dyn Error>> {
    client.read(message.conversation_id, message.seq).await?;
    let draft = Draft {
        client_msg_id: Some(ClientMsgId::new(&format!("echo-{}", message.message_id))?),
        meta: Some(Json::from_text(MARK)?),
        seen_seq: Some(message.seq),
        ..Draft::text(message.sender, message.body)
    };
    // Posting does not wait for the server: the outbox is part of what is saved next.
    client.post(draft).await?;
    client.save().await?;
    Ok(())
}

fn load(file: &Path) -> Result<Option<Saved>, Box<dyn Error>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Written beside and renamed, so that a crash leaves the old state or the new one.
fn store(file: &Path, saved: &Saved) -> io::Result<()> {
    let beside = file.with_extension("new");
    fs::write(&beside, serde_json::to_string(saved)?)?;
    fs::rename(&beside, file)
}
