//! The cold tier between two steps: counters that fell back behind it, recorders and rows that
//! overtake each other, and who is looked at when.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, Seq, Side, UserId};

use super::{
    super::{DynamoStore, Units, client::PartitionQuery, item::s, row::row_key, write::Write},
    DynamoFixture, Table, world,
};
use crate::{
    COLD_SHARDS, Clock as _, ColdCandidate, ColdConfig, ColdObjects, ColdRun, ColdRuns as _, ColdTier,
    Conversations as _, Maintenance as _, Message, MessageStatus as _, Messages as _, Objects, PageLimit,
    PendingDeliveries as _, cold_shard, conformance::START_MS, testing::message,
};

const DAY: u64 = 24 * 3_600_000;
const COLD_AFTER: u64 = 30 * DAY;

async fn cold_world() -> DynamoFixture {
    let mut t = world().await;
    let objects = Arc::new(ColdObjects::new(Objects::memory(), ColdConfig::default()));
    t.rows = Arc::new(node_of(&t).with_objects(Some(objects), Some(COLD_AFTER)));
    t
}

/// Another node of the same world.
fn node_of(t: &DynamoFixture) -> DynamoStore {
    DynamoStore::new(t.rows.dynamo.clone(), t.rows.redis.clone(), t.clock.clone(), 30 * DAY)
}

impl DynamoFixture {
    fn tier(&self) -> ColdTier {
        ColdTier::new(self.rows.clone(), self.rows.clone(), self.rows.objects.clone())
    }

    async fn everything(&self) -> Vec<Arc<Message>> {
        self.tier().read_from(&self.id, 1, PageLimit::messages(100)).await.unwrap()
    }

    async fn pack(&self, from: Seq, up_to: Seq) -> ColdRun {
        let limit = PageLimit { messages: (up_to + 1 - from) as usize, bytes: usize::MAX };
        let messages = self.rows.read_from(&self.id, from, limit).await.unwrap();
        ColdObjects::needed(self.rows.objects.as_deref()).unwrap().write(&messages).await.unwrap()
    }

    async fn record_up_to(&self, up_to: Seq) {
        let seen = self.rows.movable(&self.id).await.unwrap().unwrap();
        let run = self.pack(seen.from, up_to).await;
        assert!(self.rows.record(&run, None, &seen).await.unwrap());
    }

    async fn move_up_to(&self, up_to: Seq) {
        self.record_up_to(up_to).await;
        let copies = self.rows.leftovers(&self.id, 100).await.unwrap();
        self.rows.drop_hot(&copies).await.unwrap();
    }

    /// Ten messages, of which the first eight are cold.
    async fn mostly_cold(&self) {
        for n in 1..=10 {
            self.send(&format!("m{n}")).await;
        }
        self.move_up_to(8).await;
    }

    /// Redis, as it was when fewer were sent.
    async fn set_counter_back(&self, to: Seq) {
        let last = self.rows.last_seq(&self.id).await.unwrap();
        self.rows.redis.return_seqs(&self.id, to + 1..=last).await.unwrap();
    }

    async fn hot_seqs(&self) -> Vec<Seq> {
        self.stored().await.iter().map(|message| message.seq).collect()
    }

    async fn borders(&self) -> Vec<Seq> {
        let mut borders = Vec::new();
        for side in Side::BOTH {
            borders.push(self.rows.row(&self.id, side).await.unwrap().cold_up_to);
        }
        borders
    }

    async fn flags(&self) -> Vec<bool> {
        let mut flags = Vec::new();
        for side in Side::BOTH {
            flags.push(self.rows.row(&self.id, side).await.unwrap().cold_listed);
        }
        flags
    }

    /// When the conversation is to be looked at, as often as it is written down.
    async fn due(&self) -> Vec<u64> {
        let far = START_MS + 10_000 * DAY;
        let due = self.rows.candidates(cold_shard(&self.id), None, far, 100).await.unwrap();
        due.into_iter().filter(|due| due.conversation_id == self.id).filter_map(|due| due.due_at).collect()
    }

    fn written(&self, table: Table) -> f64 {
        self.rows.dynamo.units().get(&(table.name(), Units::Write)).copied().unwrap_or_default()
    }
}

