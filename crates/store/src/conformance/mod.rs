//! The conformance suite: what each system promises, as plain functions over a fresh store, run on
//! every backend.
//!
//! A backend joins with one line, `conformance_tests!(name, || fixture)`, which makes every check a
//! test. The checks test only what the traits promise, not what they leave open (the order of ids
//! between conversations, what a page counts as a byte). [`model::same_as_model`] goes further: it
//! runs the same random operations on a store and on the memory model, and compares every row.

// Test code: a panic is its answer, and a list of one reads better as a list.
#![allow(clippy::unwrap_used, clippy::cloned_ref_to_slice_refs)]

pub mod attachments;
pub mod cold;
pub mod conversations;
pub mod devices;
mod fixture;
pub mod maintenance;
pub mod model;
pub mod pending;
pub mod push_outbox;
pub mod reads;
pub mod sends;
pub mod sessions;
pub mod status;
pub mod unread;
pub mod users;

pub use fixture::{Dice, Fixture, START_MS};

/// Generates a module with a test for each check. The closure creates a fresh fixture for each.
#[macro_export]
macro_rules! conformance_tests {
    (@list $backend:ident, $fixture:expr, $($system:ident { $($check:ident)* })*) => {
        mod $backend {
            use super::*;

            /// The checks that are run, so that a test can find a missing one.
            pub const CHECKS: &[&str] = &[$($(concat!(stringify!($system), "::", stringify!($check))),*),*];

            $(mod $system {
                use super::*;

                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    let fixture: $crate::conformance::Fixture = ($fixture)();
                    $crate::conformance::$system::$check(&fixture).await
                })*
            })*
        }
    };
    ($backend:ident, $fixture:expr) => {
        $crate::conformance_tests! { $backend, $fixture, model { random_operations_leave_the_rows_of_the_model } }
    };
    // For a backend that commits in several steps, which the model of one transaction does not
    // describe in every detail.
    (in_steps $backend:ident, $fixture:expr) => {
        $crate::conformance_tests! { $backend, $fixture, }
    };
    ($backend:ident, $fixture:expr, $($model:tt)*) => {
        $crate::conformance_tests! { @list $backend, $fixture,
            sends {
                seqs_have_no_gap_under_concurrent_writers
                a_send_is_stored_as_it_was_given
                one_client_msg_id_at_once_is_one_message
                a_client_msg_id_belongs_to_its_sender_and_conversation
                a_client_msg_id_is_forgotten_after_the_window
                a_duplicate_changes_nothing
                a_client_msg_id_with_other_content_is_a_conflict
                a_conflict_concerns_one_send_of_a_batch
                of_two_contents_at_once_one_is_stored
                an_erased_message_conflicts_with_nothing
                a_duplicate_notes_the_pending_row_again
                a_duplicate_of_what_was_acked_leaves_no_row
                a_batch_is_committed_in_order
                results_are_independent
                message_ids_grow_with_the_seq
            }
            reads {
                reading_forward_pages_by_count
                reading_backward_pages_by_count
                pages_are_bounded_by_bytes
                one_message_comes_however_large
                an_unknown_conversation_is_empty
                find_by_message_id
                closing_what_is_no_hole_changes_nothing
            }
            pending {
                the_row_keeps_the_minimum
                the_minimum_holds_under_concurrent_notes
                the_row_is_written_with_the_message
                a_message_that_was_delivered_writes_no_row
                settle_removes_only_what_was_read
                settle_moves_only_what_was_read
                one_of_many_settles_wins
                rows_come_in_order_of_conversation
            }
            status {
                no_row_before_the_first_receipt
                receipts_only_grow
                read_implies_delivered
                receipts_are_clamped_to_the_last_seq
                receipts_do_not_cover_what_is_withheld_at_the_end
                all_is_acked_only_when_it_is
                nothing_is_made_without_messages
                concurrent_receipts_merge_to_the_maximum
                a_reply_reads_what_its_sender_had_seen
                a_reply_reads_what_was_delivered_if_it_does_not_say
                a_first_message_implies_nothing
            }
            unread {
                own_messages_are_never_counted
                a_read_leaves_what_came_after_it
                an_ack_reads_nothing
                a_reply_reads_what_it_implies
                total_unread_is_the_sum
                unread_is_exact_under_random_interleavings
                unread_is_exact_under_concurrency
                a_recount_agrees
            }
            conversations {
                a_send_updates_both_rows
                a_row_is_updated_in_place
                a_row_is_always_there_while_it_is_updated
                withheld_messages_leave_the_receiver_alone
                a_withheld_message_makes_no_row_for_the_receiver
                the_inbox_is_newest_first
                the_inbox_pages_through_equal_timestamps
                changes_between_pages_lose_and_repeat_nothing
                active_since_lists_what_is_new
                a_stranger_sees_no_row
                undelivered_is_what_no_device_has_acked
                undelivered_is_nothing_that_the_user_may_not_see
                undelivered_leaves_out_what_was_written_before_an_erasure
                undelivered_pages_through_all_conversations
            }
            users {
                profiles_are_kept
                profiles_are_copied_into_the_inboxes_of_others
                an_inbox_shows_a_profile_once_its_owner_has_written
                a_withheld_message_shows_no_profile
                a_block_freezes_the_copy_that_the_other_has
                blocks_are_kept_in_order
                mutes_are_kept_in_order
                not_before_only_grows_and_outlives_an_erasure
            }
            devices {
                registrations_are_kept_as_they_were_given
                a_token_belongs_to_one_device
                a_token_at_once_in_many_hands_ends_in_one
                a_renewed_registration_is_not_removed
                erasing_a_user_forgets_their_devices
            }
            push_outbox {
                a_conversation_is_owed_the_latest
                what_is_due_is_claimed_once
                many_claimers_share
                a_row_is_postponed_and_paid_only_as_it_was
                an_undelivered_send_owes_with_its_row
                what_was_notified_only_grows
                erasing_leaves_nothing_owed
            }
            attachments {
                an_attachment_is_kept_as_it_was_announced
                bytes_arrive_once
                claims_are_by_conversation
                what_a_user_announced_is_found
                what_nobody_claimed_is_found_by_age
                what_is_collected_is_not_claimed
                a_quota_is_charged_when_announced_and_given_back_when_forgotten
                a_quota_holds_under_concurrent_announcements
                without_a_quota_usage_is_counted_all_the_same
            }
            cold {
                what_is_cold_is_read_as_if_it_were_hot
                pages_end_by_bytes_across_the_border
                runs_are_found_by_any_of_their_seqs
                a_record_is_made_once
                copies_are_read_once
                what_may_move_says_what_is_not_settled
                counts_are_exact_across_the_border
                a_reply_reads_across_the_border
                a_recount_counts_what_is_cold
                erasing_reaches_what_is_cold
                a_missing_object_is_named
                candidates_are_found_and_come_back
                a_shard_has_one_holder
            }
            maintenance {
                a_fresh_store_takes_sends
                erasing_a_member_voids_what_they_wrote
                erasing_a_member_removes_their_rows_only
                erasing_leaves_no_row_to_a_peer_who_wrote_nothing
                an_erased_member_can_come_back
                erasing_again_changes_nothing
                memberships_list_withheld_conversations
                erasing_a_user_forgets_profile_and_blocks
                a_checkpoint_changes_nothing
                a_closed_store_takes_no_sends
            }
            sessions {
                lookup_is_oldest_first
                a_device_has_one_session
                registering_again_ends_nobody
                the_oldest_goes_beyond_the_maximum
                an_entry_expires
                an_expired_session_is_not_replaced
                a_refresh_extends_and_never_recreates
                unregister_removes_only_its_own
                a_late_unregister_leaves_the_new_session
                last_seen_is_kept
                watchers_follow_the_watch
                a_watch_ends_with_its_session
                a_refresh_keeps_the_watch
                a_flush_forgets_everything
                concurrent_registrations_of_a_device_leave_one
            }
            $($model)*
        }
    };
}
