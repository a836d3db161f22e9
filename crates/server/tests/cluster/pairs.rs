//! Pairs of users who write to each other, spread over both gateways: the real client on three devices a pair, which
//! reconnects and sends again whatever was not confirmed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bluetick_client::{Client, Draft, Event, Events, Options};
use bluetick_protocol::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::sync::watch;

use crate::{
    harness::*,
    history::History,
    rows::{StoredRows, wait_for},
};

/// Messages that a writer has on their way at a time.
const AHEAD: usize = 6;

pub struct ChatPairs {
    pairs: Vec<ChatPair>,
    at_work: watch::Sender<bool>,
}

struct ChatPair {
    id: ConversationId,
    /// Who, on which device, as the history calls it.
    devices: Vec<(UserId, String)>,
    reader: Client,
    history: Arc<Mutex<History>>,
}

impl ChatPairs {
    pub fn settle_in(server: &Server, count: usize, seed: u64) -> ChatPairs {
        let (at_work, working) = watch::channel(false);
        let pairs = (0..count).map(|n| ChatPair::settle_in(server, n, seed, &working)).collect();
        ChatPairs { pairs, at_work }
    }

    pub fn work(&self, at_work: bool) {
        self.at_work.send_replace(at_work);
    }

    pub fn told_so_far(&self) -> usize {
        self.pairs.iter().map(|pair| pair.history.lock().unwrap().told_so_far()).sum()
    }

    /// Lets everything come to rest, and compares what everybody has and knows.
    pub async fn check_all(&self, server: &Server, after: &str) {
        for pair in &self.pairs {
            pair.check(server, after).await;
        }
    }
}

impl ChatPair {
    fn settle_in(server: &Server, n: usize, seed: u64, working: &watch::Receiver<bool>) -> ChatPair {
        let (one, other) = (format!("p{n}-a"), format!("p{n}-b"));
        let history: Arc<Mutex<History>> = Arc::default();
        let id = conversation(&format!("{one}~{other}"));
        let mut devices = Vec::new();
        let mut reader = None;
        for (place, (name, device, to)) in
            [(&one, "phone", &other), (&other, "phone", &one), (&other, "tablet", &one)]
                .into_iter()
                .enumerate()
        {
            let options =
                Options::new(server.url(), DeviceId::new(device).unwrap(), server.mint(name.as_str()));
            let (client, hears) = Client::connect(options);
            let label = format!("{name} {device}");
            devices.push((user(name), label.clone()));
            let listener = PairListener { me: user(name), label, history: history.clone() };
            tokio::spawn(listener.listen(client.clone(), hears));
            // The tablet only reads.
            if device == "phone" {
                let rng = StdRng::seed_from_u64(seed ^ (n * 8 + place) as u64);
                let writer = PairWriter { me: name.clone(), to: to.clone(), id: id.clone(), rng };
                tokio::spawn(writer.write(client.clone(), history.clone(), working.clone()));
            }
            reader = Some(client);
        }
        ChatPair { id, devices, reader: reader.unwrap(), history }
    }

    async fn check(&self, server: &Server, after: &str) {
        let history = || self.history.lock().unwrap();
        let in_vain =
            || format!("after {after}: {} sends of {} get no answer", history().unanswered(), self.id);
        wait_for(in_vain, || history().unanswered() == 0).await;
        for (user, device) in &self.devices {
            let missing = || history().missing(device, user);
            wait_for(|| format!("after {after}: {device} lacks {:?}", missing()), || missing().is_empty())
                .await;
        }
        let rows = StoredRows { server, client: &self.reader, history: &self.history };
        for (user, _) in &self.devices {
            rows.pending_go(user.as_str(), after).await;
        }
        let last = rows.compare(&self.id, 0).await;
        rows.all_turn_blue(&self.id, last, after).await;
        history().is_sound(after);
    }
}

struct PairWriter {
    me: String,
    to: String,
    id: ConversationId,
    rng: StdRng,
}

impl PairWriter {
    async fn write(
        mut self,
        client: Client,
        history: Arc<Mutex<History>>,
        mut working: watch::Receiver<bool>,
    ) {
        for n in 0u64.. {
            if working.wait_for(|at_work| *at_work).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(self.rng.random_range(10..60))).await;
            if history.lock().unwrap().unanswered() >= AHEAD {
                continue;
            }
            let body = format!("{} {n}", self.me);
            let Ok(named) = client.post(Draft::text(user(&self.to), body.clone())).await else { return };
            history.lock().unwrap().posted(named, self.id.clone(), body);
        }
    }
}

struct PairListener {
    me: UserId,
    label: String,
    history: Arc<Mutex<History>>,
}

impl PairListener {
    async fn listen(self, client: Client, mut hears: Events) {
        let mut count = 0u64;
        while let Some(event) = hears.next().await {
            let mut read = None;
            {
                let mut history = self.history.lock().unwrap();
                match event {
                    Event::Message(m) => {
                        count += 1;
                        history.received(&self.label, &m);
                        // Its own, from the other device; and whatever it answers says that it has read so far.
                        history.will_read(&self.me, &m.conversation_id, m.seq);
                        read = count.is_multiple_of(5).then_some((m.conversation_id, m.seq));
                    }
                    Event::Sent(sent) => {
                        history.will_read(&self.me, &sent.conversation_id, sent.seq);
                        history.told(sent);
                    }
                    Event::Ticks(ticks) => history.ticked(&ticks),
                    Event::SendFailed { client_msg_id, error } => {
                        history.fault(format!("{client_msg_id} was refused for good: {error}"));
                    }
                    _ => {}
                }
            }
            if let Some((id, seq)) = read {
                let _ = client.read(id, seq).await;
            }
        }
    }
}
