//! A bare WebSocket forwarder: the limit for what a server of these frames could reach. It passes the same five
//! frames a message as Bluetick (send and sent, message and ack, ticks) between connected users, checks nothing and
//! stores nothing but a counter for each conversation. What it costs is the cost of sockets and frames.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use foldhash::HashMap;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::{
    WebSocketStream, accept_async_with_config,
    tungstenite::{Message, Utf8Bytes, protocol::WebSocketConfig},
};

/// As Bluetick's own: large ones cost memory in every idle connection.
const BUFFER_BYTES: usize = 4 * 1024;
/// Frames that wait for a connection's writer. One that falls so far behind is not served any more.
const QUEUE_FRAMES: usize = 1024;
/// Frames read in a row before what they caused is written.
const BATCH: usize = 256;

/// Serves until the process is ended.
pub async fn serve(listen: SocketAddr) -> Result<(), String> {
    let listener = TcpListener::bind(listen).await.map_err(|e| format!("{listen}: {e}"))?;
    serve_on(listener).await
}

async fn serve_on(listener: TcpListener) -> Result<(), String> {
    let hub = Arc::new(Hub::default());
    loop {
        let (stream, _) = listener.accept().await.map_err(|e| e.to_string())?;
        tokio::spawn(connection(hub.clone(), stream));
    }
}

/// Who is connected, and how far each conversation has counted.
#[derive(Default)]
struct Hub {
    queues: Mutex<HashMap<String, mpsc::Sender<Utf8Bytes>>>,
    seqs: Mutex<HashMap<String, u64>>,
    message_ids: AtomicU64,
}

/// Every frame that a client sends here, each with some of these. Texts stay as they are written.
#[derive(Deserialize)]
struct Incoming<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(rename = "ref", borrow)]
    reference: Option<&'a RawValue>,
    token: Option<&'a str>,
    device: Option<&'a str>,
    client_msg_id: Option<&'a str>,
    to: Option<&'a str>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    conversation_id: Option<&'a str>,
    seq: Option<u64>,
}

struct Connection {
    hub: Arc<Hub>,
    socket: WebSocketStream<TcpStream>,
    user: String,
}

/// Why a connection ends; nobody asks.
struct Gone;

async fn connection(hub: Arc<Hub>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
        .max_write_buffer_size(16 * BUFFER_BYTES);
    let Ok(socket) = accept_async_with_config(stream, Some(config)).await else {
        return;
    };
    let mut connection = Connection { hub, socket, user: String::new() };
    if connection.hello().await.is_some() {
        let (queue, waiting) = mpsc::channel(QUEUE_FRAMES);
        connection.hub.queues.lock().insert(connection.user.clone(), queue.clone());
        let _ = connection.run(waiting).await;
        let mut queues = connection.hub.queues.lock();
        if queues.get(&connection.user).is_some_and(|newest| newest.same_channel(&queue)) {
            queues.remove(&connection.user);
        }
    }
}

impl Connection {
    /// The first frame says who it is. The token is believed.
    async fn hello(&mut self) -> Option<()> {
        let Some(Ok(Message::Text(text))) = self.socket.next().await else {
            return None;
        };
        let hello: Incoming<'_> = serde_json::from_str(text.as_str()).ok()?;
        self.user = subject(hello.token?)?;
        let (user, device, now) = (&self.user, hello.device?, now_ms());
        let session: u64 = self.hub.message_ids.fetch_add(1, Ordering::Relaxed);
        let welcome = format!(
            r#"{{"type":"welcome","user_id":"{user}","device":"{device}","session_id":"{session:032x}","server_time":{now},"heartbeat_secs":20,"max_body_bytes":16384}}"#
        );
        let caught_up = r#"{"type":"caught_up","cursor":"0","heads":[]}"#;
        self.socket.feed(Message::text(welcome)).await.ok()?;
        self.socket.send(Message::text(caught_up)).await.ok()
    }

    /// Reads and writes in turns, with one flush for all that has gathered.
    async fn run(&mut self, mut waiting: mpsc::Receiver<Utf8Bytes>) -> Result<(), Gone> {
        loop {
            tokio::select! {
                frame = self.socket.next() => self.take(frame.ok_or(Gone)?.map_err(|_| Gone)?).await?,
                frame = waiting.recv() => self.write(frame.ok_or(Gone)?).await?,
            }
            for _ in 1..BATCH {
                match self.socket.next().now_or_never() {
                    None => break,
                    Some(frame) => self.take(frame.ok_or(Gone)?.map_err(|_| Gone)?).await?,
                }
            }
            while let Ok(frame) = waiting.try_recv() {
                self.write(frame).await?;
            }
            self.socket.flush().await.map_err(|_| Gone)?;
        }
    }

    async fn write(&mut self, frame: Utf8Bytes) -> Result<(), Gone> {
        self.socket.feed(Message::Text(frame)).await.map_err(|_| Gone)
    }

