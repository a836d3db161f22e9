//! One message from each sender to its receiver before anything is counted.
//!
//! A device that comes without a cursor is shown what is younger than the server's overlap once more when its
//! conversation begins to move. That is meant so, and it must not be counted: this takes it, of whatever run it is.

use bluetick_client::{RawConnection, RawError};
use bluetick_protocol::{Seq, ServerFrame, UserId};
use tokio::time::timeout;

use super::{
    frames::{self, Frame},
    patience::PATIENCE,
};

const BATCH: usize = 256;

/// The seq of the message that both have seen stored, received, acked and ticked: the next is the first of the run.
pub async fn up(
    from: &mut RawConnection,
    to: &mut RawConnection,
    receiver: &UserId,
    run: u64,
) -> Result<Seq, String> {
    let id = format!("warm-{run:x}");
    let text =
        format!(r#"{{"type":"send","ref":0,"client_msg_id":"{id}","to":"{receiver}","body":"warm up"}}"#);
    from.send_text(text).await.map_err(|e| e.to_string())?;
    let (sent, ()) = tokio::try_join!(see_ticked(from, receiver), receive(to, &id))
        .map_err(|why| format!("the first message to {receiver}: {why}"))?;
    Ok(sent)
}

async fn see_ticked(connection: &mut RawConnection, receiver: &UserId) -> Result<Seq, String> {
    let (mut sent, mut ticked, mut refused) = (None, 0, None);
    while sent.is_none_or(|seq| ticked < seq) {
        let taken = connection.next_texts(BATCH, |text| match frames::read(text) {
            Ok(Frame::Sent(answer)) => sent = Some(answer.seq),
            Ok(Frame::Ticks(ticks)) if ticks.user_id == receiver.as_str() => {
                ticked = ticks.last_delivered_seq
            }
            Ok(Frame::Other(other)) => refused = refused.take().or(refusal(&other)),
            Ok(_) => {}
            Err(why) => refused = Some(why),
        });
        in_time(taken).await?;
        if let Some(why) = refused {
            return Err(why);
        }
    }
    sent.ok_or_else(|| "it was not answered".into())
}

async fn receive(connection: &mut RawConnection, id: &str) -> Result<(), String> {
    let (mut came, mut refused) = (false, None);
    while !came {
        let mut acks = Vec::new();
        let taken = connection.next_texts(BATCH, |text| match frames::read(text) {
            Ok(Frame::Message(message)) => {
                came |= message.client_msg_id == id;
                acks.push(frames::ack(&message.conversation_id, message.seq));
            }
            Ok(Frame::Other(other)) => refused = refused.take().or(refusal(&other)),
            Ok(_) => {}
            Err(why) => refused = Some(why),
        });
        in_time(taken).await?;
        if let Some(why) = refused {
            return Err(why);
        }
        for ack in acks {
            connection.feed_text(ack).await.map_err(|e| e.to_string())?;
        }
        connection.flush().await.map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn refusal(frame: &ServerFrame) -> Option<String> {
    match frame {
        ServerFrame::Error(refusal) => Some(format!("the server refused: {}", refusal.error.message)),
        ServerFrame::Bye(bye) => Some(format!("sent away: {}", bye.reason)),
        _ => None,
    }
}

async fn in_time(taken: impl Future<Output = Result<(), RawError>>) -> Result<(), String> {
    timeout(PATIENCE, taken).await.unwrap_or(Err(RawError::Timeout)).map_err(|e| e.to_string())
}
