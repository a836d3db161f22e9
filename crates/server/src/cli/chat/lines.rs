//! The client of lines, for pipes and scripts: what comes is printed, what is read is sent.

use std::{
    collections::HashSet,
    io::{BufRead, Write},
    time::Duration,
};

use bluetick_client::{Client, Draft, Event, Events};
use bluetick_protocol::{ClientMsgId, ConversationId, MessageFrame, UserId};
use tokio::{sync::mpsc, time::Instant};

use super::{clock, explain, screen::farewell, text::shown};

/// Lines on their way to the server; beyond it the input is not read.
const UNSENT_MAX: usize = 500;
/// A server that restarts is back much sooner.
const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

pub(super) struct Talk {
    pub(super) to: UserId,
    pub(super) conversation: ConversationId,
    pub(super) url: String,
}

/// The connection, as far as it matters to a script.
enum ScriptConnection {
    /// There was none yet.
    New,
    Up,
    Lost {
        give_up_at: Instant,
        why: String,
    },
}

impl ScriptConnection {
    async fn given_up(&self) {
        match self {
            ScriptConnection::Lost { give_up_at, .. } => tokio::time::sleep_until(*give_up_at).await,
            ScriptConnection::New | ScriptConnection::Up => std::future::pending().await,
        }
    }
}

/// Ends when the input has ended, all of it is sent, and what was waiting has been printed.
pub(super) async fn run(talk: Talk, client: Client, mut events: Events) -> Result<(), String> {
    let mut input = read_lines();
    let mut unsent: HashSet<ClientMsgId> = HashSet::new();
    let mut refusals = Vec::new();
    let (mut ended, mut caught_up) = (false, false);
    let mut link = ScriptConnection::New;
    while !(ended && caught_up && unsent.is_empty()) {
        tokio::select! {
            line = input.recv(), if !ended && unsent.len() < UNSENT_MAX => match line {
                Some(line) if line.trim().is_empty() => {}
                Some(line) => {
                    let draft = Draft::text(talk.to.clone(), line);
                    unsent.insert(client.post(draft).await.map_err(|e| e.to_string())?);
                }
                None => ended = true,
            },
            event = events.next() => match event {
                Some(Event::Message(message)) if message.conversation_id == talk.conversation => {
                    if print(&message).is_err() {
                        // Nobody reads what is printed, so there is nothing left to do.
                        break;
                    }
                    if message.sender == talk.to {
                        let _ = client.read(message.conversation_id, message.seq).await;
                    }
                }
                Some(Event::Sent(sent)) => {
                    unsent.remove(&sent.client_msg_id);
                }
                Some(Event::SendFailed { client_msg_id, error }) => {
                    unsent.remove(&client_msg_id);
                    refusals.push(error.to_string());
                }
                Some(Event::CaughtUp) => caught_up = true,
                Some(Event::Connected { .. }) => link = ScriptConnection::Up,
                Some(Event::Disconnected { why: Some(why), .. }) => {
                    let why = explain(&why);
                    match link {
                        // Nobody watches: whoever called decides whether to try again.
                        ScriptConnection::New => return Err(format!("cannot connect to {}: {why}", talk.url)),
                        ScriptConnection::Up => {
                            eprintln!("bluetick: the connection is lost ({why}); trying again");
                            link = ScriptConnection::Lost { give_up_at: Instant::now() + GIVE_UP_AFTER, why };
                        }
                        ScriptConnection::Lost { .. } => {}
                    }
                }
                Some(Event::Closed { code, reason }) => return Err(farewell(code, &reason)),
                Some(_) => {}
                None => return Err("the connection ended".into()),
            },
            () = link.given_up() => {
                let ScriptConnection::Lost { why, .. } = link else { continue };
                let unsent = unsent.len();
                return Err(format!("no connection to {} any more: {why}; {unsent} messages may not be sent", talk.url));
            }
        }
    }
    let _ = client.close().await;
    while events.next().await.is_some() {}
    match refusals.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} of the messages refused, the first with {first}", refusals.len())),
    }
}

/// Reads standard input on a thread, because it has no real asynchronous reads. A full channel
/// blocks the thread.
fn read_lines() -> mpsc::Receiver<String> {
    let (lines, taken) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']).to_owned();
            if lines.blocking_send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    taken
}

fn print(message: &MessageFrame) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", as_line(message))?;
    output.flush()
}

/// `[14:05] bob: text`. Further lines of a message are indented, so that none can be mistaken for
/// another message.
fn as_line(message: &MessageFrame) -> String {
    let body = shown(message).replace('\n', "\n    ");
    format!("[{}] {}: {body}", clock::time(message.ts), message.sender)
}

#[cfg(test)]
mod tests {
    use bluetick_protocol::MessageId;

    use super::*;

    #[test]
    fn a_message_is_one_line_with_its_time() {
        let mut message = MessageFrame {
            conversation_id: "alice~bob".parse().unwrap(),
            seq: 1,
            message_id: MessageId(1),
            client_msg_id: "m".parse().unwrap(),
            sender: "bob".parse().unwrap(),
            receiver: "alice".parse().unwrap(),
            body: "hi\x1b[0m\n[14:06] carol: not me".into(),
            ts: (14 * 60 + 5) * 60_000,
            attachment: None,
            meta: None,
        };
        assert_eq!(as_line(&message), "[14:05] bob: hi\u{fffd}[0m\n    [14:06] carol: not me");

        let attached = |mime: &str, name: &str| {
            let json = serde_json::json!({"s3_ref": "0".repeat(32), "name": name, "mime": mime, "bytes": 1});
            bluetick_protocol::Json::from_text(&json.to_string()).ok()
        };
        message.attachment = attached("image/png", "x.png");
        message.body = "look".into();
        assert_eq!(as_line(&message), "[14:05] bob: 📎 Photo: look");
        message.attachment = attached("application/pdf", "a\x1b.pdf");
        message.body.clear();
        assert_eq!(as_line(&message), "[14:05] bob: 📎 a\u{fffd}.pdf");
    }
}
