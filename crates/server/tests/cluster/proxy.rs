//! A wire that can be cut: a TCP proxy in front of a port.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
};

use crate::harness::quiet_port;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyMode {
    Whole,
    /// Connections end at once, and new ones as well.
    Refusing,
    /// Connections stay, and nothing passes in either direction.
    Swallowing,
}

/// The handle of a proxy, which lives as long as the runtime that it was made in.
pub struct Proxy {
    pub port: u16,
    wire: watch::Sender<ProxyMode>,
}

impl Proxy {
    pub fn to(target: String) -> Proxy {
        let port = quiet_port();
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let (wire, state) = watch::channel(ProxyMode::Whole);
        tokio::spawn(async move {
            while let Ok((incoming, _)) = listener.accept().await {
                tokio::spawn(carry(incoming, target.clone(), state.clone()));
            }
        });
        Proxy { port, wire }
    }

    pub fn set(&self, wire: ProxyMode) {
        self.wire.send_replace(wire);
    }
}

async fn carry(incoming: TcpStream, target: String, mut state: watch::Receiver<ProxyMode>) {
    let (mut one, other) = (state.clone(), state.clone());
    let carried = async {
        state_is_whole(&mut one).await;
        let Ok(outgoing) = TcpStream::connect(target).await else { return };
        let _ = (incoming.set_nodelay(true), outgoing.set_nodelay(true));
        let ((in_read, in_write), (out_read, out_write)) = (incoming.into_split(), outgoing.into_split());
        tokio::join!(copy(in_read, out_write, one), copy(out_read, in_write, other));
    };
    tokio::select! {
        () = carried => {}
        // What is open is dropped, which ends both connections.
        _ = state.wait_for(|wire| *wire == ProxyMode::Refusing) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<ProxyMode>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        state_is_whole(&mut state).await;
        if to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

async fn state_is_whole(state: &mut watch::Receiver<ProxyMode>) {
    let _ = state.wait_for(|wire| *wire == ProxyMode::Whole).await;
}
