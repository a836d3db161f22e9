//! The cold tier's mover: what goes and what stays, and that nobody who reads can tell.

use std::{sync::Arc, time::Duration};

use bluetick_chat::{ColdMoved, ColdStep, ColdSurvey, Mover, MoverConfig};
use bluetick_protocol::{ConversationId, Seq, Side, UserId};
use bluetick_store::{
    Clock as _, ManualClock, Memory, Message, PageLimit, Store, StoreError, testing::message,
};

const DAY: u64 = 24 * 3_600_000;
const BEGIN: u64 = 1_740_000_000_000;

struct ColdWorld {
    memory: Arc<Memory>,
    store: Store,
    clock: Arc<ManualClock>,
    id: ConversationId,
}

impl ColdWorld {
    fn new() -> ColdWorld {
        let clock = Arc::new(ManualClock::new(BEGIN));
        let memory = Arc::new(Memory::new(clock.clone()));
        let store = Store::from_memory(memory.clone(), clock.clone());
        let [alice, bob] = ["alice", "bob"].map(|name| UserId::new(name).unwrap());
        ColdWorld { memory, store, clock, id: ConversationId::between(&alice, &bob).unwrap() }
    }

    fn mover(&self) -> Mover {
        self.mover_with(MoverConfig { messages_per_second: 1_000_000, ..MoverConfig::default() })
    }

    fn mover_with(&self, config: MoverConfig) -> Mover {
        Mover::new(self.store.clone(), self.clock.clone(), config, "test".into())
    }

    async fn send(&self, from: Side) -> Seq {
        let seq = self.store.messages.last_seq(&self.id).await.unwrap() + 1;
        let new = message(&self.id, from, &format!("{}-{}", from.index(), self.clock.now_ms()))
            .body(format!("what was said at {seq}"));
        let committed = self.store.messages.commit_sends(vec![new]).await.remove(0).unwrap();
        committed.message.seq
    }

    /// One message a day, of both in turn; then both have acked everything.
    async fn days(&self, n: u64) {
        for day in 0..n {
            self.clock.advance(DAY);
            self.send(if day % 2 == 0 { Side::Low } else { Side::High }).await;
        }
        self.ack_all().await;
    }

    async fn ack_all(&self) {
        for side in Side::BOTH {
            self.ack(side, Seq::MAX).await;
        }
    }

    async fn ack(&self, side: Side, seq: Seq) {
        self.store.status.advance(&self.id.member(side), &self.id, seq, 0).await.unwrap();
    }

    async fn all(&self) -> Vec<Arc<Message>> {
        let limit = PageLimit::messages(usize::MAX >> 1);
        self.store.messages.read_before(&self.id, Seq::MAX, limit).await.unwrap()
    }

    /// The seqs that have a hot row.
    async fn hot(&self) -> Vec<Seq> {
        let limit = PageLimit::messages(usize::MAX >> 1);
        let hot = self.store.cold.hot.read_from(&self.id, 1, limit).await.unwrap();
        hot.iter().map(|m| m.seq).collect()
    }

    async fn runs(&self) -> Vec<(Seq, Seq)> {
        let runs = self.store.cold.runs.runs_from(&self.id, 0, 1_000).await.unwrap();
        runs.iter().map(|run| (run.first_seq, run.last_seq)).collect()
    }

    async fn objects(&self) -> usize {
        self.store.cold.objects().unwrap().list(&self.id).await.unwrap().len()
    }
}

#[tokio::test]
async fn what_is_old_goes_and_what_is_not_stays() {
    let world = ColdWorld::new();
    world.days(100).await;
    let before = world.all().await;
    let moved = world.mover().move_conversation(&world.id, true).await.unwrap();
    // The last is of today: 30 days and an hour for clocks that differ keep 31.
    assert_eq!(moved.messages, 69);
    assert_eq!(world.hot().await, (70..=100).collect::<Vec<_>>());
    assert!(world.all().await == before);
    let again = world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(again, ColdMoved::default());
    assert!(world.all().await == before);
}

