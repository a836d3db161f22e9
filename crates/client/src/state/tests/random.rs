//! Many random lives against a small server that cuts connections, repeats itself and leaves messages out: whatever
//! happens, every message of the peers is told once and in order, and every message sent is confirmed once.

use std::collections::HashMap;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

const CONVERSATIONS: [&str; 2] = ["alice~bob", "alice~carol"];
const SKIPPED: f64 = 0.3;

/// The rows of a server, and one session of its.
struct Toy {
    rng: StdRng,
    /// By conversation and seq; `None` is a void.
    rows: [Vec<Option<MessageFrame>>; 2],
    last_id: u64,
    greeted: bool,
    /// The next seq to deliver in the session.
    next: [Seq; 2],
    /// Left out messages must show later: by a gap or by the heads.
    skips: bool,
    to_client: VecDeque<ServerFrame>,
    to_server: VecDeque<ClientFrame>,
}

impl Toy {
    fn append(&mut self, which: usize, sender: &str, id: Option<ClientMsgId>) -> MessageFrame {
        let mut frame = message(CONVERSATIONS[which], sender, self.rows[which].len() as Seq + 1);
        self.last_id += 1;
        frame.message_id = MessageId(self.last_id);
        frame.client_msg_id = id.unwrap_or(frame.client_msg_id);
        self.rows[which].push(Some(frame.clone()));
        frame
    }

    /// One stream in the order of the ids: where the real one is less exact, it reads with an overlap.
    fn deliver(&mut self) {
        if !self.greeted {
            return;
        }
        let mut due = Vec::new();
        for which in 0..2 {
            while let Some(row) = self.rows[which].get(self.next[which] as usize - 1) {
                // The first message of all is never left out: nothing could show that it is missing.
                let skipped = self.skips && self.next[which] > 1 && self.rng.random_bool(SKIPPED);
                due.extend(row.clone().filter(|_| !skipped));
                self.next[which] += 1;
            }
        }
        due.sort_by_key(|frame| frame.message_id);
        self.to_client.extend(due.into_iter().map(ServerFrame::Message));
    }

    fn take(&mut self, frame: ClientFrame) {
        match frame {
            ClientFrame::Hello(hello) => {
                self.to_client.push_back(welcome());
                self.greeted = true;
                for which in 0..2 {
                    let known = |row: &Option<MessageFrame>| {
                        row.as_ref().is_some_and(|frame| Some(frame.message_id) <= hello.cursor)
                    };
                    let held = self.rows[which].iter().rposition(known).map_or(0, |at| at as Seq + 1);
                    // As the real one does, a part of what the device holds is delivered again.
                    self.next[which] = (held + 1).saturating_sub(self.rng.random_range(0..3)).max(1);
                }
                let cursor = MessageId(self.last_id);
                self.deliver();
                let heads = [0, 1].map(|which| Head {
                    conversation_id: CONVERSATIONS[which].parse().unwrap(),
                    last_seq: self.rows[which].len() as Seq,
                });
                let heads = heads.into_iter().filter(|head| head.last_seq > 0).collect();
                self.to_client.push_back(ServerFrame::CaughtUp(CaughtUp { cursor, heads }));
            }
            ClientFrame::Send(send) => {
                let which = usize::from(send.to.as_ref().unwrap().as_str() == "carol");
                // A session is not told of its own messages, except when it drains; what was before them is.
                self.deliver();
                let stored = self.rows[which].iter().flatten();
                let known = stored.into_iter().find(|row| row.client_msg_id == send.client_msg_id).cloned();
                let duplicate = known.is_some();
                let row = known.unwrap_or_else(|| self.append(which, "alice", Some(send.client_msg_id)));
                self.next[which] = self.next[which].max(row.seq + 1);
                self.to_client.push_back(ServerFrame::Sent(Sent {
                    reference: send.reference,
                    client_msg_id: row.client_msg_id,
                    conversation_id: row.conversation_id,
                    seq: row.seq,
                    message_id: row.message_id,
                    ts: row.ts,
                    duplicate,
                }));
            }
            ClientFrame::History(query) => {
                let which = usize::from(query.conversation_id.as_str() == CONVERSATIONS[1]);
                let from_seq = query.after_seq.unwrap() + 1;
                // Short pages make repairs of more than one.
                let to_seq = (from_seq + 2).min(self.rows[which].len() as Seq);
                let rows = self.rows[which].iter().skip(from_seq as usize - 1).take(3);
                self.to_client.push_back(ServerFrame::History(HistoryPage {
                    reference: query.reference,
                    conversation_id: query.conversation_id,
                    messages: rows.flatten().cloned().collect(),
                    from_seq,
                    to_seq,
                    next: Some(to_seq).filter(|seq| *seq < self.rows[which].len() as Seq),
                }));
            }
            _ => {}
        }
    }
}