#[tokio::test]
async fn a_seq_whose_message_is_cold_is_not_given_to_another() {
    let t = cold_world().await;
    t.mostly_cold().await;
    assert_eq!(t.hot_seqs().await, [9, 10]);
    let before = t.everything().await;
    t.set_counter_back(4).await;
    assert_eq!(t.rows.redis.take_seq(&t.id).await.unwrap(), Some(5), "Redis knows no better");
    let offline = t.new_message("late").undelivered(true);
    let sent = t.rows.commit_sends(vec![offline]).await.remove(0).unwrap();
    assert_eq!((sent.message.seq, sent.duplicate), (11, false));
    assert_eq!(t.hot_seqs().await, [9, 10, 11], "what was stored at first was taken back");
    let after = t.everything().await;
    assert_eq!((&after[..10], &after[10]), (&before[..], &sent.message));
    assert_eq!(t.bobs().await, Some((11, 11)));
    let bob = UserId::new("bob").unwrap();
    assert_eq!(t.rows.pending_row(&bob, &t.id).await.unwrap(), Some(11), "nobody waits for the old seq");
    assert_eq!(t.send("late").await, (11, true));
    assert_eq!(t.send("next").await, (12, false), "and the counter was raised");
}

#[tokio::test]
async fn sends_that_come_together_are_taken_back_together() {
    let t = cold_world().await;
    t.mostly_cold().await;
    let before = t.everything().await;
    t.set_counter_back(2).await;
    let batch = ["a", "b", "c"].map(|name| t.new_message(name)).to_vec();
    let sent: Vec<_> = t.rows.commit_sends(batch).await.into_iter().map(|sent| sent.unwrap()).collect();
    let seqs: Vec<_> = sent.iter().map(|sent| (sent.message.seq, sent.duplicate)).collect();
    assert_eq!(seqs, [(11, false), (12, false), (13, false)]);
    assert_eq!(t.hot_seqs().await, [9, 10, 11, 12, 13]);
    assert_eq!(t.everything().await[..10], before);
    assert_eq!(t.bobs().await, Some((13, 13)));
}

#[tokio::test]
async fn the_first_seq_is_fenced_too() {
    let t = cold_world().await;
    t.mostly_cold().await;
    let before = t.everything().await;
    t.set_counter_back(0).await;
    assert_eq!(t.send("late").await, (11, false));
    assert_eq!(t.hot_seqs().await, [9, 10, 11]);
    assert_eq!(t.everything().await[..10], before);
}

#[tokio::test]
async fn a_retry_stores_anew_what_a_crash_left_under_a_cold_seq() {
    let t = cold_world().await;
    t.mostly_cold().await;
    t.store_at("late", 5).await.expect("its hot row is gone");
    assert_eq!(t.send("late").await, (11, false));
    assert_eq!(t.send("late").await, (11, true));
    assert_eq!(t.hot_seqs().await, [9, 10, 11]);

    // The same, after whoever drops copies has met it.
    t.store_at("later", 6).await.unwrap();
    let copies = t.rows.leftovers(&t.id, 10).await.unwrap();
    assert_eq!(copies.iter().map(|copy| copy.seq).collect::<Vec<_>>(), [6]);
    t.rows.drop_hot(&copies).await.unwrap();
    assert_eq!(t.send("later").await, (12, false));
    assert_eq!(t.send("later").await, (12, true));
    assert_eq!(t.bobs().await, Some((12, 12)));
}

#[tokio::test]
async fn the_original_of_a_retry_may_be_cold() {
    let t = cold_world().await;
    t.mostly_cold().await;
    assert_eq!(t.send("m3").await, (3, true));
    // With a copy that is still hot as well.
    t.record_up_to(9).await;
    assert_eq!(t.send("m9").await, (9, true));
    assert_eq!(t.hot_seqs().await, [9, 10], "a copy is not another message");
}