#[tokio::test]
async fn the_idempotency_window_holds_however_young_the_cold_may_be() {
    let world = ColdWorld::new();
    world.days(60).await;
    let config = MoverConfig { after: Duration::from_secs(60), ..MoverConfig::default() };
    world.mover_with(config).move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.hot().await, (30..=60).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_highest_seq_stays() {
    let world = ColdWorld::new();
    world.days(10).await;
    world.clock.advance(400 * DAY);
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.hot().await, [10]);
    assert_eq!(world.store.messages.last_seq(&world.id).await.unwrap(), 10);
    assert_eq!(world.send(Side::Low).await, 11);
}

#[tokio::test]
async fn what_nobody_acked_stays() {
    let world = ColdWorld::new();
    for _ in 0..10 {
        world.send(Side::Low).await;
        world.clock.advance(DAY);
    }
    world.clock.advance(400 * DAY);
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.runs().await, []);
    world.ack(Side::High, 4).await;
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.runs().await, [(1, 4)]);
    // Who wrote them never has anything to ack.
    world.ack(Side::High, 10).await;
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.hot().await, [10]);
}

#[tokio::test]
async fn what_has_a_pending_row_stays() {
    let world = ColdWorld::new();
    world.days(10).await;
    let bob = world.id.member(Side::High);
    world.store.pending.note_undelivered(&bob, &world.id, 6).await.unwrap();
    world.clock.advance(400 * DAY);
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.runs().await, [(1, 5)]);
}

#[tokio::test]
async fn what_was_withheld_goes_too() {
    let world = ColdWorld::new();
    world.days(4).await;
    let new = message(&world.id, Side::Low, "withheld").body("nobody reads this").withheld(true);
    world.store.messages.commit_sends(vec![new]).await.remove(0).unwrap();
    world.days(3).await;
    world.clock.advance(400 * DAY);
    let before = world.all().await;
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.runs().await, [(1, 7)]);
    assert!(world.all().await == before);
}

#[tokio::test]
async fn a_hole_is_closed_and_goes() {
    let world = ColdWorld::new();
    world.days(5).await;
    assert_eq!(world.memory.leak_seq(&world.id), 6);
    assert_eq!(world.memory.leak_seq(&world.id), 7);
    world.days(5).await;
    world.clock.advance(400 * DAY);
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.runs().await, [(1, 11)]);
    let all = world.all().await;
    assert_eq!(all.iter().map(|m| m.seq).collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
    assert_eq!(all.iter().filter(|m| m.void).map(|m| m.seq).collect::<Vec<_>>(), [6, 7]);
}

#[tokio::test]
async fn a_hole_above_the_border_hides_nothing_below_it() {
    let world = ColdWorld::new();
    world.days(40).await;
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.runs().await, [(1, 9)]);
    let limit = PageLimit::messages(100);
    // As if 10 had been handed out and never written: nobody has closed that yet.
    let tenth = world.store.cold.hot.read_from(&world.id, 10, PageLimit::messages(1)).await.unwrap();
    world.memory.lose(&world.id, tenth[0].seq);
    let seqs = |page: Vec<Arc<Message>>| page.iter().map(|m| m.seq).collect::<Vec<_>>();
    let expected: Vec<Seq> = (1..=40).filter(|seq| *seq != 10).collect();
    assert_eq!(seqs(world.store.messages.read_before(&world.id, Seq::MAX, limit).await.unwrap()), expected);
    assert_eq!(seqs(world.store.messages.read_before(&world.id, 11, limit).await.unwrap()), expected[..9]);
    assert_eq!(seqs(world.store.messages.read_from(&world.id, 1, limit).await.unwrap()), expected);
}

