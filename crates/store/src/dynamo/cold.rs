//! `cold_runs`: PK conversation_id, SK last_seq. One transaction records a run and raises
//! `cold_up_to` in both members' `conversations` rows. It fails if the rows have changed since they
//! were read.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Seq, Side};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    DynamoStore,
    client::{PartitionQuery, Scan},
    item::{Attributes as _, Item, ItemKey, key, n, s},
    messages::{message_key, read_message},
    row::{CountedRow, row_key},
    tables::Table,
    write::{Transacted, Write, WriteOutcome},
};
use crate::{
    ColdCandidate, ColdRun, ColdRuns, EnlistPlace, Message, MessageStatus as _, Messages as _, Movable,
    PendingDeliveries as _, Result,
};

/// Hot rows that are dropped concurrently.
const DROPS_AT_ONCE: usize = 16;

fn run_key(run: &ColdRun) -> ItemKey {
    key([("conversation_id", s(&run.conversation_id)), ("last_seq", n(run.last_seq))])
}

fn run_item(run: &ColdRun) -> Item {
    let mut item = run_key(run);
    item.extend(key([
        ("first_seq", n(run.first_seq)),
        ("object", s(&run.object)),
        ("bytes", n(run.bytes)),
        ("index_bytes", n(run.index_bytes)),
        ("first_ts", n(run.first_ts)),
        ("last_ts", n(run.last_ts)),
        ("least_id", n(run.least_id.0)),
        ("greatest_id", n(run.greatest_id.0)),
    ]));
    item
}

pub(super) fn read_run(item: &Item) -> Result<ColdRun> {
    Ok(ColdRun {
        conversation_id: item.conversation()?,
        first_seq: item.need_number("first_seq")?,
        last_seq: item.need_number("last_seq")?,
        object: item.need_text("object")?.to_owned(),
        bytes: item.need_number("bytes")?,
        index_bytes: item.need_number("index_bytes")?,
        first_ts: item.need_number("first_ts")?,
        last_ts: item.need_number("last_ts")?,
        least_id: item.message_id("least_id")?,
        greatest_id: item.message_id("greatest_id")?,
    })
}

/// Whether a row that was in the way is this very run: an answer got lost, or somebody else packed
/// the same messages.
fn is_same(item: Option<&Item>, run: &ColdRun) -> bool {
    item.is_some_and(|item| item.text("object") == Some(run.object.as_str()))
}

/// Raises the border in a member's row, if the row has counted all that is in the run and is as it
/// was seen.
fn raise_border(run: &ColdRun, side: Side, seen: &Movable) -> Write {
    let id = &run.conversation_id;
    let mut condition = "#counted_seq >= :last".to_owned();
    let mut values = vec![(":last", n(run.last_seq)), (":one", n(1))];
    let as_seen = [
        ("erased_up_to", ":erased", seen.erased[side.index()]),
        ("cold_up_to", ":border", seen.from.saturating_sub(1)),
    ];
    for (name, placeholder, value) in as_seen {
        if value == 0 {
            condition.push_str(&format!(" AND attribute_not_exists(#{name})"));
        } else {
            condition.push_str(&format!(" AND #{name} = {placeholder}"));
            values.push((placeholder, n(value)));
        }
    }
    let update = "SET #cold_up_to = :last, #version = #version + :one";
    let write = Write::update(Table::Conversations, row_key(&id.member(side), id), update).only_if(condition);
    values.into_iter().fold(write, |write, (name, value)| write.value(name, value))
}

impl DynamoStore {
    async fn border(&self, conversation: &ConversationId) -> Result<Seq> {
        Ok(self.last_run(conversation).await?.map_or(0, |run| run.last_seq))
    }

    /// A member's row with all messages but the last in it. What a row has not counted must stay
    /// hot: it is counted from there, and a seq that is missing there is taken for a hole. A member
    /// without a row gets one, which may show nothing.
    async fn counted_row(&self, conversation: &ConversationId, side: Side, last: Seq) -> Result<CountedRow> {
        let row = self.row(conversation, side).await?;
        match row.counted_seq + 1 < last {
            true => self.bring_up(row, None).await,
            false => Ok(row),
        }
    }
}

#[async_trait]
impl ColdRuns for DynamoStore {
    async fn runs_from(&self, conversation: &ConversationId, seq: Seq, limit: usize) -> Result<Vec<ColdRun>> {
        let mut query = PartitionQuery {
            range: Some((">=", n(seq))),
            ..PartitionQuery::of(Table::ColdRuns, s(conversation))
        };
        let mut runs = Vec::new();
        while runs.len() < limit {
            query.limit = Some((limit - runs.len()).min(1_000) as i32);
            let (items, next) = self.dynamo.query(&query).await?;
            for item in &items {
                runs.push(read_run(item)?);
            }
            match next {
                Some(next) => query.start = Some(next),
                None => break,
            }
        }
        Ok(runs)
    }

    async fn last_run(&self, conversation: &ConversationId) -> Result<Option<ColdRun>> {
        let query = PartitionQuery {
            backwards: true,
            limit: Some(1),
            ..PartitionQuery::of(Table::ColdRuns, s(conversation))
        };
        let (items, _) = self.dynamo.query(&query).await?;
        items.first().map(read_run).transpose()
    }

    async fn candidates(
        &self,
        shard: u16,
        after: Option<&ColdCandidate>,
        now: u64,
        limit: usize,
    ) -> Result<Vec<ColdCandidate>> {
        self.due(shard, after, now, limit).await
    }

    async fn enlist(&self, now: u64, from: EnlistPlace) -> Result<(u64, Option<EnlistPlace>)> {
        self.writable()?;
        self.list_page(now, from).await
    }

