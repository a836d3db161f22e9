//! `bluetick trace`: the steps that a message went through, with their times.

use bluetick_protocol::{ConversationId, MessageId, Seq, UserId};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::chat::clock::civil;
use super::{Failure, Outcome, output, remote::segment, table, target::Target};

#[derive(Debug, Args)]
pub struct TraceArgs {
    /// A message id, or a conversation and a seq
    #[arg(value_name = "MESSAGE_ID | CONVERSATION SEQ", num_args = 1..=2, required = true)]
    message: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: TraceArgs) -> Outcome {
    let path = path_of(&args.message).map_err(Failure::Usage)?;
    let answer = args.target.remote()?.get(&path).await?;
    let wrong =
        |e: serde_json::Error| Failure::Failed(format!("the server's answer is not a trace report: {e}"));
    let text = if args.json {
        format!("{:#}\n", serde_json::from_slice::<Value>(&answer).map_err(wrong)?)
    } else {
        serde_json::from_slice::<MessageTrace>(&answer).map_err(wrong)?.render()
    };
    Ok(output::print(&text)?)
}

fn path_of(message: &[String]) -> Result<String, String> {
    match message {
        [id] if id.contains('~') => {
            Err(format!("{id} is a conversation: give the seq of the message after it"))
        }
        [id] => {
            let id: MessageId = id.parse().map_err(|e| format!("{e}"))?;
            Ok(format!("trace/{id}"))
        }
        [conversation, seq] => {
            let conversation = ConversationId::new(conversation).map_err(|e| e.to_string())?;
            match seq.parse::<Seq>() {
                Ok(seq) if seq > 0 => Ok(format!("trace/{}/{seq}", segment(conversation.as_str()))),
                _ => Err(format!("{seq:?} is not a seq; seqs count from 1")),
            }
        }
        _ => Err("give a message id, or a conversation and a seq".into()),
    }
}

/// The part of the server's report that is printed.
#[derive(Debug, Deserialize)]
struct MessageTrace {
    conversation_id: ConversationId,
    seq: Seq,
    message_id: MessageId,
    sender: UserId,
    receiver: UserId,
    stored_at: u64,
    withheld: bool,
    void: bool,
    tick: String,
    first_undelivered_seq: Option<Seq>,
    events: Vec<TracedStep>,
}

#[derive(Debug, Deserialize)]
struct TracedStep {
    at: u64,
    step: String,
    seq: Seq,
    who: String,
}

impl MessageTrace {
    fn render(&self) -> String {
        let mut text = format!(
            "message  {} {}, id {}, from {} to {}\nstored   {}\ntick     {}\n",
            self.conversation_id,
            self.seq,
            self.message_id,
            self.sender,
            self.receiver,
            utc(self.stored_at),
            self.tick
        );
        match self.first_undelivered_seq {
            Some(first) => {
                text.push_str(&format!("pending  a row from seq {first} on waits for {}\n", self.receiver))
            }
            None => text.push_str("pending  no row waits for it\n"),
        }
        if self.withheld {
            text.push_str(&format!("withheld {} blocked {} when it was sent\n", self.receiver, self.sender));
        }
        if self.void {
            text.push_str("void     only its seq is kept\n");
        }
        if self.events.is_empty() {
            text.push_str("\nno steps are kept: they are too old, or from before the server's last start\n");
            return text;
        }
        let rows: Vec<Vec<Value>> = self
            .events
            .iter()
            .map(|e| vec![utc(e.at).into(), e.step.as_str().into(), e.seq.into(), e.who.as_str().into()])
            .collect();
        text.push('\n');
        text.push_str(&table::render(&["at", "step", "seq", "who"], &rows));
        text
    }
}

/// A time in milliseconds since 1970 as text, in UTC.
pub(super) fn utc(ms: u64) -> String {
    let (days, in_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, milli) = (in_day / 1_000 % 60, in_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(words: &[&str]) -> Result<String, String> {
        path_of(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_message_is_named_by_id_or_by_place() {
        assert_eq!(path(&["123456789"]).unwrap(), "trace/123456789");
        assert_eq!(path(&["alice~bob", "7"]).unwrap(), "trace/alice~bob/7");
        for wrong in [&["alice~bob"][..], &["alice~bob", "0"], &["bob~alice", "1"], &["x"], &["-1"]] {
            assert!(path(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn moments_are_told_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(utc(1_704_067_199_999), "2023-12-31T23:59:59.999Z");
        assert_eq!(utc(1_709_210_096_007), "2024-02-29T12:34:56.007Z");
    }
}