#[tokio::test]
async fn a_short_run_grows() {
    let world = ColdWorld::new();
    let config = MoverConfig { short_run: 30, ..MoverConfig::default() };
    let mover = world.mover_with(config);
    for _ in 0..6 {
        world.days(10).await;
        let before = world.all().await;
        mover.move_conversation(&world.id, true).await.unwrap();
        assert!(world.all().await == before);
    }
    // 60 days: 29 are old enough. They were moved in pieces, into one object.
    assert_eq!(world.runs().await, [(1, 29)]);
    world.days(10).await;
    mover.move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.runs().await, [(1, 39)], "29 were short of 30");
    world.days(10).await;
    mover.move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.runs().await, [(1, 39), (40, 49)]);
    assert!(world.objects().await > 2, "those that were replaced are kept for a while");
}

#[tokio::test]
async fn few_wait_for_a_day_and_many_do_not() {
    let world = ColdWorld::new();
    world.days(32).await;
    let mover = world.mover();
    assert_eq!(
        mover.move_conversation(&world.id, false).await.unwrap().messages,
        0,
        "one is old, since today"
    );
    world.clock.advance(DAY);
    assert_eq!(mover.move_conversation(&world.id, false).await.unwrap().messages, 2);
    let eager = world.mover_with(MoverConfig { batch: 1, ..MoverConfig::default() });
    world.days(1).await;
    assert_eq!(eager.move_conversation(&world.id, false).await.unwrap().messages, 1);
}

