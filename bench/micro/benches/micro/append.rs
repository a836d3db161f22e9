//! Writes to the embedded store, from the call to the durable answer. Single writes are counted a
//! hundred times, because the store's once-a-second work may fall into one of them.

use bluetick_protocol::Seq;
use gungraun::{library_benchmark, library_benchmark_group};

use crate::{
    count::counted,
    server::{BenchServer, conversation, new_message, user},
};

/// Commits `calls` batches of `each` sends.
fn commit(calls: u64, each: u64) -> BenchServer {
    let server = BenchServer::with_messages(10);
    let sends = |call| (0..each).map(|n| new_message("new", call * each + n)).collect();
    let sends: Vec<Vec<_>> = (0..calls).map(sends).collect();
    let committed = counted(|| {
        server.wait_for(async {
            let mut committed = Vec::new();
            for sends in sends {
                committed.extend(server.store.messages.commit_sends(sends).await);
            }
            committed
        })
    });
    assert!(committed.iter().all(|one| one.as_ref().is_ok_and(|one| !one.duplicate)));
    server
}

#[library_benchmark]
fn send_100() -> BenchServer {
    commit(100, 1)
}

#[library_benchmark]
fn batch_of_64() -> BenchServer {
    commit(1, 64)
}

#[library_benchmark]
fn receipt_100() -> BenchServer {
    let server = BenchServer::with_messages(110);
    let (bob, id) = (user("bob"), conversation());
    let receipts = async |seqs: std::ops::RangeInclusive<Seq>| {
        for seq in seqs {
            let advanced = server.store.status.advance(&bob, &id, seq, 0).await;
            assert!(advanced.is_ok_and(|advanced| advanced.moved));
        }
    };
    server.wait_for(receipts(1..=10));
    counted(|| server.wait_for(receipts(11..=110)));
    server
}

library_benchmark_group!(name = append_group, benchmarks = [send_100, batch_of_64, receipt_100]);
