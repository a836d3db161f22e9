use super::{
    super::{link::LinkError, wire::PART_MAX_BYTES},
    *,
};

async fn echo() -> (RpcListener, SocketAddr, Arc<Echo>) {
    let dispatcher = Arc::new(Echo::default());
    let (listener, address) = listen(Guard::default(), dispatcher.clone()).await;
    (listener, address, dispatcher)
}

#[tokio::test]
async fn what_waits_goes_together_and_long_payloads_come_back_whole() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let figures = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (_listener, address, _) = echo().await;
    let link = link_to(address, Guard::default(), LinkConfig::default());
    is_up(&link).await;
    let calls = (0..500).map(|n: usize| {
        let payload: Bytes = match n {
            7 => vec![b'x'; 9 * PART_MAX_BYTES + 1].into(),
            n => format!("call {n}").into(),
        };
        let link = &link;
        async move { link.call(payload.clone(), within(SOON)).await.map(|answer| answer == payload) }
    });
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| *answer == Ok(true)));
    assert_eq!(link.in_flight(), 0);
    let text = figures.render();
    let figure = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let (sum, count) = (figure("bluetick_rpc_batch_calls_sum"), figure("bluetick_rpc_batch_calls_count"));
    assert!(sum >= 509.0 && count <= 20.0, "{sum} calls and parts in {count} batches");
}

#[tokio::test]
async fn a_call_ends_with_its_deadline_and_others_go_on() {
    let (_listener, address, _) = echo().await;
    let link = link_to(address, Guard::default(), LinkConfig::default());
    is_up(&link).await;
    let began = Instant::now();
    let (late, fine) = tokio::join!(
        link.call("hang".into(), within(Duration::from_millis(100))),
        link.call("fine".into(), within(SOON))
    );
    assert!(matches!(late, Err(LinkError::Unknown(why)) if why.contains("in time")));
    assert_eq!(fine.unwrap(), "fine");
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(link.in_flight(), 0);
}

#[tokio::test]
async fn a_broken_link_fails_what_is_unanswered_at_once_and_comes_back() {
    let (listener, address, dispatcher) = echo().await;
    let link = link_to(address, Guard::default(), LinkConfig::default());
    is_up(&link).await;
    let began = Instant::now();
    let (answer, ()) = tokio::join!(link.call("hang".into(), within(SOON)), async {
        dispatcher.asked.notified().await;
        drop(listener);
    });
    assert!(matches!(answer, Err(LinkError::Unknown(_))), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(2), "not only at the deadline");
    let refused = link.call("x".into(), within(SOON)).await;
    assert!(
        matches!(&refused, Err(LinkError::NotSent(why)) if why.contains(&address.to_string())),
        "{refused:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(3), "a link that is down refuses at once");

    let tcp = tokio::net::TcpListener::bind(address).await.unwrap();
    let _again = RpcListener::start(tcp, Guard::default(), "again", dispatcher).unwrap();
    is_up(&link).await;
    assert_eq!(link.call("back".into(), within(SOON)).await.unwrap(), "back");
}

#[tokio::test]
async fn callers_wait_while_too_much_is_unanswered() {
    let (_listener, address, dispatcher) = echo().await;
    let link = link_to(address, Guard::default(), LinkConfig { in_flight_max: 2, ..LinkConfig::default() });
    is_up(&link).await;
    let third = async {
        until("two are asked", || link.in_flight() == 2).await;
        let busy = link.call("third".into(), within(Duration::from_millis(50))).await;
        assert!(matches!(busy, Err(LinkError::NotSent(why)) if why.contains("busy")));
        dispatcher.asked.notified().await;
        let patient = link.call("fourth".into(), within(SOON));
        let free = async {
            until("one is done", || {
                dispatcher.go.notify_one();
                link.in_flight() < 2
            })
            .await;
        };
        assert_eq!(tokio::join!(patient, free).0.unwrap(), "fourth");
        dispatcher.go.notify_one();
        dispatcher.go.notify_waiters();
    };
    let (one, other, ()) = tokio::join!(
        link.call("wait 1".into(), within(SOON)),
        link.call("wait 2".into(), within(SOON)),
        third
    );
    assert!(one.is_ok() && other.is_ok());
}

#[tokio::test]
async fn a_process_that_drains_answers_what_it_was_asked_and_gets_no_more() {
    let (mut listener, address, dispatcher) = echo().await;
    let link = link_to(address, Guard::default(), LinkConfig::default());
    is_up(&link).await;
    let draining = async {
        dispatcher.asked.notified().await;
        let told = async {
            until("the link knows", || link.status() == LinkStatus::Draining).await;
            let refused = link.call("new".into(), within(SOON)).await;
            assert!(matches!(refused, Err(LinkError::NotSent(why)) if why.contains("going down")));
            dispatcher.go.notify_one();
        };
        tokio::join!(tokio::time::timeout(SOON, listener.drain()), told).0.unwrap();
    };
    let (answer, ()) = tokio::join!(link.call("wait".into(), within(SOON)), draining);
    assert_eq!(answer.unwrap(), "wait");
    until("the link is let go of", || matches!(link.status(), LinkStatus::Down(_))).await;
}