    async fn take(&mut self, message: Message) -> Result<(), Gone> {
        let text = match message {
            Message::Text(text) => text,
            Message::Close(_) => return Err(Gone),
            _ => return Ok(()),
        };
        let frame: Incoming<'_> = serde_json::from_str(text.as_str()).map_err(|_| Gone)?;
        match frame.kind {
            "send" => {
                let sent = self.pass_on(&frame).ok_or(Gone)?;
                self.write(sent).await
            }
            "ack" => {
                self.tick(&frame);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A send becomes a message to the receiver, if it is here, and the answer to the sender.
    fn pass_on(&self, send: &Incoming<'_>) -> Option<Utf8Bytes> {
        let (user, to, id, body) = (&self.user, send.to?, send.client_msg_id?, send.body?.get());
        let (low, high) = if user.as_str() < to { (user.as_str(), to) } else { (to, user.as_str()) };
        let mut conversation = String::with_capacity(low.len() + high.len() + 1);
        conversation.push_str(low);
        conversation.push('~');
        conversation.push_str(high);
        let seq = self.next_seq(&conversation);
        let message_id = self.hub.message_ids.fetch_add(1, Ordering::Relaxed);
        let now = now_ms();
        if let Some(queue) = self.hub.queues.lock().get(to) {
            let mut message = String::with_capacity(body.len() + 224);
            // Writing to a string cannot fail.
            let _ = write!(
                message,
                r#"{{"type":"message","conversation_id":"{conversation}","seq":{seq},"message_id":"{message_id}","client_msg_id":"{id}","sender":"{user}","receiver":"{to}","body":{body},"ts":{now}}}"#
            );
            // A queue that is full belongs to nobody who reads, and nothing is promised here.
            let _ = queue.try_send(message.into());
        }
        let mut sent = String::with_capacity(224);
        sent.push_str(r#"{"type":"sent","#);
        if let Some(reference) = send.reference {
            let _ = write!(sent, r#""ref":{},"#, reference.get());
        }
        let _ = write!(
            sent,
            r#""client_msg_id":"{id}","conversation_id":"{conversation}","seq":{seq},"message_id":"{message_id}","ts":{now},"duplicate":false}}"#
        );
        Some(sent.into())
    }

    fn next_seq(&self, conversation: &str) -> u64 {
        let mut seqs = self.hub.seqs.lock();
        if let Some(seq) = seqs.get_mut(conversation) {
            *seq += 1;
            return *seq;
        }
        seqs.insert(conversation.to_owned(), 1);
        1
    }

    /// An ack becomes ticks for the other member.
    fn tick(&self, ack: &Incoming<'_>) -> Option<()> {
        let (conversation, seq, user) = (ack.conversation_id?, ack.seq?, &self.user);
        let (low, high) = conversation.split_once('~')?;
        let other = if low == user { high } else { low };
        if let Some(queue) = self.hub.queues.lock().get(other) {
            let ticks = format!(
                r#"{{"type":"ticks","conversation_id":"{conversation}","user_id":"{user}","last_delivered_seq":{seq},"last_read_seq":0}}"#
            );
            let _ = queue.try_send(ticks.into());
        }
        Some(())
    }
}

/// Whom a token names.
fn subject(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        sub: String,
    }
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    Some(serde_json::from_slice::<Claims>(&claims).ok()?.sub)
}

fn now_ms() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use tokio_tungstenite::{MaybeTlsStream, connect_async};

    type Client = WebSocketStream<MaybeTlsStream<TcpStream>>;

    async fn join(address: SocketAddr, user: &str) -> Client {
        let (mut client, _) = connect_async(format!("ws://{address}/v1/ws")).await.unwrap();
        let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"{user}"}}"#));
        say(&mut client, &format!(r#"{{"type":"hello","token":"e30.{claims}.x","device":"d"}}"#)).await;
        assert_eq!(hear(&mut client).await["user_id"], user);
        assert_eq!(hear(&mut client).await["type"], "caught_up");
        client
    }

    async fn say(client: &mut Client, text: &str) {
        client.send(Message::text(text)).await.unwrap();
    }

    async fn hear(client: &mut Client) -> Value {
        let text = client.next().await.unwrap().unwrap().into_text().unwrap();
        serde_json::from_str(text.as_str()).unwrap()
    }

    #[tokio::test]
    async fn the_five_frames_of_a_message() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_on(listener));
        let mut alice = join(address, "alice").await;
        let mut bob = join(address, "bob").await;
        for seq in 1..=2 {
            let send = r#"{"type":"send","ref":7,"client_msg_id":"c","to":"bob","body":"a \"quote\""}"#;
            say(&mut alice, send).await;
            let sent = hear(&mut alice).await;
            assert_eq!((&sent["type"], &sent["ref"], &sent["seq"]), (&"sent".into(), &7.into(), &seq.into()));
            let message = hear(&mut bob).await;
            assert_eq!((&message["body"], &message["seq"]), (&"a \"quote\"".into(), &seq.into()));
            say(&mut bob, &format!(r#"{{"type":"ack","conversation_id":"alice~bob","seq":{seq}}}"#)).await;
            let ticks = hear(&mut alice).await;
            assert_eq!((&ticks["user_id"], &ticks["last_delivered_seq"]), (&"bob".into(), &seq.into()));
        }
    }

    #[tokio::test]
    async fn whoever_is_away_gets_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_on(listener));
        let mut alice = join(address, "alice").await;
        say(&mut alice, r#"{"type":"send","client_msg_id":"c","to":"bob","body":"x"}"#).await;
        assert_eq!(hear(&mut alice).await["type"], "sent");
    }
}