#[tokio::test]
async fn one_of_two_recorders_wins() {
    let t = cold_world().await;
    for n in 1..=10 {
        t.send(&format!("m{n}")).await;
    }
    let seen = t.rows.movable(&t.id).await.unwrap().unwrap();
    let [short, long] = [t.pack(1, 5).await, t.pack(1, 7).await];
    let (one, two) = tokio::join!(t.rows.record(&short, None, &seen), t.rows.record(&long, None, &seen));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(one != two, "{one} {two}");
    let winner = if one { short } else { long };
    assert_eq!(t.rows.runs_from(&t.id, 1, 10).await.unwrap(), std::slice::from_ref(&winner));
    assert_eq!(t.borders().await, [winner.last_seq; 2]);
    // Who packed the very same messages has them recorded: its object must not be taken for waste.
    assert!(t.rows.record(&winner, None, &seen).await.unwrap());
}

#[tokio::test]
async fn a_run_that_was_written_anew_is_followed_only_as_it_is() {
    let t = cold_world().await;
    t.mostly_cold().await;
    let seen = t.rows.movable(&t.id).await.unwrap().unwrap();
    let next = t.pack(9, 9).await;
    assert_eq!(t.tier().erase(&t.id, Side::Low, false).await.unwrap(), 8);
    assert!(!t.rows.record(&next, None, &seen).await.unwrap());
    let seen = t.rows.movable(&t.id).await.unwrap().unwrap();
    assert!(t.rows.record(&next, None, &seen).await.unwrap());
    assert_eq!(t.borders().await, [9, 9]);
}

#[tokio::test]
async fn a_row_that_is_replaced_keeps_the_border() {
    let t = cold_world().await;
    let [alice, bob] = ["alice", "bob"].map(|user| UserId::new(user).unwrap());
    for n in 1..=10 {
        t.send(&format!("m{n}")).await;
    }
    let stale = t.rows.row(&t.id, Side::High).await.unwrap();
    t.move_up_to(5).await;
    let there = t.rows.replace(&stale).await.unwrap().expect("the row is another now");
    assert_eq!(there.cold_up_to, 5);
    t.rows.advance(&bob, &t.id, 10, 3).await.unwrap();
    assert_eq!(t.bobs().await, Some((10, 7)));
    t.rows.recount(&bob, &t.id).await.unwrap();
    t.send("m11").await;
    assert_eq!(t.borders().await, [5, 5]);
    t.tier().erase(&t.id, Side::Low, false).await.unwrap();
    t.rows.erase_member(&alice, &t.id).await.unwrap();
    assert_eq!(t.borders().await, [5, 5]);
    assert_eq!(t.flags().await, [true, true]);
    assert_eq!(t.bobs().await.map(|(_, unread)| unread), None, "nothing is left to show");
    t.rows.erase_member(&bob, &t.id).await.unwrap();
    assert_eq!(t.borders().await, [5, 5]);
}

#[tokio::test]
async fn a_row_that_was_read_long_ago_makes_no_holes_of_what_is_cold() {
    let t = cold_world().await;
    for n in 1..=3 {
        t.send(&format!("m{n}")).await;
    }
    let stale = t.rows.row(&t.id, Side::High).await.unwrap();
    assert_eq!(stale.counted_seq, 3);
    for n in 4..=10 {
        t.send(&format!("m{n}")).await;
    }
    t.move_up_to(8).await;
    t.clock.advance(60_000);
    let row = t.rows.bring_up(stale, None).await.unwrap();
    assert_eq!((row.counted_seq, row.unread, row.cold_up_to), (10, 10, 8));
    assert_eq!(t.hot_seqs().await, [9, 10], "no void was written over what is cold");
    t.rows.close_hole(&t.id, 4).await.unwrap();
    assert_eq!(t.hot_seqs().await, [9, 10]);
}

#[tokio::test]
async fn what_a_row_has_not_counted_is_counted_before_it_moves() {
    let t = cold_world().await;
    // Bob blocks Alice: his row counts nothing of it by itself.
    for n in 1..=6 {
        let withheld = t.new_message(&format!("m{n}")).withheld(true);
        t.rows.commit_sends(vec![withheld]).await.remove(0).unwrap();
    }
    assert_eq!(t.rows.row(&t.id, Side::High).await.unwrap().counted_seq, 0);
    let seen = t.rows.movable(&t.id).await.unwrap().unwrap();
    assert_eq!((seen.from, seen.up_to), (1, 5));
    t.move_up_to(5).await;
    assert_eq!(t.bobs().await, None, "he sees none of it all the same");
    t.send("m7").await;
    assert_eq!(t.bobs().await, Some((7, 1)));

    // A crash before the rows were written, a hole, and a message that is too young to give it up.
    t.store_only("m8").await;
    t.rows.redis.take_seq(&t.id).await.unwrap();
    t.store_only("m10").await;
    t.store_only("m11").await;
    let seen = t.rows.movable(&t.id).await.unwrap().unwrap();
    assert_eq!((seen.from, seen.up_to), (6, 8), "behind a hole nothing moves");
}