#[tokio::test]
async fn runs_end_where_they_are_long() {
    let world = ColdWorld::new();
    world.days(100).await;
    world.clock.advance(400 * DAY);
    let config = MoverConfig {
        run_messages: 40,
        short_run: 0,
        messages_per_second: 1_000_000,
        ..MoverConfig::default()
    };
    let before = world.all().await;
    let moved = world.mover_with(config).move_conversation(&world.id, true).await.unwrap();
    assert_eq!((moved.messages, moved.objects), (99, 3));
    assert_eq!(world.runs().await, [(1, 40), (41, 80), (81, 99)]);
    assert!(world.all().await == before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_movers_move_everything_once() {
    let world = ColdWorld::new();
    world.days(300).await;
    let before = world.all().await;
    let config = MoverConfig {
        run_messages: 10,
        short_run: 25,
        messages_per_second: 1_000_000,
        ..MoverConfig::default()
    };
    let movers = [world.mover_with(config.clone()), world.mover_with(config)];
    let moves = movers.iter().map(|mover| async {
        for _ in 0..20 {
            mover.move_conversation(&world.id, true).await.unwrap();
        }
    });
    let reads = async {
        for _ in 0..50 {
            assert!(world.all().await == before);
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(futures_util::future::join_all(moves), reads);
    assert!(world.all().await == before);
    assert_eq!(world.hot().await, (270..=300).collect::<Vec<_>>());
    let runs = world.runs().await;
    assert_eq!(runs.first().unwrap().0, 1);
    assert!(runs.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "{runs:?}");
}

#[tokio::test]
async fn a_move_that_was_cut_off_is_finished() {
    let world = ColdWorld::new();
    world.days(100).await;
    let before = world.all().await;
    let cold = &world.store.cold;
    // As if the mover had died after it recorded the run.
    let seen = cold.runs.movable(&world.id).await.unwrap().unwrap();
    let run = cold.objects().unwrap().write(&before[..50]).await.unwrap();
    assert!(cold.runs.record(&run, None, &seen).await.unwrap());
    cold.runs.drop_hot(&before[20..30]).await.unwrap();
    assert!(world.all().await == before);
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.hot().await, (70..=100).collect::<Vec<_>>());
    assert!(world.all().await == before);
}

#[tokio::test]
async fn nothing_is_dropped_by_the_word_of_a_lost_object() {
    let world = ColdWorld::new();
    world.days(100).await;
    let before = world.all().await;
    let cold = &world.store.cold;
    let seen = cold.runs.movable(&world.id).await.unwrap().unwrap();
    let run = cold.objects().unwrap().write(&before[..50]).await.unwrap();
    assert!(cold.runs.record(&run, None, &seen).await.unwrap());
    cold.objects().unwrap().delete(&run.object).await.unwrap();
    let outcome = world.mover().move_conversation(&world.id, true).await;
    assert!(matches!(outcome, Err(StoreError::Damaged { object, .. }) if object == run.object));
    assert_eq!(world.hot().await.len(), 100);
    assert!(world.all().await == before);
}

/// The time by the object store's clock, which is not the test's.
async fn last_written(world: &ColdWorld) -> u64 {
    let listed = world.store.cold.objects().unwrap().list(&world.id).await.unwrap();
    listed.iter().map(|object| object.written_at).max().unwrap()
}

#[tokio::test]
async fn an_object_that_no_run_names_is_kept_for_backups_and_then_goes() {
    let world = ColdWorld::new();
    world.days(100).await;
    // A move that was cut off before its record, and one that was not.
    world.store.cold.objects().unwrap().write(&world.all().await[..7]).await.unwrap();
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.objects().await, 2, "somebody may be about to record it");
    let verified = async |after: u64| {
        world.clock.set(last_written(&world).await + after);
        world.mover().verify(None).await.unwrap().swept
    };
    assert_eq!(verified(6 * DAY).await, 0);
    assert_eq!(verified(8 * DAY).await, 1);
    assert_eq!(world.objects().await, 1);
}

#[tokio::test]
async fn what_was_written_to_somebody_who_was_erased_goes_too() {
    let world = ColdWorld::new();
    world.days(10).await;
    world.store.maintenance.erase_member(&world.id.member(Side::High), &world.id).await.unwrap();
    world.clock.advance(400 * DAY);
    world.mover().move_conversation(&world.id, true).await.unwrap();
    assert_eq!(world.runs().await, [(1, 9)]);
}

#[tokio::test]
async fn a_round_by_steps_comes_to_an_end_and_says_what_it_did() {
    let world = ColdWorld::new();
    world.days(100).await;
    let mover = world.mover();
    let (mut place, mut moved, mut looked_at) = (None, 0, 0);
    loop {
        let done = mover.step(ColdStep { place, enlist: false }).await.unwrap();
        moved += done.moved.messages;
        looked_at += done.looked_at;
        place = done.place;
        if place.is_none() {
            break;
        }
    }
    assert_eq!((moved, looked_at), (69, 1));
    let survey = mover.survey(ColdSurvey::default()).await.unwrap();
    assert_eq!((survey.conversations, survey.runs, survey.messages), (1, 1, 69));
    assert_eq!(survey.oldest_ts, Some(BEGIN + DAY));
    assert!(mover.survey(survey).await.unwrap().whole);
    let verified = mover.verify(None).await.unwrap();
    assert_eq!((verified.objects, verified.messages, verified.damaged.len()), (1, 69, 0));
    assert!(mover.verify(verified.after).await.unwrap().whole);
}

#[tokio::test]
async fn a_shard_that_another_has_is_left_alone() {
    let world = ColdWorld::new();
    world.days(100).await;
    for shard in 0..bluetick_store::COLD_SHARDS {
        let now = world.clock.now_ms();
        assert!(world.store.cold.runs.lease(shard, "somebody else", now, now + 60_000).await.unwrap());
    }
    let mover = world.mover();
    mover.round().await;
    assert_eq!(world.runs().await, []);
    assert!(mover.step(ColdStep::default()).await.unwrap().busy);
    world.clock.advance(60_000);
    mover.round().await;
    assert_eq!(world.runs().await, [(1, 69)]);
    assert_eq!(mover.progress().moved.messages, 69);
}

#[tokio::test]
async fn a_damaged_object_is_reported_by_name() {
    let world = ColdWorld::new();
    world.days(100).await;
    let mover = world.mover();
    mover.move_conversation(&world.id, true).await.unwrap();
    let run = world.store.cold.runs.runs_from(&world.id, 0, 1).await.unwrap().remove(0);
    world.store.cold.objects().unwrap().delete(&run.object).await.unwrap();
    let verified = mover.verify(None).await.unwrap();
    assert_eq!(verified.damaged.len(), 1);
    assert_eq!(verified.damaged[0].0, run.object);
    assert!(verified.damaged[0].1.contains("missing"), "{:?}", verified.damaged);
}
