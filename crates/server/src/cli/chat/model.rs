//! What the screen shows, and how events change it. No terminal, no clock, no connection.

use std::collections::BTreeMap;

use bluetick_client::{Event, Tick};
use bluetick_protocol::{
    Boundaries, ClientMsgId, ConversationId, HistoryPage, InboxPage, MessageFrame, Presence, Sent, Seq,
    UserId,
};

use super::{
    input::TextInput,
    text::{harmless, shown},
};

/// How long "typing…" is believed without hearing it again.
const TYPING_MS: u64 = 6_000;
/// How long a remark at the bottom stays.
const NOTICE_MS: u64 = 8_000;
/// How often the other side is told that one is typing.
const TELL_TYPING_MS: u64 = 3_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShownMessage {
    pub(super) mine: bool,
    pub(super) body: String,
    pub(super) ts: u64,
}

/// A message of one's own that the server has not confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unsent {
    pub(super) id: ClientMsgId,
    pub(super) body: String,
    pub(super) ts: u64,
    /// Why the server refused it.
    pub(super) refused: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectionStatus {
    Connecting,
    Online,
    /// When the next attempt is due; `None` while offline on purpose.
    Offline {
        retry_at: Option<u64>,
    },
}

/// How far back the history is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Older {
    /// Nothing is loaded yet.
    Unknown,
    Loading,
    /// There is more before this seq.
    Before(Seq),
    /// The conversation's beginning is loaded.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) me: UserId,
    pub(super) peer: UserId,
    pub(super) peer_name: Option<String>,
    pub(super) conversation: ConversationId,
    pub(super) messages: BTreeMap<Seq, ShownMessage>,
    pub(super) unsent: Vec<Unsent>,
    pub(super) older: Older,
    pub(super) ticks: Boundaries,
    pub(super) presence: Option<Presence>,
    typing_until: u64,
    typing_told: u64,
    pub(super) link: ConnectionStatus,
    /// Why there is no connection, while there is none.
    pub(super) trouble: Option<String>,
    pub(super) input: TextInput,
    /// Lines between the newest and the bottom of the screen.
    pub(super) scroll: usize,
    /// Messages that came while the newest were out of sight.
    pub(super) unseen: usize,
    pub(super) focused: bool,
    notice: Option<(String, u64)>,
    pub(super) now_ms: u64,
    read: Seq,
    /// A first attempt to leave with unsent messages only warns.
    pub(super) warned: bool,
}

impl Model {
    pub(super) fn new(me: UserId, peer: UserId, conversation: ConversationId, now_ms: u64) -> Self {
        Model {
            me,
            peer,
            peer_name: None,
            conversation,
            messages: BTreeMap::new(),
            unsent: Vec::new(),
            older: Older::Unknown,
            ticks: Boundaries::default(),
            presence: None,
            typing_until: 0,
            typing_told: 0,
            link: ConnectionStatus::Connecting,
            trouble: None,
            input: TextInput::default(),
            scroll: 0,
            unseen: 0,
            focused: true,
            notice: None,
            now_ms,
            read: 0,
            warned: false,
        }
    }

    pub(super) fn peer_title(&self) -> &str {
        self.peer_name.as_deref().unwrap_or(self.peer.as_str())
    }

    pub(super) fn is_typing(&self) -> bool {
        self.now_ms < self.typing_until && self.link == ConnectionStatus::Online
    }

    pub(super) fn notice(&self) -> Option<&str> {
        let (text, until) = self.notice.as_ref()?;
        (self.now_ms < *until).then_some(text)
    }

    pub(super) fn remark(&mut self, text: impl Into<String>) {
        self.notice = Some((text.into(), self.now_ms + NOTICE_MS));
    }

