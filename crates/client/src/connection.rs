//! The handle an application holds: it sends commands to the task that owns the connection.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bluetick_protocol::{
    ClientMsgId, ConversationId, DeviceId, HistoryPage, InboxPage, Sent, Seq, StatusAnswer, UserId, WireError,
};
use tokio::sync::{mpsc, oneshot};

use crate::{Answer, Draft, Event, HistoryRange, Refused, Saved, driver};

/// Commands between the handles and the task; a handle waits when the task is behind.
const COMMANDS_MAX: usize = 256;

/// Where tokens come from.
#[derive(Clone)]
pub enum Token {
    /// The same one for ever: when it expires, the client ends.
    Fixed(String),
    /// Asked before every connection, and by [`Client::refresh_token`].
    Provider(Arc<dyn Fn() -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>),
}

impl Token {
    /// Tokens that are fetched: from a file, or from the application's own back end.
    pub fn provider<F, Fut>(provide: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = String> + Send + 'static,
    {
        Token::Provider(Arc::new(move || Box::pin(provide())))
    }

    pub(crate) async fn get(&self) -> String {
        match self {
            Token::Fixed(token) => token.clone(),
            Token::Provider(provide) => provide().await,
        }
    }
}

impl From<&str> for Token {
    fn from(token: &str) -> Self {
        Token::Fixed(token.to_owned())
    }
}

impl From<String> for Token {
    fn from(token: String) -> Self {
        Token::Fixed(token)
    }
}

/// How to connect.
#[derive(Clone)]
pub struct Options {
    /// `ws://…/v1/ws` or `wss://…/v1/ws`.
    pub url: String,
    /// Names this installation: made once, kept, and not shared. A device that connects again replaces its older
    /// session.
    pub device: DeviceId,
    /// Who the user is: a JWT whose `sub` is the user id.
    pub token: Token,
    /// What the device remembered; see [`Event::Saved`].
    pub saved: Option<Saved>,
    /// Events that may wait for the application before the socket is no longer read.
    pub events_max: usize,
    /// How long a request may wait for its answer, reconnects included. Sends wait for ever.
    pub request_timeout: Duration,
    /// For a private certificate authority or a client certificate; the public roots otherwise.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

impl Options {
    /// The defaults: nothing remembered, 1024 events, 30 seconds for a request, the public certificate authorities.
    pub fn new(url: impl Into<String>, device: DeviceId, token: impl Into<Token>) -> Self {
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

    /// With what the device remembered of an earlier run; `None` for a device's first one.
    pub fn saved(mut self, saved: Option<Saved>) -> Self {
        self.saved = saved;
        self
    }
}

/// Why a call of the client's failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client has ended: it was closed, or [`Event::Closed`] says why.
    #[error("the client is closed")]
    Closed,
    /// Nothing came within [`Options::request_timeout`]. The request may have been served all the same.
    #[error("no answer came in time")]
    Timeout,
    /// [`Client::cancel`] took the message out of the outbox, or its id was sent once more and that call waits now.
    #[error("the message was taken back")]
    Cancelled,
    /// A fault of the server's.
    #[error("the server answered something else than was asked")]
    WrongAnswer,
    /// The server's word on the matter.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The client's own word, before the server was asked.
    #[error(transparent)]
    Refused(#[from] Refused),
}

pub(crate) type Confirmation = oneshot::Sender<Result<Sent, Error>>;
pub(crate) type Reply = oneshot::Sender<Result<Answer, Error>>;

pub(crate) enum Query {
    Inbox { limit: Option<u32>, before: Option<String> },
    History { conversation: ConversationId, range: HistoryRange, limit: Option<u32> },
    Status(ConversationId),
}

/// What the state can serve, connected or not.
pub(crate) enum DeskCommand {
    Post { draft: Draft, taken: oneshot::Sender<Result<ClientMsgId, Error>>, confirmed: Option<Confirmation> },
    Cancel(ClientMsgId, oneshot::Sender<bool>),
    Ask(Query, Reply),
    Read(ConversationId, Seq),
    Typing(ConversationId),
    Watch(Vec<UserId>, oneshot::Sender<Result<(), Error>>),
    Save,
}

/// What the connection's task is told to do.
pub(crate) enum Command {
    Desk(DeskCommand),
    RefreshToken,
    GoOffline,
    GoOnline,
    Close,
}

impl From<DeskCommand> for Command {
    fn from(command: DeskCommand) -> Self {
        Command::Desk(command)
    }
}

/// A client that keeps itself connected. Clones share the connection; it ends when the last of them is gone.
///
/// No call here needs a connection. What is sent waits in the outbox, reads are kept, requests wait for
/// [`Options::request_timeout`]; all of it goes out when there is a connection again.
#[derive(Clone)]
pub struct Client {
    commands: mpsc::Sender<Command>,
    request_timeout: Duration,
}

/// What happens, in order; ends after [`Event::Closed`]. It must be read: see [the crate's words](crate#reading-the-events).
pub struct Events(mpsc::Receiver<Event>);

impl Events {
    /// Waits for the next event; `None` when the client has ended. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }

    /// An event that is there already.
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
    /// Giving up the wait does not take the message back: it stays in the outbox.
    pub async fn send_draft(&self, draft: Draft) -> Result<Sent, Error> {
        let (confirmed, confirmation) = oneshot::channel();
        self.put(draft, Some(confirmed)).await?;
        confirmation.await.map_err(|_| Error::Closed)?
    }

    /// Puts a message into the outbox and does not wait for the server: [`Event::Sent`] or
    /// [`Event::SendFailed`] will tell.
    pub async fn post(&self, draft: Draft) -> Result<ClientMsgId, Error> {
        self.put(draft, None).await
    }

    async fn put(&self, draft: Draft, confirmed: Option<Confirmation>) -> Result<ClientMsgId, Error> {
        let (taken, id) = oneshot::channel();
        self.command(DeskCommand::Post { draft, taken, confirmed }).await?;
        id.await.map_err(|_| Error::Closed)?
    }

    /// Takes a message out of the outbox; true if it was still there. The server may have stored it all the same.
    pub async fn cancel(&self, id: ClientMsgId) -> Result<bool, Error> {
        let (answer, was_there) = oneshot::channel();
        self.command(DeskCommand::Cancel(id, answer)).await?;
        was_there.await.map_err(|_| Error::Closed)
    }

    /// The user has read this conversation up to here. Said offline, it is kept and told later.
    pub async fn read(&self, conversation: ConversationId, seq: Seq) -> Result<(), Error> {
        self.command(DeskCommand::Read(conversation, seq)).await
    }

    /// The user is typing. Say it every few seconds while it is true; offline it is forgotten.
    pub async fn typing(&self, conversation: ConversationId) -> Result<(), Error> {
        self.command(DeskCommand::Typing(conversation)).await
    }

    /// Whose presence to hear of, in place of those watched before; at most 256, kept across reconnects. Only users one
    /// shares a conversation with can be watched.
    pub async fn watch(&self, users: Vec<UserId>) -> Result<(), Error> {
        let (taken, was_taken) = oneshot::channel();
        self.command(DeskCommand::Watch(users, taken)).await?;
        was_taken.await.map_err(|_| Error::Closed)?
    }

    /// A page of the conversations, newest first: `limit` up to 100, `before` the [`next`](InboxPage::next) of the page
    /// before.
    pub async fn inbox(&self, limit: Option<u32>, before: Option<String>) -> Result<InboxPage, Error> {
        match self.ask(Query::Inbox { limit, before }).await? {
            Answer::Inbox(page) => Ok(page),
            _ => Err(Error::WrongAnswer),
        }
    }

    /// A page of a conversation, `limit` up to 200. It is the application's alone: what it shows does not count as
    /// received.
    pub async fn history(
        &self,
        conversation: ConversationId,
        range: HistoryRange,
        limit: Option<u32>,
    ) -> Result<HistoryPage, Error> {
        match self.ask(Query::History { conversation, range, limit }).await? {
            Answer::History(page) => Ok(page),
            _ => Err(Error::WrongAnswer),
        }
    }

    /// How far both members of a conversation have received and read.
    pub async fn status(&self, conversation: ConversationId) -> Result<StatusAnswer, Error> {
        match self.ask(Query::Status(conversation)).await? {
            Answer::Status(status) => Ok(status),
            _ => Err(Error::WrongAnswer),
        }
    }

    async fn ask(&self, query: Query) -> Result<Answer, Error> {
        let (reply, answer) = oneshot::channel();
        let asking = async {
            self.command(DeskCommand::Ask(query, reply)).await?;
            answer.await.map_err(|_| Error::Closed)?
        };
        tokio::time::timeout(self.request_timeout, asking).await.map_err(|_| Error::Timeout)?
    }

    /// Gives the running session a fresh token, before the old one expires.
    pub async fn refresh_token(&self) -> Result<(), Error> {
        self.command(Command::RefreshToken).await
    }

    /// Leaves the server on purpose; what is sent meanwhile waits in the outbox.
    pub async fn go_offline(&self) -> Result<(), Error> {
        self.command(Command::GoOffline).await
    }

    /// Connects again at once, also when a wait for the next attempt is under way.
    pub async fn go_online(&self) -> Result<(), Error> {
        self.command(Command::GoOnline).await
    }

    /// Asks for an [`Event::Saved`] behind all events so far.
    pub async fn save(&self) -> Result<(), Error> {
        self.command(DeskCommand::Save).await
    }

    /// Ends the connection. What is still in the outbox is in the [`Event::Saved`] that precedes
    /// [`Event::Closed`].
    pub async fn close(&self) -> Result<(), Error> {
        self.command(Command::Close).await
    }

    async fn command(&self, command: impl Into<Command>) -> Result<(), Error> {
        self.commands.send(command.into()).await.map_err(|_| Error::Closed)
    }
}
