//! All processes of a cluster end at once: there is no app server left to which a closing session could give what it
//! owes.

use tokio::task::block_in_place;

use crate::{
    attacks::unacked::{a_reinstalled_device_gets, nobody_acks},
    harness::*,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_killed_at_once_loses_nothing() {
    let mut server = Server::start();
    let sent = nobody_acks(&server).await;
    block_in_place(|| {
        server.deployment.cluster().kill_at_once();
        server.restart();
    });
    a_reinstalled_device_gets(&server, &sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_told_to_stop_at_once_loses_nothing() {
    let mut server = Server::start();
    let sent = nobody_acks(&server).await;
    block_in_place(|| {
        server.deployment.cluster().terminate_at_once();
        server.restart();
    });
    a_reinstalled_device_gets(&server, &sent).await;
}
