//! The loop of the terminal client: keys, events and answers change the model, the model is drawn.

use std::{io::stdout, time::Duration};

use bluetick_client::{Client, Draft, Error, Event, Events, HistoryRange};
use bluetick_protocol::{ErrorCode, HistoryPage, InboxPage, limits};
use crossterm::{
    event::{
        DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange, Event as Input,
        EventStream, KeyCode,
    },
    execute,
};
use futures_util::StreamExt;
use ratatui::DefaultTerminal;
use tokio::{sync::mpsc, time::MissedTickBehavior};

use super::{
    keys::{self, Wish},
    model::{ConnectionStatus, Model, Older},
    now_ms, view,
};

const PAGE: u32 = 50;
/// Events taken before the screen is drawn again.
const BURST_MAX: usize = 256;

/// The answer to something asked in the background.
enum Loaded {
    History { page: Result<HistoryPage, Error>, was: Older },
    Inbox(InboxPage),
}

struct Screen {
    model: Model,
    client: Client,
    answers: mpsc::Sender<Loaded>,
    shown: view::DrawnView,
    /// The last key looked for older messages.
    looks_back: bool,
}

pub(super) async fn run(model: Model, client: Client, events: Events) -> Result<(), String> {
    let mut terminal = ratatui::try_init().map_err(|e| format!("the terminal cannot be used: {e}"))?;
    // Terminals that know neither still work.
    let _ = execute!(stdout(), EnableBracketedPaste, EnableFocusChange);
    let (answers, inbox) = mpsc::channel(8);
    let screen = Screen { model, client, answers, shown: view::DrawnView::default(), looks_back: false };
    let ended = screen.run(&mut terminal, events, inbox).await;
    let _ = execute!(stdout(), DisableFocusChange, DisableBracketedPaste);
    ratatui::restore();
    ended
}

impl Screen {
    async fn run(
        mut self,
        terminal: &mut DefaultTerminal,
        mut events: Events,
        mut answers: mpsc::Receiver<Loaded>,
    ) -> Result<(), String> {
        let mut keys = EventStream::new();
        // Countdowns, "typing…" and remarks end by themselves.
        let mut second = tokio::time::interval(Duration::from_millis(500));
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        self.watch().await;
        loop {
            self.draw(terminal).await?;
            tokio::select! {
                event = events.next() => {
                    let mut next = event;
                    for _ in 0..BURST_MAX {
                        let Some(event) = next else { break };
                        if let Event::Closed { code, reason } = &event {
                            return Err(farewell(*code, reason));
                        }
                        self.event(event).await;
                        next = events.try_next();
                    }
                }
                input = keys.next() => match input {
                    Some(Ok(input)) => {
                        if self.input(input).await {
                            return leave(self.client, events).await;
                        }
                    }
                    Some(Err(e)) => return Err(format!("the terminal cannot be read: {e}")),
                    None => return leave(self.client, events).await,
                },
                Some(answer) = answers.recv() => self.answer(answer),
                _ = second.tick() => {}
            }
            self.model.now_ms = now_ms();
        }
    }

    async fn draw(&mut self, terminal: &mut DefaultTerminal) -> Result<(), String> {
        let (model, shown) = (&self.model, &mut self.shown);
        terminal.draw(|frame| *shown = view::draw(frame, model)).map_err(|e| format!("cannot draw: {e}"))?;
        self.model.scroll = self.shown.scroll;
        if let Some(seq) = self.model.saw(self.shown.newest) {
            let _ = self.client.read(self.model.conversation.clone(), seq).await;
        }
        if std::mem::take(&mut self.looks_back)
            && self.shown.near_top
            && let Older::Before(seq) = self.model.older
        {
            self.load(HistoryRange::Before(seq));
        }
        Ok(())
    }

