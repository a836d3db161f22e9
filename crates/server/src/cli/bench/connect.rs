//! Users of the benchmark, and how they come in.

use std::sync::{Arc, OnceLock};

use bluetick_client::{Lost, RawConnection, RawError};
use bluetick_protocol::{DeviceId, ServerFrame, UserId, Welcome};
use futures_util::{StreamExt, TryStreamExt, stream};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::ClientConfig;

use super::{
    super::{Failure, Outcome, target::ResolvedTarget, token},
    frames::{self, Frame},
    patience::PATIENCE,
};

/// Connections that are being opened at a time: enough to keep a server busy, few enough for its backlog.
const CONNECTING_AT_ONCE: usize = 64;
/// Frames taken in a row before they are answered.
const BATCH: usize = 256;
/// Files this process needs besides its sockets.
const OTHER_FILES: u64 = 64;

pub struct Server {
    place: ResolvedTarget,
    url: String,
    tls: Option<Arc<ClientConfig>>,
}

/// Raises the limit on open files as far as it goes, and says so if that is not enough.
pub fn make_room_for(connections: usize) -> Outcome {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = connections as u64 + OTHER_FILES;
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = limit.maximum;
        // What comes of it is looked at below.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    match getrlimit(Resource::Nofile).current {
        Some(allowed) if allowed < wanted => Err(Failure::Failed(format!(
            "{connections} connections need {wanted} open files, and this process may have {allowed}; \
             ask for fewer or raise the limit (ulimit -n)"
        ))),
        _ => Ok(()),
    }
}

pub fn user(n: u32) -> UserId {
    plain_id(&format!("bench-{n}"))
}

/// Who writes in a pair.
pub fn sender_of(pair: u32) -> UserId {
    user(2 * pair)
}

/// Who receives in a pair.
pub fn receiver_of(pair: u32) -> UserId {
    user(2 * pair + 1)
}

fn device() -> &'static DeviceId {
    static DEVICE: OnceLock<DeviceId> = OnceLock::new();
    DEVICE.get_or_init(|| plain_id("bench"))
}

/// Ids that are made here of letters, digits and dashes.
pub fn plain_id<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().expect("letters, digits and dashes make an id")
}

impl Server {
    pub fn new(place: ResolvedTarget) -> Outcome<Arc<Server>> {
        let url = place.websocket_url();
        let tls = place.trust.websocket(&url)?;
        Ok(Arc::new(Server { place, url, tls }))
    }

    /// The address of the HTTP API, without a slash at the end.
    pub fn http_url(&self) -> &str {
        &self.place.url
    }

    pub fn tls(&self) -> Option<&ClientConfig> {
        self.tls.as_deref()
    }

    pub fn token(&self, user: &UserId) -> Result<String, String> {
        token::mint_for_chat(&self.place, user).map_err(|failure| match failure {
            Failure::Usage(why) | Failure::Failed(why) => why,
            Failure::Told => "no token could be made".into(),
        })
    }

    /// Connects a user and says hello. What the server has to say comes next, to the caller.
    pub async fn hello(&self, user: &UserId) -> Result<RawConnection, String> {
        Ok(self.hello_on(user, device()).await?.0)
    }

    /// The same on a device of the caller's choice, with the server's welcome.
    pub async fn hello_on(
        &self,
        user: &UserId,
        device: &DeviceId,
    ) -> Result<(RawConnection, Welcome), String> {
        let token = self.token(user)?;
        let failed = |e: RawError| match e {
            RawError::Socket(e) => format!("{user} cannot connect to {}: {}", self.url, Lost::of(&*e)),
            e => format!("{user} cannot connect to {}: {e}", self.url),
        };
        let mut connection =
            RawConnection::connect_trusting(&self.url, self.tls.clone()).await.map_err(failed)?;
        let welcome = connection.hello(&token, device, None).await.map_err(failed)?;
        Ok((connection, welcome))
    }

    /// The same, and takes what was left from an earlier run, so that what comes after is of this one.
    pub async fn join(&self, user: &UserId) -> Result<RawConnection, String> {
        let mut connection = self.hello(user).await?;
        let failed = |e: RawError| format!("{user}: {e}");
        loop {
            let (mut acks, mut end) = (Vec::new(), None);
            let taking = connection.next_texts(BATCH, |text| match frames::read(text) {
                Ok(Frame::Message(m)) => acks.push(frames::ack(&m.conversation_id, m.seq)),
                Ok(Frame::Other(other)) => match *other {
                    ServerFrame::CaughtUp(_) => end = Some(Ok(())),
                    ServerFrame::Bye(bye) => end = Some(Err(format!("{user} was sent away: {}", bye.reason))),
                    _ => {}
                },
                Ok(_) => {}
                Err(why) => end = Some(Err(format!("{user}: {why}"))),
            });
            tokio::time::timeout(PATIENCE, taking)
                .await
                .map_err(|_| failed(RawError::Timeout))?
                .map_err(failed)?;
            for ack in acks {
                connection.feed_text(ack).await.map_err(failed)?;
            }
            connection.flush().await.map_err(failed)?;
            if let Some(end) = end {
                return end.map(|()| connection);
            }
        }
    }

    /// Joins many users, in their order.
    pub async fn join_all(
        &self,
        users: impl Iterator<Item = UserId>,
        joined: impl Fn(),
    ) -> Result<Vec<RawConnection>, String> {
        let joining = users.map(|user| async move { self.join(&user).await });
        stream::iter(joining).buffered(CONNECTING_AT_ONCE).inspect_ok(|_| joined()).try_collect().await
    }
}

/// Closes many connections, as clients do that leave.
pub async fn close_all(connections: Vec<RawConnection>) {
    stream::iter(connections).for_each_concurrent(CONNECTING_AT_ONCE, RawConnection::close).await;
}
