//! One request and its answer, without a runtime: what starts a cluster is plain code that waits.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

/// Status and body; none if there is no whole answer.
pub fn get(address: &str, path: &str) -> Option<(u16, String)> {
    ask(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"))
}

pub fn put(address: &str, path: &str) -> Option<(u16, String)> {
    ask(address, &format!("PUT {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n"))
}

pub fn post(address: &str, headers: &str, body: &str) -> Option<(u16, String)> {
    let length = body.len();
    ask(
        address,
        &format!("POST / HTTP/1.0\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\r\n{body}"),
    )
}

fn ask(address: &str, request: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address.parse().ok()?, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(8))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}