    async fn event(&mut self, event: Event) {
        let connected = matches!(event, Event::Connected { .. } | Event::Reset { .. });
        // Presence is sent only for users with a shared conversation, which may have just begun.
        let acquainted = matches!(event, Event::Sent(_) | Event::Message(_)) && self.model.presence.is_none();
        self.model.event(event);
        if connected && self.model.older == Older::Unknown {
            self.load(HistoryRange::Newest);
            self.ask_name();
        }
        if acquainted {
            self.watch().await;
        }
    }

    async fn watch(&self) {
        let _ = self.client.watch(vec![self.model.peer.clone()]).await;
    }

    fn load(&mut self, range: HistoryRange) {
        let was = std::mem::replace(&mut self.model.older, Older::Loading);
        let (client, answers) = (self.client.clone(), self.answers.clone());
        let conversation = self.model.conversation.clone();
        tokio::spawn(async move {
            let page = client.history(conversation.clone(), range, Some(PAGE)).await;
            let _ = answers.send(Loaded::History { page, was }).await;
            // The answer reaches the model as ticks.
            let _ = client.status(conversation).await;
        });
    }

    fn ask_name(&self) {
        let (client, answers) = (self.client.clone(), self.answers.clone());
        tokio::spawn(async move {
            if let Ok(page) = client.inbox(Some(limits::INBOX_MAX_LIMIT), None).await {
                let _ = answers.send(Loaded::Inbox(page)).await;
            }
        });
    }

    fn answer(&mut self, answer: Loaded) {
        match answer {
            Loaded::Inbox(page) => self.model.inbox(&page),
            Loaded::History { page: Ok(page), was } => self.model.history(Some(page), was),
            Loaded::History { page: Err(Error::Wire(error)), .. } if error.code == ErrorCode::NotFound => {
                // Nobody has written yet.
                self.model.older = Older::Nothing;
            }
            Loaded::History { page: Err(e), was } => {
                self.model.history(None, was);
                self.model.remark(format!("older messages could not be loaded: {e}"));
            }
        }
    }

    /// True when it is time to leave.
    async fn input(&mut self, input: Input) -> bool {
        self.model.now_ms = now_ms();
        let wish = match input {
            Input::Key(key) => {
                self.looks_back = matches!(key.code, KeyCode::PageUp | KeyCode::Up | KeyCode::Home);
                keys::press(&mut self.model, key, self.shown.page)
            }
            Input::Paste(text) => keys::write(&mut self.model, &text),
            Input::FocusGained | Input::FocusLost => {
                self.model.focused = input == Input::FocusGained;
                None
            }
            _ => None,
        };
        match wish {
            Some(Wish::Quit) => return true,
            Some(Wish::Send(body)) => self.send(body).await,
            Some(Wish::Typing) => {
                let _ = self.client.typing(self.model.conversation.clone()).await;
            }
            Some(Wish::ToggleOffline) => self.toggle_offline().await,
            None => {}
        }
        false
    }

    async fn send(&mut self, body: String) {
        match self.client.post(Draft::text(self.model.peer.clone(), body.as_str())).await {
            Ok(id) => self.model.posted(id, &body),
            Err(e) => {
                self.model.input.insert(&body);
                self.model.remark(format!("not sent: {e}"));
            }
        }
    }

    async fn toggle_offline(&mut self) {
        let _ = if self.model.link == (ConnectionStatus::Offline { retry_at: None }) {
            self.model.link = ConnectionStatus::Connecting;
            self.client.go_online().await
        } else {
            self.client.go_offline().await
        };
    }
}

/// What was read last is still said before the connection ends.
async fn leave(client: Client, mut events: Events) -> Result<(), String> {
    let _ = client.close().await;
    let closed = async { while events.next().await.is_some() {} };
    let _ = tokio::time::timeout(Duration::from_secs(3), closed).await;
    Ok(())
}

pub(super) fn farewell(code: Option<ErrorCode>, reason: &str) -> String {
    match code {
        Some(code) => format!("the server ended the session ({code}): {reason}"),
        None => format!("the connection ended: {reason}"),
    }
}
