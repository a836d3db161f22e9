//! What a connecting device must get (R6): its user's pending rows in full, and by its cursor every conversation that
//! was active since, whatever the rows say. Without a cursor that can be served it gets what no device of the user has
//! acked: a session that died with its process has left no row for it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Head, MessageId, UserId, limits};
use bluetick_store::ActiveConversation;
use futures_util::future::join_all;

use crate::{AppResult, ChatService, Plan, PlanApi, PlanLane, PlanRequest, rules::rule, wire};

/// Lanes whose end is looked up side by side.
const LANES_AT_ONCE: usize = 64;
/// Conversations that are looked at in one step for messages that no device has acked.
const UNDELIVERED_PAGE: usize = 512;

type Lanes = BTreeMap<ConversationId, PlanLane>;

fn lane<'a>(lanes: &'a mut Lanes, id: &ConversationId) -> &'a mut PlanLane {
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
            // The clocks of app servers differ: an id may be minted from now on and be older than now.
            since: MessageId::at(now.saturating_sub(self.config.resume_overlap.as_millis() as u64)),
            reset: None,
            more: None,
        };
        let mut lanes = Lanes::new();
        if undelivered_after.is_some() {
            plan.more = self.plan_undelivered(&user, undelivered_after, &mut lanes).await?;
            self.find_ends(&mut lanes).await?;
            plan.lanes = lanes.into_values().collect();
            return Ok(plan);
        }
        for row in self.store.pending.pending_of(&user).await.map_err(wire)? {
            lane(&mut lanes, &row.conversation_id).row = Some(row.first_undelivered_seq);
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
                        lane(&mut lanes, &conversation.conversation_id).resume = true;
                    }
                }
            }
        }
        if heads && rule!(self.rules, R6) {
            let newest = self.store.conversations.active_since(&user, 0, limits::HEADS_MAX);
            let head =
                |c: ActiveConversation| Head { conversation_id: c.conversation_id, last_seq: c.last_seq };
            plan.heads = newest.await.map_err(wire)?.into_iter().map(head).collect();
        }
        if heads && (cursor.is_none() || plan.reset.is_some()) {
            plan.more = self.plan_undelivered(&user, None, &mut lanes).await?;
        }
        self.find_ends(&mut lanes).await?;
        plan.lanes = lanes.into_values().collect();
        Ok(plan)
    }
}

impl ChatService {
    /// Adds the conversations behind one of them in which the peer has written something that no device has acked.
    /// Returns where to go on if they are too many for one plan.
    async fn plan_undelivered(
        &self,
        user: &UserId,
        mut after: Option<ConversationId>,
        lanes: &mut Lanes,
    ) -> AppResult<Option<ConversationId>> {
        if !rule!(self.rules, R6Undelivered) {
            return Ok(None);
        }
        // Conversations count when they are looked at, not when they are found: one answer must not take as long as
        // all conversations of a user who has very many.
        let (mut looked_at, most) = (0, self.config.resume_max_conversations.max(1));
        loop {
            let limit = UNDELIVERED_PAGE.min(most);
            let page = self.store.conversations.undelivered(user, after.as_ref(), limit);
            let page = page.await.map_err(wire)?;
            looked_at += limit;
            for id in &page.conversations {
                lane(lanes, id);
            }
            after = page.next;
            if after.is_none() || looked_at >= most {
                return Ok(after);
            }
        }
    }

    /// Looks up how far each conversation goes.
    async fn find_ends(&self, lanes: &mut Lanes) -> AppResult<()> {
        let mut all: Vec<&mut PlanLane> = lanes.values_mut().collect();
        for some in all.chunks_mut(LANES_AT_ONCE) {
            let ends = some.iter().map(|lane| self.store.messages.last_seq(&lane.conversation_id));
            let ends = join_all(ends).await;
            for (lane, last_seq) in some.iter_mut().zip(ends) {
                lane.last_seq = last_seq.map_err(wire)?;
            }
        }
        Ok(())
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
