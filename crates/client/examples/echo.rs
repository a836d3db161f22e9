//! A bot that answers every message with its own text, and remembers where it was across restarts.
//!
//! ```text
//! cargo run -p bluetick-client --example echo -- ws://127.0.0.1:8080/v1/ws TOKEN [STATE_FILE]
//! ```

use std::error::Error;

use bluetick_client::{Client, Draft, Event, Options, Saved};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(token)) = (arguments.next(), arguments.next()) else {
        return Err("usage: echo URL TOKEN [STATE_FILE]".into());
    };
    let file = arguments.next();
    let options = Options::new(url, "echo-bot".parse()?, token).saved(load(file.as_deref())?);
    let (client, mut events) = Client::connect(options);
    let mut me = None;

    while let Some(event) = events.next().await {
        match event {
            Event::Connected { user_id, .. } => {
                println!("connected as {user_id}");
                me = Some(user_id);
            }
            // What another device of the bot's own wrote is no question to answer.
            Event::Message(message) if Some(&message.sender) != me.as_ref() => {
                println!("{}: {}", message.sender, message.body);
                client.read(message.conversation_id, message.seq).await?;
                let answer =
                    Draft { seen_seq: Some(message.seq), ..Draft::text(message.sender, message.body) };
                // Posting does not wait for the server: the outbox is part of what is saved next.
                client.post(answer).await?;
                client.save().await?;
            }
            Event::SendFailed { error, .. } => eprintln!("an answer was refused: {error}"),
            Event::Saved(saved) => store(file.as_deref(), &saved)?,
            Event::Disconnected { will_retry_in: Some(wait) } => println!("offline, next try in {wait:?}"),
            Event::Closed { code, reason } => println!("closed: {code:?} {reason}"),
            _ => {}
        }
    }
    Ok(())
}

fn load(file: Option<&str>) -> Result<Option<Saved>, Box<dyn Error>> {
    match file.map(std::fs::read_to_string) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(serde_json::from_str(&text)?)),
        Some(Err(e)) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Some(Err(e)) => Err(e.into()),
    }
}

/// Written beside and renamed, so that a crash leaves the old state or the new one.
fn store(file: Option<&str>, saved: &Saved) -> Result<(), Box<dyn Error>> {
    if let Some(file) = file {
        let beside = format!("{file}.new");
        std::fs::write(&beside, serde_json::to_string(saved)?)?;
        std::fs::rename(&beside, file)?;
    }
    Ok(())
}
