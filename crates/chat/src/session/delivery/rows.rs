//! The pending rows that a session is responsible for: looked up, and removed after the acks (R4).

use std::collections::BTreeSet;

use bluetick_protocol::{ConversationId, Seq};

use super::{BackgroundAction, Delivery, Phase, RowState};
use crate::Settled;

/// Most pending rows that are looked up or removed at once.
const ROWS_AT_ONCE: usize = 64;

/// Lanes whose pending row needs something done.
#[derive(Debug, Default)]
pub(super) struct RowWork {
    pub to_look_up: BTreeSet<ConversationId>,
    /// Lanes whose row may have become ready to be removed.
    pub may_settle: BTreeSet<ConversationId>,
}

impl Delivery {
    /// What to do about pending rows. A closing session asks for this once more.
    pub(in crate::session) fn next_for_rows(&mut self) -> Option<BackgroundAction> {
        if matches!(self.phase, Phase::Registering) {
            return None;
        }
        let to_look_up = &mut self.rows.to_look_up;
        if !to_look_up.is_empty() {
            let rows = std::iter::from_fn(|| to_look_up.pop_first()).take(ROWS_AT_ONCE).collect();
            return Some(BackgroundAction::LookUpRows(rows));
        }
        if self.rows.may_settle.is_empty() {
            return None;
        }
        let rows: Vec<_> = std::iter::from_fn(|| self.row_to_settle()).take(ROWS_AT_ONCE).collect();
        (!rows.is_empty()).then_some(BackgroundAction::SettleRows(rows))
    }

    /// A row that can be removed: everything drained for it is sent and acked (R4).
    fn row_to_settle(&mut self) -> Option<(ConversationId, Seq)> {
        while let Some(id) = self.rows.may_settle.pop_first() {
            if let Some(lane) = self.lanes.get_mut(&id).filter(|lane| lane.has_settled())
                && let Some(row) = lane.row.begin_removal()
            {
                return Some((id, row));
            }
        }
        None
    }

    /// A pending row was looked up: this session is responsible for it now.
    pub(super) fn row_found(&mut self, id: &ConversationId, row: Option<Seq>) {
        let Some(row) = row else { return };
        let lane = self.lanes.entry(id.clone()).or_default();
        lane.row.found(row);
        lane.raise_heads(row);
        lane.begin_no_later_than(row);
        self.fall_behind(id);
    }

    /// A row was removed, or nobody knows. The last seq was read afterwards: what lies beyond is
    /// still to be sent (R4).
    pub(super) fn row_settled(&mut self, id: &ConversationId, settled: Option<Settled>) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        let Some(Settled { row, last_seq }) = settled else {
            lane.row.removal_failed();
            self.rows.may_settle.insert(id.clone());
            return;
        };
        lane.row = RowState::None;
        if last_seq > lane.head {
            lane.raise_heads(last_seq);
        }
        self.fall_behind(id);
        self.row_found(id, row);
    }
}
