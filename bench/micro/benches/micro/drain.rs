//! Reading what a user has not received: from the embedded store, and through a session that
//! connects.

use bluetick_store::PageLimit;
use gungraun::{library_benchmark, library_benchmark_group};

use crate::{
    count::counted,
    server::{BenchServer, conversation, user},
};

/// Reads the same 64 messages ten times, because the store's once-a-second work may fall into one
/// read.
fn read(server: &BenchServer) {
    let id = conversation();
    server.wait_for(async {
        for _ in 0..10 {
            let page = server.store.messages.read_from(&id, 1, PageLimit::messages(64)).await;
            assert!(page.is_ok_and(|page| page.len() == 64));
        }
    });
}

// From the memtable: there was no checkpoint.
#[library_benchmark]
fn read_64_from_memory_10() -> BenchServer {
    let server = BenchServer::with_messages(100);
    counted(|| read(&server));
    server
}

// From the engine, with its cache warm.
#[library_benchmark]
fn read_64_from_engine_10() -> BenchServer {
    let server = BenchServer::with_messages(100);
    server.wait_for(server.store.maintenance.checkpoint()).expect("a checkpoint");
    read(&server);
    counted(|| read(&server));
    server
}

// Bob reconnects, receives what is pending, acks it at once and leaves.
#[library_benchmark]
fn session_of_100() -> BenchServer {
    let server = BenchServer::with_messages(100);
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
    benchmarks = [read_64_from_memory_10, read_64_from_engine_10, session_of_100]
);