    async fn movable(&self, conversation: &ConversationId) -> Result<Option<Movable>> {
        let last_seq = self.last_seq(conversation).await?;
        if last_seq == 0 {
            return Ok(None);
        }
        let [low, high] = Side::BOTH.map(|side| conversation.member(side));
        let (low_row, high_row, last_run, low_status, high_status, low_pending, high_pending) = tokio::try_join!(
            self.counted_row(conversation, Side::Low, last_seq),
            self.counted_row(conversation, Side::High, last_seq),
            self.last_run(conversation),
            self.status(&low, conversation),
            self.status(&high, conversation),
            self.pending_row(&low, conversation),
            self.pending_row(&high, conversation),
        )?;
        let counted = low_row.counted_seq.min(high_row.counted_seq);
        Ok(Some(Movable {
            from: last_run.as_ref().map_or(0, |run| run.last_seq) + 1,
            up_to: counted.min(last_seq - 1),
            delivered: [low_status.last_delivered_seq, high_status.last_delivered_seq],
            pending: [low_pending, high_pending],
            last_run,
            erased: [low_row.erased_up_to, high_row.erased_up_to],
        }))
    }

    async fn record(&self, run: &ColdRun, replaces: Option<&ColdRun>, seen: &Movable) -> Result<bool> {
        self.writable()?;
        let begins = replaces.map_or(seen.from, |old| old.first_seq);
        let follows = replaces.is_none_or(|old| seen.last_run.as_ref() == Some(old));
        if !follows || run.first_seq != begins || run.last_seq < seen.from || run.last_seq > seen.up_to {
            return Ok(false);
        }
        let mut writes = vec![
            Write::put(Table::ColdRuns, run_item(run)).only_if("attribute_not_exists(#last_seq)"),
            raise_border(run, Side::Low, seen),
            raise_border(run, Side::High, seen),
        ];
        if let Some(last) = &seen.last_run {
            let as_it_was = "#object = :object";
            let write = match replaces {
                Some(_) => Write::delete(Table::ColdRuns, run_key(last)).only_if(as_it_was),
                None => Write::check(Table::ColdRuns, run_key(last), as_it_was),
            };
            writes.push(write.value(":object", s(&last.object)));
        }
        Ok(match self.dynamo.transact(&writes).await? {
            Transacted::Done => true,
            Transacted::Refused(refused) => {
                is_same(refused.into_iter().next().flatten().flatten().as_ref(), run)
            }
        })
    }

    async fn swap(&self, old: &ColdRun, new: &ColdRun) -> Result<bool> {
        self.writable()?;
        if (&old.conversation_id, old.last_seq) != (&new.conversation_id, new.last_seq) {
            return Ok(false);
        }
        let write = Write::put(Table::ColdRuns, run_item(new));
        let write = write.only_if("#object = :object").value(":object", s(&old.object));
        Ok(match self.dynamo.write(&write).await? {
            WriteOutcome::Done(_) => true,
            WriteOutcome::Refused(item) => is_same(item.as_ref(), new),
        })
    }

    async fn leftovers(&self, conversation: &ConversationId, limit: usize) -> Result<Vec<Arc<Message>>> {
        let border = self.border(conversation).await?;
        if border == 0 || limit == 0 {
            return Ok(Vec::new());
        }
        let query = PartitionQuery {
            range: Some(("<=", n(border))),
            limit: Some(limit.min(1_000) as i32),
            ..PartitionQuery::of(Table::Messages, s(conversation))
        };
        let (items, _) = self.dynamo.query(&query).await?;
        items.iter().map(|item| read_message(item).map(|stored| stored.message)).collect()
    }

    async fn drop_hot(&self, messages: &[Arc<Message>]) -> Result<()> {
        self.writable()?;
        let mut borders: BTreeMap<&ConversationId, Seq> = BTreeMap::new();
        for message in messages {
            if !borders.contains_key(&message.conversation_id) {
                let border = self.border(&message.conversation_id).await?;
                borders.insert(&message.conversation_id, border);
            }
        }
        let mut drops = Vec::new();
        for message in messages {
            if borders.get(&message.conversation_id).is_some_and(|border| message.seq <= *border) {
                let key = message_key(&message.conversation_id, message.seq);
                let write = Write::delete(Table::Messages, key).only_if("#message_id = :id");
                drops.push(write.value(":id", n(message.message_id.0)));
            }
        }
        stream::iter(drops)
            .map(|write| async move { self.dynamo.write(&write).await.map(|_| ()) })
            .buffer_unordered(DROPS_AT_ONCE)
            .try_collect::<Vec<()>>()
            .await
            .map(drop)
    }

    async fn looked_at(&self, candidate: &ColdCandidate, next: Option<u64>) -> Result<()> {
        self.writable()?;
        self.list_again(candidate, next).await
    }

    async fn lease(&self, shard: u16, holder: &str, now: u64, until: u64) -> Result<bool> {
        self.writable()?;
        self.lease_shard(shard, holder, now, until).await
    }

    async fn all_runs(&self, after: Option<&ColdRun>, limit: usize) -> Result<Vec<ColdRun>> {
        let mut scan = Scan {
            limit: Some(limit.clamp(1, 1_000) as i32),
            start: after.map(run_key),
            ..Scan::of(Table::ColdRuns)
        };
        loop {
            let (items, next) = self.dynamo.scan(&scan).await?;
            if !items.is_empty() || next.is_none() {
                return items.iter().map(read_run).collect();
            }
            scan.start = next;
        }
    }
}