    pub(super) fn tick_of(&self, seq: Seq) -> Tick {
        if seq <= self.ticks.last_read_seq {
            Tick::Blue
        } else if seq <= self.ticks.last_delivered_seq {
            Tick::Double
        } else {
            Tick::Single
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.unsent.iter().filter(|unsent| unsent.refused.is_none()).count()
    }

    /// Whether the other side should be told now that something is being typed.
    pub(super) fn tell_typing(&mut self) -> bool {
        let due = self.link == ConnectionStatus::Online && self.now_ms >= self.typing_told + TELL_TYPING_MS;
        if due {
            self.typing_told = self.now_ms;
        }
        due
    }

    /// What was on the screen counts as read; gives the seq to tell, once.
    pub(super) fn saw(&mut self, newest: Option<Seq>) -> Option<Seq> {
        if self.scroll == 0 {
            self.unseen = 0;
        }
        let newest = newest.filter(|seq| self.focused && *seq > self.read)?;
        self.read = newest;
        Some(newest)
    }

    // ---- what happens ----

    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Connected { .. } => {
                self.link = ConnectionStatus::Online;
                self.trouble = None;
            }
            Event::Disconnected { will_retry_in, why } => {
                self.trouble = why.map(|why| harmless(&super::explain(&why)).to_string());
                let retry_at = will_retry_in.map(|wait| self.now_ms + wait.as_millis() as u64);
                self.link = ConnectionStatus::Offline { retry_at };
                self.presence = None;
            }
            Event::Message(message) => self.message(message),
            Event::Sent(sent) => self.sent(sent),
            Event::SendFailed { client_msg_id, error } => {
                if let Some(unsent) = self.unsent.iter_mut().find(|unsent| unsent.id == client_msg_id) {
                    unsent.refused = Some(error.message.clone());
                }
                self.remark(format!("not sent: {}", harmless(&error.message)));
            }
            Event::Ticks(ticks)
                if ticks.conversation_id == self.conversation && ticks.user_id == self.peer =>
            {
                self.ticks.last_delivered_seq = self.ticks.last_delivered_seq.max(ticks.last_delivered_seq);
                self.ticks.last_read_seq = self.ticks.last_read_seq.max(ticks.last_read_seq);
            }
            Event::Typing(typing)
                if typing.conversation_id == self.conversation && typing.user_id == self.peer =>
            {
                self.typing_until = self.now_ms + TYPING_MS;
            }
            Event::Presence(presence) if presence.user_id == self.peer => self.presence = Some(presence),
            Event::Reset { .. } => {
                self.messages.clear();
                self.older = Older::Unknown;
            }
            _ => {}
        }
    }

    fn message(&mut self, message: MessageFrame) {
        if message.conversation_id != self.conversation {
            let body = shown(&message).replace('\n', " ");
            return self.remark(format!("✉ {}: {body}", message.sender));
        }
        if message.sender == self.peer {
            self.typing_until = 0;
            if self.scroll > 0 {
                self.unseen += 1;
            }
        }
        self.show(message);
    }

    fn show(&mut self, message: MessageFrame) {
        let body = shown(&message);
        let shown = ShownMessage { mine: message.sender == self.me, body, ts: message.ts };
        self.messages.insert(message.seq, shown);
    }

    /// A message was put into the outbox.
    pub(super) fn posted(&mut self, id: ClientMsgId, body: &str) {
        self.unsent.push(Unsent { id, body: harmless(body), ts: self.now_ms, refused: None });
        self.scroll = 0;
    }

    fn sent(&mut self, sent: Sent) {
        let Some(at) = self.unsent.iter().position(|unsent| unsent.id == sent.client_msg_id) else {
            return;
        };
        let unsent = self.unsent.remove(at);
        self.messages.insert(sent.seq, ShownMessage { mine: true, body: unsent.body, ts: sent.ts });
        self.warned = false;
    }

    /// A page of history came; `None` if it could not be loaded.
    pub(super) fn history(&mut self, page: Option<HistoryPage>, was: Older) {
        let Some(page) = page else {
            self.older = was;
            return;
        };
        self.older = page.next.map_or(Older::Nothing, Older::Before);
        for message in page.messages {
            self.show(message);
        }
    }

    /// The inbox knows the name that the host application gave the peer.
    pub(super) fn inbox(&mut self, page: &InboxPage) {
        let entry = page.conversations.iter().find(|entry| entry.conversation_id == self.conversation);
        if let Some(name) = entry.and_then(|entry| entry.peer.name.as_deref()) {
            self.peer_name = Some(harmless(name).replace('\n', " "));
        }
    }
}
