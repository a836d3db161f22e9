//! The rules of delivery, R1 to R15. Everything else in this crate refers to them by number.
//!
//! Together they keep one promise. When a sender is told `sent`, the message is durable, and either
//! its pending row is written or a live session has taken it. Every device of the receiver gets it:
//! at least once on the wire, exactly once after the client drops the `(conversation_id, seq)` it
//! has seen, in `seq` order. A device with a cursor gets everything since; one without gets
//! everything that no device of its user has acked. No crash, restart or partition changes that.
//!
//! The paths of tests are short: `rules/` is `crates/chat/tests/rules/`, `it/` and `cluster/` are
//! in `crates/server/tests/`, `conformance/` is `crates/store/src/conformance/`, `model` is
//! `sim/tests/model/main.rs`, which explores every interleaving of a small system, and `seeds` is
//! `sim/tests/seeds.rs`, which runs this crate against injected faults. A test below checks that
//! they all exist.

/// A rule of delivery: what it says, what is lost without it, and the tests that fail without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// **Register, then read: a session registers in the session store before it reads its pending
    /// rows.**
    ///
    /// The other way round, a message can fall between the two. The session reads its rows and
    /// finds none; a sender looks the user up, finds nobody and writes a row; then the session
    /// registers. The row exists, the session is live, and neither knows of the other.
    ///
    /// - `rules/r01_register_then_read.rs::a_message_that_arrives_while_the_rows_are_read_is_delivered`
    /// - `model::r1_register_then_read`
    /// - `seeds::a_session_that_reads_before_it_registers_is_found`
    /// - `it/drain.rs::a_recipient_that_flaps_while_two_devices_write_misses_nothing`
    R1,

    /// **Write, look up, look up again: whoever writes a pending row afterwards looks the receiver
    /// up once more and wakes every session found.**
    ///
    /// The first lookup, before the commit, only decides whether the row is committed with the
    /// message. If a session registers after that lookup and reads its rows before the commit, it
    /// finds nothing. Without the second lookup nobody tells it of the row, and the message waits
    /// until the device reconnects. The same holds when a write fails: it may have succeeded, so
    /// the sessions are woken all the same.
    ///
    /// - `rules/r02_look_again.rs::a_session_that_registers_after_the_first_lookup_is_found_by_the_second`
    /// - `rules/r02_look_again.rs::who_writes_a_row_wakes_the_session_that_came_meanwhile`
    /// - `rules/r02_look_again.rs::a_row_that_may_have_been_written_with_its_message_is_looked_for`
    /// - `model::r2_store_then_look_up`, `model::r2_look_again`
    /// - `seeds::a_sender_that_does_not_look_again_is_found`
    R2,

    /// **The pending row keeps the minimum: one conditional write, "absent or greater".**
    ///
    /// Two workers carry seq 42 and 43 to the same offline receiver, and 43 arrives first. With a
    /// read followed by a write, the second worker finds a row and leaves it; the row says 43, and
    /// 42 is never drained. For the same reason a session begins no later than at the first message
    /// that no device has acked, whatever its row says.
    ///
    /// - `rules/r03_the_minimum.rs::the_lower_seq_wins_although_it_comes_later`
    /// - `conformance/pending.rs::the_row_keeps_the_minimum`
    /// - `conformance/pending.rs::the_minimum_holds_under_concurrent_notes`
    /// - `model::r3_the_row_keeps_the_minimum`, `model::r3_the_minimum_is_enough_to_begin_at`
    /// - `seeds::a_row_that_does_not_keep_the_minimum_is_found`
    R3,

    /// **Ack, then delete, then read again: a pending row is removed only when everything drained
    /// for it is acked and only if it still holds the value that was read; then the session reads
    /// the messages past that point once more.**
    ///
    /// A sender that finds a row writes nothing and relies on it. If the row is removed a moment
    /// later, the sender's message is in no row; only the read after the removal finds it. A
    /// removal without the comparison deletes a row that another sender has just lowered, and a
    /// removal before the acks loses what the device never received.
    ///
    /// - `rules/r04_ack_delete_read_again.rs::what_a_sender_left_to_the_row_is_read_after_its_removal`
    /// - `rules/r04_ack_delete_read_again.rs::a_row_is_removed_only_when_all_that_was_drained_for_it_is_acked`
    /// - `rules/r04_ack_delete_read_again.rs::a_row_that_changed_since_it_was_read_is_not_removed`
    /// - `conformance/pending.rs::settle_removes_only_what_was_read`
    /// - `model::r4_ack_then_delete`, `model::r4_delete_if_equal`, `model::r4_read_again`
    /// - `seeds::a_removed_row_that_is_not_read_past_is_found`
    R4,

    /// **A closing session pays its debts: it refuses new hand-overs, then moves its row to the
    /// first unacked seq (or writes one), then does the second lookup of [`R2`](Rule::R2).**
    ///
    /// A live session that takes a message leaves no row behind. If the device disconnects before
    /// it acks, and the session just ends, the message is in no row, and a device without a cursor
    /// does not get it from the rows. Were hand-overs refused after the debts are counted, a
    /// message taken in between would be nobody's debt.
    ///
    /// - `rules/r05_closing_pays.rs::what_was_not_acked_comes_back_to_a_device_without_a_cursor`
    /// - `rules/r05_closing_pays.rs::a_closing_session_refuses_hand_overs_before_it_counts_its_debts`
    /// - `it/drain.rs::a_closing_session_leaves_a_row_for_what_it_did_not_get_acked`
    /// - `model::r5_pay_debts`, `model::r5_a_row_that_is_being_removed_is_a_debt`
    /// - `seeds::a_closing_session_that_pays_no_debts_is_found`
    R5,

    /// **Resume by cursor: a connecting device also gets every conversation active since its
    /// cursor, less an overlap of 60 s, whatever the pending rows say. Without a cursor it gets
    /// everything that no device of its user has acked.**
    ///
    /// A session that dies with its process pays no debts, so its unacked messages are in no row.
    /// And a row says nothing about a user's second device: it is gone once the first has acked.
    /// A cursor that cannot be served gets an explicit `reset` and then `caught_up`, never silence.
    ///
    /// - `rules/r06_resume.rs::after_a_crash_the_cursor_brings_everything_back`
    /// - `rules/r06_resume.rs::a_second_device_gets_what_the_first_one_acked`
    /// - `rules/r06_undelivered.rs::what_no_device_has_acked_comes_back_after_a_crash`
    /// - `rules/r06_undelivered.rs::a_removal_that_comes_after_its_session_has_closed_hides_nothing`
    /// - `conformance/conversations.rs::undelivered_is_what_no_device_has_acked`
    /// - `model::r6_resume_by_cursor`, `model::r6_what_no_device_has_acked_is_found_without_a_row`
    /// - `seeds::a_cursor_that_is_not_looked_at_is_found`
    /// - `seeds::what_no_device_has_acked_is_missed_by_one_without_a_cursor`
    /// - `it/devices.rs::every_device_gets_every_message_live_and_by_its_cursor`
    /// - `it/drain.rs::a_cursor_that_cannot_be_served_gets_a_reset_and_caught_up`
    /// - `cluster/whole_stop.rs::a_cluster_that_is_told_to_stop_at_once_loses_nothing`
    R6,

    /// **One ordered stream: the conversations of a drain are merged by `message_id`, each in `seq`
    /// order, and end in exactly one `caught_up`. Live delivery is the same loop.**
    ///
    /// Live messages may arrive out of order. A session that sends 43 and then gets an ack for it
    /// has acked 42 as well, which the device never saw. A live message that is not the next one
    /// therefore waits for a read. A receipt may make a conversation begin earlier and never makes
    /// it skip a message.
    ///
    /// - `rules/r07_live_order.rs::a_message_that_overtook_another_waits_for_it`
    /// - `rules/r07_live_order.rs::a_message_older_than_the_session_comes_before_the_newer_one`
    /// - `rules/r07_one_stream.rs::three_conversations_come_as_one_stream_with_one_caught_up`
    /// - `rules/r07_one_stream.rs::a_receipt_keeps_no_message_from_a_device`
    /// - `model::r7_one_stream`
    /// - `it/drain.rs::three_conversations_come_as_one_ordered_stream`
    R7,

    /// **Seqs are fenced: a message is written only under a seq that holds nothing, and a reader
    /// closes a hole before it reads on.**
    ///
    /// A sequence counter that fell back (Redis lost its state or failed over) hands out a seq
    /// twice; without the condition the second message overwrites the first. A writer that took a
    /// seq and stalled leaves a hole. A reader that skips the hole acks past it, and the message
    /// that is written there later is never delivered. The reader waits a moment, reads again, and
    /// writes a void, so that the late writer fails and takes a new seq. The embedded store assigns
    /// the seq in the append and has no holes.
    ///
    /// - `rules/r08_holes.rs::a_hole_is_closed_and_its_late_writer_takes_a_new_seq`
    /// - `rules/r08_holes.rs::a_receipt_does_not_overtake_a_late_message`
    /// - `rules/r08_holes.rs::a_counter_that_fell_back_overwrites_nothing`
    /// - `conformance/sends.rs::seqs_have_no_gap_under_concurrent_writers`
    /// - `model::r8_fence_seqs`, `model::r8_close_holes`
    /// - `seeds::seqs_without_a_fence_are_found`
    R8,

    /// **Sends are idempotent: `(conversation, sender, client_msg_id)` is remembered with its seq
    /// for 30 days, and a retry gets the original answer and runs the delivery steps again.**
    ///
    /// An app server may crash between the commit and the delivery. The sender retries and is told
    /// `sent`; if the retry were answered without delivery, the message would be in no row and with
    /// no session. The same id with other content is an error.
    ///
    /// - `rules/r09_retries.rs::a_retry_writes_the_row_that_the_first_attempt_did_not`
    /// - `rules/r09_retries.rs::a_retry_hands_over_what_the_first_attempt_handed_to_nobody`
    /// - `conformance/sends.rs::one_client_msg_id_at_once_is_one_message`
    /// - `conformance/sends.rs::a_client_msg_id_with_other_content_is_a_conflict`
    /// - `model::r9_remember_sends`, `model::r9_deliver_again`
    /// - `seeds::sends_that_are_not_remembered_are_found`
    /// - `it/idempotency.rs::the_same_client_msg_id_twenty_times_at_once_and_after_a_restart`
    R9,

    /// **Receipts only grow: both boundaries are merged by maximum in one conditional write, a read
    /// implies a delivery, and a boundary beyond the last seq is clamped.**
    ///
    /// Acks of two devices arrive in any order; the last writer would set the boundary back and
    /// take a tick away. A reply implies that its sender has read what their client had seen.
    /// Receipts are state, not events: every session of both members is told the boundaries, and
    /// one that was offline reads them.
    ///
    /// - `rules/r10_receipts.rs::boundaries_never_go_back`
    /// - `rules/r10_receipts.rs::a_boundary_beyond_the_last_seq_is_clamped`
    /// - `rules/r10_receipts.rs::ticks_reach_all_sessions_of_both_members`
    /// - `conformance/status.rs::concurrent_receipts_merge_to_the_maximum`
    /// - `model::r10_a_tick_covers_only_what_some_device_has`
    /// - `it/write_flow.rs::ticks_only_grow_and_are_clamped`
    R10,

    /// **Unread never drifts: `unread_count` is the number of messages from the other side after
    /// `last_read_seq`, updated with every message.**
    ///
    /// A blind increment drifts: an update that is retried after a lost answer counts twice, and a
    /// reset to zero forgets what arrived after the read.
    ///
    /// - `rules/r11_unread.rs::a_read_leaves_exactly_what_comes_after_it`
    /// - `rules/r11_unread.rs::a_commit_whose_answer_was_lost_counts_once`
    /// - `conformance/unread.rs::unread_is_exact_under_random_interleavings`
    /// - `conformance/unread.rs::unread_is_exact_under_concurrency`
    /// - `it/write_flow.rs::a_partial_read_leaves_exactly_the_rest`
    R11,

    /// **A stale session entry is a miss, and a lost one is noticed.**
    ///
    /// An entry that names a session its gateway does not have (the process crashed) must not count
    /// as delivered: the entry is removed if it still names that session, and the message takes the
    /// offline path. A hand-over that misses its deadline does the same. In the other direction, a
    /// session whose entry is gone (the store was flushed, the process was paused beyond the TTL)
    /// is connected and gets nothing. A refresh therefore never recreates an entry; the session
    /// registers again and drains again. While the session store is down everybody is offline:
    /// messages queue and nothing fails.
    ///
    /// - `rules/r12_stale_entries.rs::a_message_for_a_stale_entry_takes_the_offline_path`
    /// - `rules/r12_lost_entries.rs::a_session_that_lost_its_entry_registers_anew_and_drains_anew`
    /// - `rules/r12_lost_entries.rs::a_session_store_that_falls_back_does_not_end_the_newer_session`
    /// - `rules/r12_lost_entries.rs::with_the_session_store_down_sends_succeed_and_queue`
    /// - `rules/fan_out.rs::a_session_that_hangs_delays_sent_by_the_hedge`
    /// - `model::r12_a_stale_entry_is_a_miss`, `model::r12_a_lost_entry_is_noticed`
    /// - `seeds::a_stale_or_lost_entry_that_is_not_noticed_is_found`
    /// - `it/sessions.rs::a_dead_peer_is_noticed_and_its_messages_wait`
    R12,

    /// **A slow reader costs only itself: the window of unacked messages and a limit in encoded
    /// bytes are the only queues to a session.**
    ///
    /// Beyond them the session remembers that there is more and reads it when there is room. A
    /// socket that takes nothing, or a window that nobody acks, ends the session after a timeout;
    /// [`R5`](Rule::R5) and [`R6`](Rule::R6) deliver the rest later. With an unbounded queue one
    /// stuck phone takes the memory of everybody, and with a blocking one it delays every sender.
    ///
    /// - `rules/r13_window.rs::who_does_not_ack_gets_a_window_and_no_more`
    /// - `rules/r13_slow_readers.rs::a_stuck_reader_holds_up_neither_senders_nor_the_other_device`
    /// - `rules/r13_outbound.rs::no_request_is_started_while_too_much_waits_for_the_socket`
    /// - `it/attacks/slow_readers.rs::unread_histories_take_little_memory`
    /// - `it/sessions.rs::a_reader_that_does_not_ack_gets_a_window_and_then_a_bye`
    R13,

    /// **One push decision per message, made after the pending row is written.**
    ///
    /// A decision made earlier is lost with a crash before the row; a second one notifies twice. A
    /// message that was handed over and not acked for 20 s counts as not handed over. An ack that
    /// comes first cancels the notification. The provider may get it more than once, with the same
    /// notification id and collapse id.
    ///
    /// - `rules/r14_push.rs::three_messages_are_three_notifications_that_replace_each_other`
    /// - `rules/r14_push.rs::a_session_that_is_half_open_counts_for_nothing_after_20_seconds`
    /// - `rules/r14_push_faults.rs::a_crash_between_the_row_and_the_notification_loses_nothing`
    /// - `rules/r14_push_faults.rs::two_app_servers_make_one_decision_each`
    /// - `conformance/push_outbox.rs::an_undelivered_send_owes_with_its_row`
    /// - `conformance/push_outbox.rs::what_is_due_is_claimed_once`
    R14,

    /// **Nothing is visible before it is durable: not to a drain, a history, an inbox or the answer
    /// to a repeated send.**
    ///
    /// A device that acks a message which a power failure then takes back has acked the next
    /// message under that seq too. A failed fsync ends the process, because its state is unknown. A
    /// floor of free disk space refuses sends before the disk is full.
    ///
    /// - `rules/r15_durable_first.rs::nothing_shows_while_the_commit_is_under_way`
    /// - `rules/r15_durable_first.rs::nobody_is_told_sent_before_the_row_is_written_or_a_session_has_it`
    /// - `it/crash.rs::a_crash_at_every_step_of_the_rules_loses_nothing`
    /// - `it/crash.rs::ten_kills_under_load_lose_no_acked_message`
    /// - `it/embedded.rs::sends_are_refused_below_the_floor_of_free_space_and_reading_goes_on`
    /// - `it/disk.rs::an_fsync_that_fails_ends_the_process`
    R15,
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    /// The short paths of the rules' documentation.
    fn source_of(path: &str) -> String {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let file = workspace.join(match first {
            "rules" => format!("crates/chat/tests/rules/{rest}"),
            "conformance" => format!("crates/store/src/conformance/{rest}"),
            "it" | "cluster" => format!("crates/server/tests/{path}"),
            "model" => "sim/tests/model/main.rs".into(),
            "seeds" => "sim/tests/seeds.rs".into(),
            other => panic!("{other:?} is no short path"),
        });
        fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
    }

    #[test]
    fn every_test_that_a_rule_names_exists() {
        let documented = include_str!("rules.rs").lines().filter(|line| line.starts_with("    /// - "));
        let named: Vec<&str> = documented.flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
        assert!(named.len() > 15 * 4, "only {} tests are named", named.len());
        for name in named {
            let Some((path, test)) = name.split_once("::") else { panic!("{name} names no test") };
            assert!(source_of(path).contains(&format!("fn {test}(")), "{name} does not exist");
        }
    }
}