#[tokio::test]
async fn a_conversation_is_listed_once() {
    let t = cold_world().await;
    t.send("m1").await;
    assert_eq!((t.due().await, t.flags().await), (vec![START_MS + COLD_AFTER], vec![true, true]));
    let (due, rows) = (t.written(Table::ColdDue), t.written(Table::Conversations));
    // The sender's row is begun with the message, in its transaction.
    assert_eq!((due, rows), (1.0, 4.0), "the rows are made with the flag");
    for n in 2..=6 {
        t.clock.advance(1_000);
        t.send(&format!("m{n}")).await;
        let reply = message(&t.id, Side::High, &format!("r{n}"));
        t.rows.commit_sends(vec![reply]).await.remove(0).unwrap();
    }
    assert_eq!(t.due().await, [START_MS + COLD_AFTER]);
    assert_eq!(t.written(Table::ColdDue), due, "no later send pays for it");
    assert_eq!(t.written(Table::Conversations), rows + 20.0);
}

#[tokio::test]
async fn a_conversation_older_than_the_cold_tier_is_listed_by_the_next_send() {
    let mut t = cold_world().await;
    let without = Arc::new(node_of(&t));
    let with = std::mem::replace(&mut t.rows, without);
    t.send("m1").await;
    assert_eq!((t.due().await, t.flags().await), (vec![], vec![false, false]), "nobody is to be listed");
    t.rows = with;
    t.clock.advance(5_000);
    t.send("m2").await;
    assert_eq!((t.due().await, t.flags().await), (vec![START_MS + 5_000 + COLD_AFTER], vec![true, true]));
    let written = t.written(Table::ColdDue);
    t.send("m3").await;
    assert_eq!(t.written(Table::ColdDue), written);
}

#[tokio::test]
async fn what_is_due_at_once_is_listed_after_its_rows() {
    let mut t = cold_world().await;
    t.rows = Arc::new(node_of(&t).with_objects(t.rows.objects.clone(), Some(0)));
    t.send("m1").await;
    assert_eq!((t.due().await, t.flags().await), (vec![START_MS], vec![true, true]));
    assert_eq!(t.written(Table::Conversations), 6.0, "the rows are there before they say so");
}

#[tokio::test]
async fn who_has_nothing_to_grow_old_is_parked_until_somebody_writes() {
    let t = cold_world().await;
    t.send("m1").await;
    let listed = |due_at| ColdCandidate { conversation_id: t.id.clone(), due_at: Some(due_at) };
    let first = START_MS + COLD_AFTER;
    t.rows.looked_at(&listed(first), Some(first + DAY)).await.unwrap();
    assert_eq!((t.due().await, t.flags().await), (vec![first + DAY], vec![true, true]));
    t.rows.looked_at(&listed(first + DAY), None).await.unwrap();
    assert_eq!((t.due().await, t.flags().await), (vec![], vec![false, false]));
    t.rows.looked_at(&listed(first + DAY), None).await.unwrap();

    // The next message has it listed again.
    t.clock.advance(7_000);
    t.send("m2").await;
    let second = START_MS + 7_000 + COLD_AFTER;
    assert_eq!((t.due().await, t.flags().await), (vec![second], vec![true, true]));

    // Parked, and then something was left at the last look.
    t.rows.looked_at(&listed(second), None).await.unwrap();
    t.rows.looked_at(&listed(second), Some(second + DAY)).await.unwrap();
    assert_eq!((t.due().await, t.flags().await), (vec![second + DAY], vec![true, true]));
    t.send("m3").await;
    assert_eq!(t.due().await, [second + DAY]);

    // A row that was read before is not put back with the flag that it had.
    let stale = t.rows.row(&t.id, Side::Low).await.unwrap();
    t.rows.looked_at(&listed(second + DAY), None).await.unwrap();
    assert!(t.rows.replace(&stale).await.unwrap().is_some_and(|row| !row.cold_listed));
}

