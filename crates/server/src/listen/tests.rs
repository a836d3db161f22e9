use axum::{Extension, routing::get};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinHandle,
};

use super::*;

async fn start(router: Router) -> (SocketAddr, watch::Sender<bool>, JoinHandle<()>) {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    (address, stop, tokio::spawn(Listener::new(tcp, None, 5, router).run(stopping)))
}

fn routes() -> Router {
    Router::new()
        .route(
            "/who",
            get(|Extension(peer): Extension<PeerConnection>| async move { peer.address.ip().to_string() }),
        )
        .route(
            "/slow",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                "done"
            }),
        )
}

async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

#[tokio::test]
async fn requests_know_where_they_came_from() {
    let (address, _stop, _run) = start(routes()).await;
    let answer = ask(address, "GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("127.0.0.1"), "{answer}");
    let many: Vec<_> = (0..50).map(|_| TcpStream::connect(address)).collect();
    let held = futures_util::future::join_all(many).await;
    let answer = ask(address, "GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "loopback has no limit: {answer}");
    drop(held);
}

#[tokio::test]
async fn what_is_not_http_and_heads_without_end_are_refused() {
    let (address, _stop, _run) = start(routes()).await;
    assert!(ask(address, "hello there\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    let endless = format!("GET /who HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    let answer = ask(address, &endless).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "the answer survives the close: {answer}");
    assert!(
        ask(address, "GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 200")
    );
}

#[tokio::test]
async fn a_stop_ends_idle_connections_and_lets_requests_finish() {
    let (address, stop, run) = start(routes()).await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    let busy = tokio::spawn(async move { ask(address, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let asked = Instant::now();
    stop.send_replace(true);
    run.await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(2));
    assert!(busy.await.unwrap().ends_with("done"), "a request under way is answered");
    assert_eq!(idle.read(&mut [0u8; 8]).await.unwrap(), 0);
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn who_is_turned_away_is_told_why() {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let client = tokio::spawn(async move { ask(address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await });
    let (stream, _) = tcp.accept().await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    refuse(stream, false);
    let answer = client.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", body.len())));
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["code"], "too_many_connections");
}

#[tokio::test]
async fn the_last_words_arrive_though_the_client_was_still_talking() {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    let (stream, _) = tcp.accept().await.unwrap();
    client.write_all(&[7u8; 100_000]).await.unwrap();
    let mut stream = Lingering::new(stream);
    stream.write_all(b"bye").await.unwrap();
    drop(stream);
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.write_all(&[7u8; 100_000]).await.unwrap();
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"bye");
}
