//! Writes to the embedded store, from the call to the answer that they are durable.

use bluetick_store::{Advanced, Committed, Result};
use gungraun::{library_benchmark, library_benchmark_group};

use crate::{
    count::counted,
    server::{Server, conversation, new_message, user},
};

fn commit(sends: u64) -> (Vec<Result<Committed>>, Server) {
    let server = Server::with_messages(10);
    let sends = (0..sends).map(|n| new_message("new", n)).collect();
    let committed = counted(|| server.wait_for(server.store.messages.commit_sends(sends)));
    assert!(committed.iter().all(|one| one.as_ref().is_ok_and(|one| !one.duplicate)));
    (committed, server)
}

#[library_benchmark]
fn send() -> (Vec<Result<Committed>>, Server) {
    commit(1)
}

#[library_benchmark]
fn batch_of_64() -> (Vec<Result<Committed>>, Server) {
    commit(64)
}

#[library_benchmark]
fn receipt() -> (Result<Advanced>, Server) {
    let server = Server::with_messages(10);
    let (bob, id) = (user("bob"), conversation());
    server.wait_for(server.store.status.advance(&bob, &id, 5, 5)).expect("the first receipt");
    let advanced = counted(|| server.wait_for(server.store.status.advance(&bob, &id, 10, 5)));
    assert!(advanced.as_ref().is_ok_and(|advanced| advanced.moved));
    (advanced, server)
}

library_benchmark_group!(name = append_group, benchmarks = [send, batch_of_64, receipt]);
