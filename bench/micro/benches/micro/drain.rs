//! Reading what waits for a user: from the embedded store, and by a session that connects.

use std::sync::Arc;

use bluetick_store::{Message, PageLimit};
use gungraun::{library_benchmark, library_benchmark_group};

use crate::{
    count::counted,
    server::{Server, conversation, user},
};

const PAGE: usize = 64;

fn read(server: &Server) -> Vec<Arc<Message>> {
    let id = conversation();
    let read = server.store.messages.read_from(&id, 1, PageLimit::messages(PAGE));
    server.wait_for(read).expect("a page")
}

fn count_read(server: Server) -> (Vec<Arc<Message>>, Server) {
    let messages = counted(|| read(&server));
    assert_eq!(messages.len(), PAGE);
    (messages, server)
}

// All are in memory: no checkpoint has been.
#[library_benchmark]
fn read_64_from_memory() -> (Vec<Arc<Message>>, Server) {
    count_read(Server::with_messages(100))
}

// A checkpoint has brought all of them to the engine, and it has read them before.
#[library_benchmark]
fn read_64_from_engine() -> (Vec<Arc<Message>>, Server) {
    let server = Server::with_messages(100);
    server.wait_for(server.store.maintenance.checkpoint()).expect("a checkpoint");
    read(&server);
    count_read(server)
}

// Bob returns, gets what waits for him, acks it and leaves. All acks in one, as a client does that draws a batch.
#[library_benchmark]
fn session_of_100() -> Server {
    let server = Server::with_messages(100);
    counted(|| {
        let mut bob = server.connect("bob");
        server.wait_for(async {
            for _ in 0..100 {
                bob.hears("message").await;
            }
            bob.hears("caught_up").await;
            bob.say(r#"{"type":"ack","ref":1,"conversation_id":"alice~bob","seq":100}"#.into());
            bob.hears("done").await;
            bob.leaves().await;
        });
    });
    let waits = server.wait_for(server.store.pending.pending_row(&user("bob"), &conversation()));
    assert_eq!(waits.expect("the row"), None);
    server
}

library_benchmark_group!(
    name = drain_group,
    benchmarks = [read_64_from_memory, read_64_from_engine, session_of_100]
);
