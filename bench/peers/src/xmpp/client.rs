//! One connection to an XMPP server, with a user logged in: plain TCP, SASL PLAIN, one resource.

use std::net::SocketAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    HOST, PASSWORD, PATIENCE, RESOURCE,
    stanza::{Ended, Splitter, attribute},
};

const READ_BYTES: usize = 16 * 1024;

pub struct Client {
    pub user: String,
    socket: TcpStream,
    splitter: Splitter,
    /// Written with the next [`flush`](Client::flush).
    pub out: String,
}

impl Client {
    /// Connects, logs in and binds a resource. No presence is sent: nothing is delivered yet.
    pub async fn log_in(address: SocketAddr, user: &str) -> Result<Client, String> {
        let failed = |e: std::io::Error| format!("{user} cannot connect: {e}");
        let socket = TcpStream::connect(address).await.map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        let (splitter, out) = (Splitter::default(), String::new());
        let mut client = Client { user: user.into(), socket, splitter, out };
        client.open().await?;
        let secret = STANDARD.encode(format!("\0{user}\0{PASSWORD}"));
        client.out.push_str(&format!(
            "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{secret}</auth>"
        ));
        client.expect("<success").await?;
        client.splitter.restart();
        client.open().await?;
        client.out.push_str(&format!(
            "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>\
             <resource>{RESOURCE}</resource></bind></iq>"
        ));
        client.expect("<iq").await?;
        Ok(client)
    }

    /// Begins a stream, to the end of what the server offers on it.
    async fn open(&mut self) -> Result<(), String> {
        self.out.push_str(&format!(
            "<?xml version='1.0'?><stream:stream to='{HOST}' xmlns='jabber:client' \
             xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"
        ));
        self.expect("<stream:features").await
    }

    /// Writes what is to be written, and reads one stanza, which must begin so.
    async fn expect(&mut self, beginning: &str) -> Result<(), String> {
        self.flush().await?;
        let user = self.user.clone();
        self.until(|stanza| {
            match stanza.starts_with(beginning) && attribute(stanza, "type") != Some("error") {
                true => Ok(true),
                false => Err(format!("{user}: expected {beginning}…, got {stanza}")),
            }
        })
        .await
    }

    /// Says that the user is here: from now on messages come, those that waited first.
    pub fn appear(&mut self) {
        self.out.push_str("<presence/>");
    }

    /// Asks the server for a sign of life, which it gives when it is through with all that was sent before.
    /// `take` gets what comes meanwhile.
    pub async fn round_trip(&mut self, mut take: impl FnMut(&str)) -> Result<(), String> {
        self.out.push_str(&format!(
            "<iq type='get' id='round-trip' to='{HOST}'><ping xmlns='urn:xmpp:ping'/></iq>"
        ));
        self.flush().await?;
        self.until(|stanza| {
            let is_answer = stanza.starts_with("<iq") && attribute(stanza, "id") == Some("round-trip");
            if !is_answer {
                take(stanza);
            }
            Ok(is_answer)
        })
        .await
    }

    /// Reads until `is_enough`.
    pub async fn until(
        &mut self,
        mut is_enough: impl FnMut(&str) -> Result<bool, String>,
    ) -> Result<(), String> {
        loop {
            while let Some(stanza) = self.next()? {
                if is_enough(stanza)? {
                    return Ok(());
                }
            }
            match timeout(PATIENCE, self.read()).await {
                Ok(read) => read?,
                Err(_) => return Err(format!("{}: nothing came for {} s", self.user, PATIENCE.as_secs())),
            }
        }
    }

    pub async fn flush(&mut self) -> Result<(), String> {
        if !self.out.is_empty() {
            let written = self.socket.write_all(self.out.as_bytes()).await;
            written.map_err(|e| format!("{}: {e}", self.user))?;
            self.out.clear();
        }
        Ok(())
    }

    /// Reads from the socket once. Cancelling this loses nothing.
    pub async fn read(&mut self) -> Result<(), String> {
        let buffer = self.splitter.buffer();
        buffer.reserve(READ_BYTES);
        match self.socket.read_buf(buffer).await {
            Ok(0) => Err(format!("{}: the server closed the connection", self.user)),
            Ok(_) => Ok(()),
            Err(e) => Err(format!("{}: {e}", self.user)),
        }
    }

    /// The next stanza that has come as a whole.
    pub fn next(&mut self) -> Result<Option<&str>, String> {
        match self.splitter.next() {
            None => Ok(None),
            Some(Ok(stanza)) if stanza.starts_with("<stream:error") => {
                Err(format!("{}: the server said {stanza}", self.user))
            }
            Some(Ok(stanza)) => Ok(Some(stanza)),
            Some(Err(Ended)) => Err(format!("{}: the server ended the stream", self.user)),
        }
    }
}