/// What the application was told.
#[derive(Default)]
struct Told {
    messages: HashMap<ConversationId, Vec<Seq>>,
    confirmed: Vec<ClientMsgId>,
}

impl Told {
    fn listen(&mut self, client: &mut ClientState) {
        for event in events(client) {
            match event {
                Event::Message(m) => {
                    assert_ne!(m.sender.as_str(), "alice", "own messages are confirmed, not told");
                    self.messages.entry(m.conversation_id).or_default().push(m.seq);
                }
                Event::Sent(sent) => self.confirmed.push(sent.client_msg_id),
                Event::SendFailed { .. } => panic!("nothing was refused"),
                _ => {}
            }
        }
    }
}

fn live(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut toy = Toy {
        rng: StdRng::seed_from_u64(!seed),
        rows: [vec![], vec![]],
        last_id: 0,
        greeted: false,
        next: [1, 1],
        skips: true,
        to_client: VecDeque::new(),
        to_server: VecDeque::new(),
    };
    let mut client = ClientState::new(DeviceId::new("laptop").unwrap(), seed, None);
    let (mut told, mut posted, mut cursor) = (Told::default(), Vec::new(), None);
    let mut connected = false;
    // Short lives end with something missing more often than long ones; the last steps of all are quiet.
    let noisy = rng.random_range(10..300);
    for step in 0..noisy + 50 {
        let quiet = step >= noisy;
        let dice = if quiet { rng.random_range(4..10) } else { rng.random_range(0..10) };
        match dice {
            0 if connected && rng.random_bool(0.3) => {
                (connected, toy.greeted) = (false, false);
                client.disconnected();
                toy.to_client.clear();
                toy.to_server.clear();
            }
            1 => {
                let which = rng.random_range(0..2);
                if rng.random_bool(0.1) && !toy.rows[which].is_empty() {
                    toy.rows[which].push(None);
                }
                toy.append(which, ["bob", "carol"][which], None);
            }
            2 => {
                let to = ["bob", "carol"][rng.random_range(0..2)];
                posted.push(client.send(Draft::text(user(to), "text")).unwrap());
            }
            _ if !connected || step == noisy => {
                // The last connection leaves nothing out.
                toy.skips = !quiet;
                toy.greeted = false;
                toy.to_client.clear();
                toy.to_server.clear();
                client.connected("token".into());
                connected = true;
            }
            3 | 4 => toy.deliver(),
            5 | 6 => {
                toy.to_server.extend(std::iter::from_fn(|| client.next_frame()));
            }
            7 => {
                let count = rng.random_range(0..=toy.to_server.len());
                let frames: Vec<_> = toy.to_server.drain(..count).collect();
                frames.into_iter().for_each(|frame| toy.take(frame));
            }
            _ => {
                let count = rng.random_range(0..=toy.to_client.len());
                let frames: Vec<_> = toy.to_client.drain(..count).collect();
                frames.into_iter().for_each(|frame| client.frame(frame));
            }
        }
        told.listen(&mut client);
        assert!(client.cursor() >= cursor, "the cursor went back");
        cursor = client.cursor();
    }
    for _ in 0..200 {
        toy.to_server.extend(std::iter::from_fn(|| client.next_frame()));
        while let Some(frame) = toy.to_server.pop_front() {
            toy.take(frame);
        }
        toy.deliver();
        while let Some(frame) = toy.to_client.pop_front() {
            client.frame(frame);
        }
        told.listen(&mut client);
    }

    for (which, conversation) in CONVERSATIONS.iter().enumerate() {
        let of_peer = toy.rows[which].iter().flatten().filter(|row| row.sender.as_str() != "alice");
        let expected: Vec<Seq> = of_peer.map(|row| row.seq).collect();
        let conversation: bluetick_protocol::ConversationId = conversation.parse().unwrap();
        let heard = told.messages.remove(&conversation).unwrap_or_default();
        assert_eq!(heard, expected, "in {conversation}");
    }
    assert_eq!(client.outbox_len(), 0);
    let (mut confirmed, mut all) = (told.confirmed, posted);
    confirmed.sort();
    all.sort();
    assert_eq!(confirmed, all);
    assert!(client.repairs.is_empty());
}

#[test]
fn whatever_happens_each_message_is_told_once_and_in_order() {
    for seed in 0..1000 {
        let run = std::panic::catch_unwind(|| live(seed));
        assert!(run.is_ok(), "seed {seed} failed");
    }
}
