//! The application's handle: it sends commands to the task that owns the connection.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bluetick_protocol::{
    ClientMsgId, ConversationId, DeviceId, HistoryPage, InboxPage, Sent, Seq, StatusAnswer, UserId, WireError,
};
use tokio::sync::{mpsc, oneshot};

use crate::{Draft, Event, HistoryRange, QueryResult, Refusal, Saved, driver};

/// Commands queued for the task at most. A handle waits while the queue is full.
const COMMANDS_MAX: usize = 256;

/// The source of tokens.
#[derive(Clone)]
pub enum TokenSource {
    /// One token. The client ends when it expires.
    Fixed(String),
    /// Called before every connection, and by [`Client::refresh_token`].
    Provider(Arc<dyn Fn() -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>),
}

impl TokenSource {
    /// Fetches tokens, for example from a file or from the application's back end.
    pub fn provider<F, Fut>(provide: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = String> + Send + 'static,
    {
        TokenSource::Provider(Arc::new(move || Box::pin(provide())))
    }

    pub(crate) async fn get(&self) -> String {
        match self {
            TokenSource::Fixed(token) => token.clone(),
            TokenSource::Provider(provide) => provide().await,
        }
    }
}

impl From<&str> for TokenSource {
    fn from(token: &str) -> Self {
        TokenSource::Fixed(token.to_owned())
    }
}

impl From<String> for TokenSource {
    fn from(token: String) -> Self {
        TokenSource::Fixed(token)
    }
}

/// How to connect.
#[derive(Clone)]
pub struct Options {
    /// `ws://…/v1/ws` or `wss://…/v1/ws`.
    pub url: String,
    /// Identifies this installation. Generate it once and keep it. A device that connects again
    /// replaces its older session.
    pub device: DeviceId,
    /// A JWT whose `sub` is the user id, or where to get one.
    pub token: TokenSource,
    /// The stored state of the device; see [`Event::Saved`].
    pub saved: Option<Saved>,
    /// Events queued for the application at most. The socket is not read while the queue is full.
    pub events_max: usize,
    /// The timeout of a request, reconnects included. Sends have none.
    pub request_timeout: Duration,
    /// A private certificate authority or a client certificate; the public authorities if absent.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

impl Options {
    /// The defaults: no stored state, 1024 events, a request timeout of 30 seconds, and the public
    /// certificate authorities.
    pub fn new(url: impl Into<String>, device: DeviceId, token: impl Into<TokenSource>) -> Self {
        Options {
            url: url.into(),
            device,
            token: token.into(),
            saved: None,
            events_max: 1024,
            request_timeout: Duration::from_secs(30),
            tls: None,
        }
    }

    /// Sets the stored state of an earlier run; `None` for a new device.
    pub fn saved(mut self, saved: Option<Saved>) -> Self {
        self.saved = saved;
        self
    }
}

/// Why a call of the client failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client has ended; [`Event::Closed`] gives the reason.
    #[error("the client is closed")]
    Closed,
    /// No response within [`Options::request_timeout`]. The server may have executed the request.
    #[error("no response in time; check the connection and try again")]
    Timeout,
    /// [`Client::cancel`] removed the message, or a later call sent the same id and waits for it.
    #[error("the message was cancelled")]
    Cancelled,
    /// The server responded with another type than requested.
    #[error("unexpected response type from the server")]
    UnexpectedResult,
    /// The server refused the call.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The client refused the call before sending it.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

pub(crate) type Confirmation = oneshot::Sender<Result<Sent, Error>>;
pub(crate) type ReplySender = oneshot::Sender<Result<QueryResult, Error>>;

pub(crate) enum ClientQuery {
    Inbox { limit: Option<u32>, before: Option<String> },
    History { conversation: ConversationId, range: HistoryRange, limit: Option<u32> },
    Status(ConversationId),
}

/// Commands that need no connection.
pub(crate) enum StateCommand {
    Post { draft: Draft, taken: oneshot::Sender<Result<ClientMsgId, Error>>, confirmed: Option<Confirmation> },
    Cancel(ClientMsgId, oneshot::Sender<bool>),
    Ask(ClientQuery, ReplySender),
    Read(ConversationId, Seq),
    Typing(ConversationId),
    Watch(Vec<UserId>, oneshot::Sender<Result<(), Error>>),
    Save,
}

/// Commands to the task that owns the connection.
pub(crate) enum ClientCommand {
    State(StateCommand),
    RefreshToken,
    GoOffline,
    GoOnline,
    Close,
}

impl From<StateCommand> for ClientCommand {
    fn from(command: StateCommand) -> Self {
        ClientCommand::State(command)
    }
}

/// A client that stays connected. Clones share the connection, which ends when the last one is dropped.
///
/// No call needs a connection. Offline, sends wait in the outbox, reads are kept, and requests wait up
/// to [`Options::request_timeout`].
#[derive(Clone)]
pub struct Client {
    commands: mpsc::Sender<ClientCommand>,
    request_timeout: Duration,
}

/// The stream of events, in order; it ends after [`Event::Closed`]. The application must read it: see
/// [reading the events](crate#reading-the-events).
pub struct Events(mpsc::Receiver<Event>);

impl Events {
    /// Waits for the next event; `None` when the client has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }

    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.try_recv().ok()
    }
}

impl Client {
    /// Starts connecting, in a task of the current tokio runtime.
    pub fn connect(options: Options) -> (Client, Events) {
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let (tell, events) = mpsc::channel(options.events_max.max(1));
        let client = Client { commands, request_timeout: options.request_timeout };
        tokio::spawn(driver::run(options, inbox, tell));
        (client, Events(events))
    }