#[tokio::test]
async fn all_are_listed_once_and_again_if_the_list_was_lost() {
    let mut t = cold_world().await;
    let without = Arc::new(node_of(&t));
    let with = std::mem::replace(&mut t.rows, without);
    let ids: Vec<_> = (0..20).map(|n| ConversationId::new(&format!("alice~bob{n:02}")).unwrap()).collect();
    for id in &ids {
        t.rows.commit_sends(vec![message(id, Side::Low, "c")]).await.remove(0).unwrap();
    }
    t.rows = with;
    let now = t.clock.now_ms();
    assert_eq!(enlist_all(&t.rows, now).await, 20);
    assert_eq!(enlist_all(&t.rows, now).await, 0);
    let listed = async || {
        let mut listed = Vec::new();
        for shard in 0..COLD_SHARDS {
            listed.extend(t.rows.candidates(shard, None, now, 100).await.unwrap());
        }
        listed.sort_by_key(|candidate| candidate.conversation_id.clone());
        listed.into_iter().map(|candidate| candidate.conversation_id).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, ids);
    for shard in 0..COLD_SHARDS {
        let query = PartitionQuery::of(Table::ColdDue, s(format!("{shard:02}")));
        for row in t.rows.dynamo.query(&query).await.unwrap().0 {
            t.rows.dynamo.write(&Write::delete(Table::ColdDue, row)).await.unwrap();
        }
    }
    assert_eq!(listed().await, []);
    assert_eq!(enlist_all(&t.rows, now).await, 20);
    assert_eq!(listed().await, ids);
}

#[tokio::test]
async fn a_lease_is_no_candidate_and_ends() {
    let t = cold_world().await;
    let (rows, shard, now) = (&t.rows, cold_shard(&t.id), t.clock.now_ms());
    assert!(rows.lease(shard, "a", now, now + 1_000).await.unwrap());
    t.send("m1").await;
    let far = now + 10_000 * DAY;
    let due = rows.candidates(shard, None, far, 10).await.unwrap();
    assert_eq!(due.len(), 1);
    assert_eq!(rows.candidates(shard, due.last(), far, 10).await.unwrap(), []);
    assert_eq!(rows.candidates(shard, due.last(), now, 10).await.unwrap(), []);
    assert!(!rows.lease(shard, "b", now + 999, now + 2_000).await.unwrap());
    assert!(rows.lease(shard, "b", now + 1_000, now + 2_000).await.unwrap());
    assert!(!rows.lease(shard, "a", now + 1_001, now + 3_000).await.unwrap(), "who slept has it no more");
}

#[tokio::test]
async fn a_first_message_that_could_not_be_listed_is_sent_and_listed_by_the_next() {
    let t = cold_world().await;
    let name = t.rows.dynamo.name_of(Table::ColdDue);
    t.rows.dynamo.client().delete_table().table_name(&name).send().await.unwrap();
    t.send("m1").await;
    assert_eq!(t.flags().await, [false, false]);
    assert_eq!(t.bobs().await, Some((1, 1)));
    let options = super::CreateOptions {
        ttl: false,
        point_in_time_recovery: false,
        deletion_protection: false,
        ..super::CreateOptions::default()
    };
    super::create_tables(&t.rows.dynamo, &options).await.unwrap();
    t.send("m2").await;
    assert_eq!(t.flags().await, [true, true]);
    assert_eq!(t.due().await.len(), 1);
    let row = row_key(&UserId::new("alice").unwrap(), &t.id);
    assert!(t.rows.dynamo.get(Table::Conversations, row).await.unwrap().is_some());
}

async fn enlist_all(rows: &DynamoStore, now: u64) -> u64 {
    let (mut place, mut listed) = (Some(crate::EnlistPlace::default()), 0);
    while let Some(from) = place {
        let (some, next) = rows.enlist(now, from).await.unwrap();
        listed += some;
        place = next;
    }
    listed
}
