//! From Alice's send to her tick: `send`, `sent`, `message`, `ack`, `ticks`, over two sessions and
//! the embedded store. One message at a time: concurrent ones would share commits depending on the
//! scheduler.

use gungraun::{library_benchmark, library_benchmark_group};

use crate::{
    count::counted,
    line::BenchDevice,
    server::{BODY, BenchServer},
};

const WARM_UP: u64 = 5;

async fn send_to_tick(alice: &mut BenchDevice, bob: &mut BenchDevice, seqs: impl Iterator<Item = u64>) {
    for seq in seqs {
        alice.say(format!(
            r#"{{"type":"send","ref":{seq},"client_msg_id":"tick-{seq:04}","to":"bob","body":"{BODY}"}}"#
        ));
        bob.hears("message").await;
        bob.say(format!(r#"{{"type":"ack","conversation_id":"alice~bob","seq":{seq}}}"#));
        alice.hears("ticks").await;
    }
}

#[library_benchmark]
fn live_100() -> BenchServer {
    let server = BenchServer::with_messages(0);
    let (mut alice, mut bob) = (server.connect("alice"), server.connect("bob"));
    server.wait_for(async {
        alice.hears("caught_up").await;
        bob.hears("caught_up").await;
        send_to_tick(&mut alice, &mut bob, 1..=WARM_UP).await;
    });
    let seqs = WARM_UP + 1..=WARM_UP + 100;
    counted(|| server.wait_for(send_to_tick(&mut alice, &mut bob, seqs)));
    server.wait_for(async {
        alice.leaves().await;
        bob.leaves().await;
    });
    server
}

library_benchmark_group!(name = tick_group, benchmarks = [live_100]);
