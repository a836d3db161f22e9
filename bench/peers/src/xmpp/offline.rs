//! The receiver is away while the sender writes, and comes back later.

use std::fmt::Write as _;

use super::{
    Account, HOST, Target, all, body, client::Client, complaints, log_in, receiver_of, sender_of,
    stanza::text_of,
};
use crate::results::{Stage, StageClock};

/// Written at once before the socket may take it.
const CHUNK_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub pairs: u32,
    /// Messages to each receiver.
    pub messages: u32,
    pub body_bytes: usize,
}

impl Plan {
    fn total(&self) -> u64 {
        u64::from(self.pairs) * u64::from(self.messages)
    }
}

/// Sends as fast as the server takes it. XMPP acknowledges nothing, so each sender asks for a sign of life behind
/// its last message: when that is answered, the server is through with all before it.
pub async fn store(target: Target, plan: Plan) -> Result<Stage, String> {
    let mut senders = log_in(target, (0..plan.pairs).map(sender_of)).await?;
    for sender in &mut senders {
        sender.appear();
        sender.round_trip(|_| ()).await?;
    }
    let clock = StageClock::start(target.tree);
    let pairs = (0..plan.pairs).zip(senders);
    let refused = all(pairs.map(|(pair, sender)| send(sender, receiver_of(pair), plan))).await?;
    let mut stage = clock.stop(plan.total());
    let refused: u64 = refused.iter().sum();
    if refused > 0 {
        stage.complaints.push(format!("{refused} of {} messages were refused", plan.total()));
    }
    Ok(stage)
}

async fn send(mut sender: Client, to: String, plan: Plan) -> Result<u64, String> {
    for n in 0..plan.messages {
        let body = body(n, 0, plan.body_bytes);
        // Writing to a string cannot fail.
        let _ = write!(
            sender.out,
            "<message to='{to}@{HOST}' type='chat' id='{n}'><body>{body}</body></message>"
        );
        if sender.out.len() >= CHUNK_BYTES {
            sender.flush().await?;
        }
    }
    let mut refused = 0;
    sender.round_trip(|stanza| refused += u64::from(stanza.starts_with("<message"))).await?;
    Ok(refused)
}

/// The receivers come back: they log in, as in `bluetick bench` they connect and say hello, and from their presence on
/// the server sends what it has. What the log-ins cost is told apart.
pub async fn drain(target: Target, plan: Plan) -> Result<Stage, String> {
    let clock = StageClock::start(target.tree);
    let receivers = log_in(target, (0..plan.pairs).map(receiver_of)).await?;
    let login_cpu_micros = clock.cpu_micros();
    let drained = all(receivers.into_iter().map(|receiver| receive(receiver, plan))).await?;
    let mut stage = clock.stop(drained.iter().map(|(_, account)| u64::from(account.received)).sum());
    stage.login_cpu_micros_per_message = Some(login_cpu_micros as f64 / stage.messages.max(1) as f64);
    let accounts = all(drained.into_iter().map(|(receiver, account)| listen_on(receiver, account))).await?;
    stage.complaints.extend(complaints(plan.total(), &accounts));
    Ok(stage)
}

async fn receive(mut receiver: Client, plan: Plan) -> Result<(Client, Account), String> {
    let mut account = Account::default();
    receiver.appear();
    receiver.flush().await?;
    let owed = receiver.until(|stanza| {
        take(&mut account, stanza);
        Ok(account.received >= plan.messages)
    });
    // Who does not get all it is owed has waited long enough; the account says what is missing.
    if let Err(why) = owed.await
        && account.received == 0
    {
        return Err(why);
    }
    Ok((receiver, account))
}

/// Everything that was owed has come: is there something that was not?
async fn listen_on(mut receiver: Client, mut account: Account) -> Result<Account, String> {
    receiver.round_trip(|stanza| take(&mut account, stanza)).await?;
    Ok(account)
}

fn take(account: &mut Account, stanza: &str) {
    if stanza.starts_with("<message") {
        account.take(text_of(stanza, "body"));
    }
}
