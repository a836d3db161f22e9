//! What a connecting device must get: its user's pending rows in full, and by its cursor every conversation that was
//! active since (R6), whatever the rows say.

use std::collections::BTreeMap;

use bluetick_protocol::{ConversationId, Head, MessageId, limits};
use bluetick_store::ActiveConversation;
use futures_util::future::join_all;

use crate::{Answer, Node, Plan, PlanLane, PlanRequest, rules::rule, wire};

/// Lanes whose end is looked up side by side.
const LANES_AT_ONCE: usize = 64;

impl Node {
    pub(crate) async fn make_plan(&self, request: PlanRequest) -> Answer<Plan> {
        let PlanRequest { user, cursor, heads } = request;
        let now = self.clock.now_ms();
        let mut plan = Plan {
            lanes: Vec::new(),
            heads: Vec::new(),
            cursor: MessageId::at(now),
            // The clocks of app servers differ: an id may be minted from now on and be older than now.
            since: MessageId::at(now.saturating_sub(self.config.resume_overlap.as_millis() as u64)),
            reset: None,
        };
        let mut lanes: BTreeMap<ConversationId, PlanLane> = BTreeMap::new();
        let lane = |id: &ConversationId| PlanLane {
            conversation_id: id.clone(),
            resume: false,
            row: None,
            last_seq: 0,
        };
        for row in self.store.pending.pending_of(&user).await.map_err(wire)? {
            lanes.entry(row.conversation_id.clone()).or_insert_with(|| lane(&row.conversation_id)).row =
                Some(row.first_undelivered_seq);
        }
        let usable = cursor.filter(|_| rule!(self.rules, R6)).map(|cursor| self.check_cursor(cursor, now));
        match usable {
            None => {}
            Some(Err(reason)) => plan.reset = Some(reason),
            Some(Ok(since)) => {
                let limit = self.config.resume_max_conversations;
                let active = self
                    .store
                    .conversations
                    .active_since(&user, since.ms(), limit + 1)
                    .await
                    .map_err(wire)?;
                if active.len() > limit {
                    plan.reset = Some("too much happened since the cursor".into());
                } else {
                    plan.since = since;
                    for conversation in active {
                        let id = &conversation.conversation_id;
                        lanes.entry(id.clone()).or_insert_with(|| lane(id)).resume = true;
                    }
                }
            }
        }
        let mut all: Vec<&mut PlanLane> = lanes.values_mut().collect();
        for some in all.chunks_mut(LANES_AT_ONCE) {
            let ends = some.iter().map(|lane| self.store.messages.last_seq(&lane.conversation_id));
            let ends = join_all(ends).await;
            for (lane, last_seq) in some.iter_mut().zip(ends) {
                lane.last_seq = last_seq.map_err(wire)?;
            }
        }
        if heads && rule!(self.rules, R6) {
            let newest = self.store.conversations.active_since(&user, 0, limits::HEADS_MAX);
            let head =
                |c: ActiveConversation| Head { conversation_id: c.conversation_id, last_seq: c.last_seq };
            plan.heads = newest.await.map_err(wire)?.into_iter().map(head).collect();
        }
        plan.lanes = lanes.into_values().collect();
        Ok(plan)
    }

    /// From where a device with this cursor is read, or why it cannot be.
    fn check_cursor(&self, cursor: MessageId, now: u64) -> Result<MessageId, String> {
        let overlap = self.config.resume_overlap.as_millis() as u64;
        if cursor.ms() + (self.config.resume_max_age.as_millis() as u64) < now {
            Err("the cursor is too old".into())
        } else if cursor.ms() > now + overlap {
            Err("the cursor is from the future: it was not given by this server".into())
        } else {
            Ok(cursor.minus_ms(overlap))
        }
    }
}
