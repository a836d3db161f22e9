//! Plans what a connecting device must get ([`R6`](crate::rules::Rule::R6)): all pending rows of
//! its user, and every conversation active since its cursor, whatever the rows say. Without a
//! cursor that can be served it gets what no device of the user has acked, because a session that
//! died with its process left no row.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Head, MessageId, UserId, limits};
use bluetick_store::ActiveConversation;
use futures_util::future::join_all;

use crate::{AppResult, ChatService, Plan, PlanApi, PlanLane, PlanRequest, wire};

/// Most lanes whose last seq is read concurrently.
const LANES_AT_ONCE: usize = 64;
/// Conversations that one read checks for messages that no device has acked.
const UNDELIVERED_PAGE: usize = 512;

type PlanLanes = BTreeMap<ConversationId, PlanLane>;

fn lane<'a>(lanes: &'a mut PlanLanes, id: &ConversationId) -> &'a mut PlanLane {
    lanes.entry(id.clone()).or_insert_with(|| PlanLane {
        conversation_id: id.clone(),
        resume: false,
        row: None,
        last_seq: 0,
    })
}

#[async_trait]
impl PlanApi for ChatService {
    async fn plan(&self, request: PlanRequest) -> AppResult<Plan> {
        let PlanRequest { user, cursor, heads, undelivered_after } = request;
        let now = self.clock.now_ms();
        let mut plan = Plan {
            lanes: Vec::new(),
            heads: Vec::new(),
            cursor: MessageId::at(now),
            // The clocks of app servers differ: an id minted after this may be older than `now`.
            since: MessageId::at(now.saturating_sub(self.config.resume_overlap.as_millis() as u64)),
            reset: None,
            more: None,
        };
        let mut lanes = PlanLanes::new();
        if undelivered_after.is_some() {
            plan.more = self.plan_undelivered(&user, undelivered_after, &mut lanes).await?;
        } else {
            self.plan_pending_rows(&user, &mut lanes).await?;
            if let Some(cursor) = cursor {
                self.plan_since_cursor(&user, cursor, now, &mut plan, &mut lanes).await?;
            }
            if heads {
                plan.heads = self.heads_of(&user).await?;
            }
            if heads && (cursor.is_none() || plan.reset.is_some()) {
                plan.more = self.plan_undelivered(&user, None, &mut lanes).await?;
            }
        }
        self.find_ends(&mut lanes).await?;
        plan.lanes = lanes.into_values().collect();
        Ok(plan)
    }
}

impl ChatService {
    /// Pending rows are always drained in full.
    async fn plan_pending_rows(&self, user: &UserId, lanes: &mut PlanLanes) -> AppResult<()> {
        for row in self.store.pending.pending_of(user).await.map_err(wire)? {
            lane(lanes, &row.conversation_id).row = Some(row.first_undelivered_seq);
        }
        Ok(())
    }

    /// Adds the conversations active since the cursor, or tells the device to start over.
    async fn plan_since_cursor(
        &self,
        user: &UserId,
        cursor: MessageId,
        now: u64,
        plan: &mut Plan,
        lanes: &mut PlanLanes,
    ) -> AppResult<()> {
        let since = match self.check_cursor(cursor, now) {
            Ok(since) => since,
            Err(reason) => {
                plan.reset = Some(reason);
                return Ok(());
            }
        };
        let limit = self.config.resume_max_conversations;
        let active = self.store.conversations.active_since(user, since.ms(), limit + 1);
        let active = active.await.map_err(wire)?;
        if active.len() > limit {
            plan.reset = Some("too much happened since the cursor".into());
            return Ok(());
        }
        plan.since = since;
        for conversation in active {
            lane(lanes, &conversation.conversation_id).resume = true;
        }
        Ok(())
    }

    /// The last seqs of the user's newest conversations.
    async fn heads_of(&self, user: &UserId) -> AppResult<Vec<Head>> {
        let newest = self.store.conversations.active_since(user, 0, limits::HEADS_MAX);
        let head = |c: ActiveConversation| Head { conversation_id: c.conversation_id, last_seq: c.last_seq };
        Ok(newest.await.map_err(wire)?.into_iter().map(head).collect())
    }

    /// Adds the conversations after `after` in which the peer has written a message that no device
    /// has acked. Returns where to continue if they are too many for one plan.
    async fn plan_undelivered(
        &self,
        user: &UserId,
        mut after: Option<ConversationId>,
        lanes: &mut PlanLanes,
    ) -> AppResult<Option<ConversationId>> {
        // The limit counts conversations that are checked, not those that are found: one plan must
        // not take as long as all conversations of a user who has very many.
        let (mut checked, most) = (0, self.config.resume_max_conversations.max(1));
        loop {
            let limit = UNDELIVERED_PAGE.min(most);
            let page = self.store.conversations.undelivered(user, after.as_ref(), limit);
            let page = page.await.map_err(wire)?;
            checked += limit;
            for id in &page.conversations {
                lane(lanes, id);
            }
            after = page.next;
            if after.is_none() || checked >= most {
                return Ok(after);
            }
        }
    }

    /// Reads the last seq of each conversation.
    async fn find_ends(&self, lanes: &mut PlanLanes) -> AppResult<()> {
        let mut all: Vec<&mut PlanLane> = lanes.values_mut().collect();
        for chunk in all.chunks_mut(LANES_AT_ONCE) {
            let ends = chunk.iter().map(|lane| self.store.messages.last_seq(&lane.conversation_id));
            let ends = join_all(ends).await;
            for (lane, last_seq) in chunk.iter_mut().zip(ends) {
                lane.last_seq = last_seq.map_err(wire)?;
            }
        }
        Ok(())
    }

    /// From where a device with this cursor is read, or why the cursor cannot be served.
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