    /// Sends a text and waits until the server has stored it, across as many reconnects as that takes.
    pub async fn send(&self, to: UserId, body: impl Into<String>) -> Result<Sent, Error> {
        self.send_draft(Draft::text(to, body)).await
    }

    /// Sends a message and waits until the server has stored it, across as many reconnects as that takes.
    ///
    /// Dropping the future does not cancel the message: it stays in the outbox.
    pub async fn send_draft(&self, draft: Draft) -> Result<Sent, Error> {
        let (confirmed, confirmation) = oneshot::channel();
        self.put(draft, Some(confirmed)).await?;
        confirmation.await.map_err(|_| Error::Closed)?
    }

    /// Adds a message to the outbox and does not wait for the server. [`Event::Sent`] or
    /// [`Event::SendFailed`] follows.
    pub async fn post(&self, draft: Draft) -> Result<ClientMsgId, Error> {
        self.put(draft, None).await
    }

    async fn put(&self, draft: Draft, confirmed: Option<Confirmation>) -> Result<ClientMsgId, Error> {
        let (taken, id) = oneshot::channel();
        self.command(StateCommand::Post { draft, taken, confirmed }).await?;
        id.await.map_err(|_| Error::Closed)?
    }

    /// Removes a message from the outbox. Returns whether it was still there. The server may have
    /// stored it nevertheless.
    pub async fn cancel(&self, id: ClientMsgId) -> Result<bool, Error> {
        let (answer, was_there) = oneshot::channel();
        self.command(StateCommand::Cancel(id, answer)).await?;
        was_there.await.map_err(|_| Error::Closed)
    }

    /// The user has read this conversation up to `seq`. An offline read is kept and sent later.
    pub async fn read(&self, conversation: ConversationId, seq: Seq) -> Result<(), Error> {
        self.command(StateCommand::Read(conversation, seq)).await
    }

    /// The user is typing. Call it every few seconds while it is true; it is dropped while offline.
    pub async fn typing(&self, conversation: ConversationId) -> Result<(), Error> {
        self.command(StateCommand::Typing(conversation)).await
    }

    /// Subscribes to the presence of at most 256 users, in place of those watched before. The
    /// subscription is kept across reconnects. Only users with a common conversation can be watched.
    pub async fn watch(&self, users: Vec<UserId>) -> Result<(), Error> {
        let (taken, was_taken) = oneshot::channel();
        self.command(StateCommand::Watch(users, taken)).await?;
        was_taken.await.map_err(|_| Error::Closed)?
    }

    /// A page of conversations, newest first: `limit` up to 100, `before` the [`next`](InboxPage::next)
    /// of the previous page.
    pub async fn inbox(&self, limit: Option<u32>, before: Option<String>) -> Result<InboxPage, Error> {
        match self.ask(ClientQuery::Inbox { limit, before }).await? {
            QueryResult::Inbox(page) => Ok(page),
            _ => Err(Error::UnexpectedResult),
        }
    }

    /// A page of a conversation for display, `limit` up to 200. Its messages do not count as received.
    pub async fn history(
        &self,
        conversation: ConversationId,
        range: HistoryRange,
        limit: Option<u32>,
    ) -> Result<HistoryPage, Error> {
        match self.ask(ClientQuery::History { conversation, range, limit }).await? {
            QueryResult::History(page) => Ok(page),
            _ => Err(Error::UnexpectedResult),
        }
    }

    /// How far both members of a conversation have received and read.
    pub async fn status(&self, conversation: ConversationId) -> Result<StatusAnswer, Error> {
        match self.ask(ClientQuery::Status(conversation)).await? {
            QueryResult::Status(status) => Ok(status),
            _ => Err(Error::UnexpectedResult),
        }
    }

    async fn ask(&self, query: ClientQuery) -> Result<QueryResult, Error> {
        let (reply, answer) = oneshot::channel();
        let asking = async {
            self.command(StateCommand::Ask(query, reply)).await?;
            answer.await.map_err(|_| Error::Closed)?
        };
        tokio::time::timeout(self.request_timeout, asking).await.map_err(|_| Error::Timeout)?
    }

    /// Gives the running session a fresh token, before the old one expires.
    pub async fn refresh_token(&self) -> Result<(), Error> {
        self.command(ClientCommand::RefreshToken).await
    }

    /// Disconnects until [`go_online`](Self::go_online). Sends wait in the outbox.
    pub async fn go_offline(&self) -> Result<(), Error> {
        self.command(ClientCommand::GoOffline).await
    }

    /// Connects at once, also during the delay before the next attempt.
    pub async fn go_online(&self) -> Result<(), Error> {
        self.command(ClientCommand::GoOnline).await
    }

    /// Requests an [`Event::Saved`] after all events so far.
    pub async fn save(&self) -> Result<(), Error> {
        self.command(StateCommand::Save).await
    }

    /// Ends the client. The [`Event::Saved`] before [`Event::Closed`] has the outbox.
    pub async fn close(&self) -> Result<(), Error> {
        self.command(ClientCommand::Close).await
    }

    async fn command(&self, command: impl Into<ClientCommand>) -> Result<(), Error> {
        self.commands.send(command.into()).await.map_err(|_| Error::Closed)
    }
}
