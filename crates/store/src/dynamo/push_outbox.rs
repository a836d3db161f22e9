//! `push_outbox`: PK user_id, SK conversation_id. A background scan of the table, which is short,
//! finds the due rows; each is then claimed by one conditional write.

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use bluetick_protocol::{DeviceId, UserId};
use futures_util::{StreamExt as _, stream};
use rand::seq::SliceRandom as _;

use super::{
    DynamoStore,
    client::Scan,
    item::{Attributes as _, Item, ItemKey, damaged, n, s},
    row::row_key,
    tables::Table,
    write::{Write, WriteOutcome},
};
use crate::{OwedPush, PushOutbox, Result};

/// Segments of the scan. Each process reads them in a random order, so that two seldom meet at a
/// row.
const PARTS: i32 = 4;
/// Rows in one page.
const PAGE: i32 = 250;
/// Pages that one call reads. The next call continues.
const PAGES: usize = 16;
const CLAIMS_AT_ONCE: usize = 16;

/// How far this process's scan has come: the segments that are left, and the key after which each
/// continues.
#[derive(Default)]
pub(super) struct ScanRound {
    left: Vec<(i32, Option<ItemKey>)>,
}

impl ScanRound {
    fn begin(&mut self) {
        self.left = (0..PARTS).map(|part| (part, None)).collect();
        self.left.shuffle(&mut rand::rng());
    }

    /// Sets where the current segment continues, or ends it.
    fn go_on(&mut self, next: Option<ItemKey>) {
        match (self.left.last_mut(), next) {
            (Some(part), Some(next)) => part.1 = Some(next),
            _ => drop(self.left.pop()),
        }
    }
}

pub(super) fn owed_item(owed: &OwedPush) -> Item {
    let mut item = row_key(&owed.user_id, &owed.conversation_id);
    // A number, because conditions compare it.
    let numbers = [
        ("seq", owed.seq),
        ("clear", owed.clear.into()),
        ("attempts", owed.attempts.into()),
        ("due_at", owed.due_at),
    ];
    item.extend(numbers.map(|(name, number)| (name.to_owned(), n(number))));
    if !owed.devices.is_empty() {
        let devices = owed.devices.iter().map(s).collect();
        item.insert("devices".into(), AttributeValue::L(devices));
    }
    item
}

pub(super) fn read_owed(item: &Item) -> Result<OwedPush> {
    let device = |value: &AttributeValue| {
        let text = value.as_s().map_err(|_| damaged("devices", "one is no text"))?;
        DeviceId::new(text).map_err(|e| damaged("devices", e))
    };
    let devices = match item.get("devices") {
        Some(AttributeValue::L(devices)) => devices.iter().map(device).collect::<Result<_>>()?,
        Some(_) => return Err(damaged("devices", "it is no list")),
        None => Vec::new(),
    };
    Ok(OwedPush {
        user_id: item.user("user_id")?,
        conversation_id: item.conversation()?,
        seq: item.need_number("seq")?,
        clear: item.need_number("clear")? != 0,
        attempts: u32::try_from(item.need_number("attempts")?).map_err(|e| damaged("attempts", e))?,
        devices,
        due_at: item.need_number("due_at")?,
    })
}

/// Adds a condition on the row's seq and `clear`.
fn only_if(write: Write, owed: &OwedPush, condition: &str) -> Write {
    write.only_if(condition).value(":seq", n(owed.seq)).value(":clear", n(owed.clear.into()))
}

impl DynamoStore {
    /// Scans on and claims due rows, up to `limit` or until the scan has read everything once.
    async fn look_for_due(
        &self,
        round: &mut ScanRound,
        (now, until): (u64, u64),
        limit: usize,
        claimed: &mut Vec<OwedPush>,
    ) -> Result<()> {
        let mut begun = false;
        for _ in 0..PAGES {
            let room = limit - claimed.len();
            if room == 0 || (round.left.is_empty() && (begun || !claimed.is_empty())) {
                break;
            }
            if round.left.is_empty() {
                round.begin();
                begun = true;
            }
            let Some((part, start)) = round.left.last().cloned() else { break };
            // Eventually consistent: the claim of a row that is claimed already fails, and a new
            // row is found next time.
            let scan = Scan {
                limit: Some(PAGE),
                segment: Some((part, PARTS)),
                start,
                consistent: false,
                ..Scan::of(Table::PushOutbox)
            };
            let (items, next) = self.dynamo.scan(&scan).await?;
            let mut due: Vec<OwedPush> = Vec::new();
            for item in &items {
                match read_owed(item) {
                    Ok(owed) if owed.due_at <= now => due.push(owed),
                    Ok(_) => {}
                    // The other rows are due all the same.
                    Err(error) => {
                        tracing::error!(%error, "a row of push_outbox is damaged and is skipped; delete or repair it")
                    }
                }
            }
            let next = match due.len() > room {
                true => {
                    due.truncate(room);
                    due.last().map(|owed| row_key(&owed.user_id, &owed.conversation_id))
                }
                false => next,
            };
            round.go_on(next);
            let claims = stream::iter(due).map(|owed| self.claim_one(owed, until));
            let mut answers = claims.buffer_unordered(CLAIMS_AT_ONCE);
            let mut failed = None;
            while let Some(answer) = answers.next().await {
                match answer {
                    Ok(owed) => claimed.extend(owed),
                    Err(error) => failed = Some(error),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Claims a row if it is unchanged. If the answer is lost, the row stays claimed until `until`.
    pub(super) async fn claim_one(&self, owed: OwedPush, until: u64) -> Result<Option<OwedPush>> {
        let key = row_key(&owed.user_id, &owed.conversation_id);
        let write = Write::update(Table::PushOutbox, key, "SET #due_at = :until")
            .value(":until", n(until))
            .value(":due_at", n(owed.due_at));
        let write = only_if(write, &owed, "#seq = :seq AND #clear = :clear AND #due_at = :due_at");
        Ok(match self.dynamo.write(&write).await? {
            WriteOutcome::Done(item) => Some(read_owed(&item)?),
            WriteOutcome::Refused(_) => None,
        })
    }

    /// Deletes all rows of a user.
    pub(super) async fn forget_owed_to(&self, user: &UserId) -> Result<()> {
        let items = self.dynamo.query_all(Table::PushOutbox, s(user)).await?;
        let keys = items.iter().map(|item| Ok(row_key(user, &item.conversation()?)));
        self.delete_items(Table::PushOutbox, keys.collect::<Result<_>>()?).await
    }
}

#[async_trait]
impl PushOutbox for DynamoStore {
    async fn owe(&self, owed: OwedPush) -> Result<()> {
        self.writable()?;
        let write = only_if(
            Write::put(Table::PushOutbox, owed_item(&owed)),
            &owed,
            "attribute_not_exists(#seq) OR #seq < :seq OR (#seq = :seq AND #clear < :clear)",
        );
        self.dynamo.write(&write).await.map(|_| ())
    }

    async fn claim(&self, now: u64, until: u64, limit: usize) -> Result<Vec<OwedPush>> {
        self.writable()?;
        let mut claimed = Vec::new();
        // One scan per process: two would read the same rows.
        let mut round = self.outbox_round.lock().await;
        match self.look_for_due(&mut round, (now, until), limit, &mut claimed).await {
            Err(error) if claimed.is_empty() => Err(error),
            Err(error) => {
                tracing::warn!(%error, "some due notifications could not be claimed; the next scan finds them");
                Ok(claimed)
            }
            Ok(()) => Ok(claimed),
        }
    }

    async fn postpone(&self, taken: &OwedPush, later: &OwedPush) -> Result<bool> {
        self.writable()?;
        let write = Write::put(Table::PushOutbox, owed_item(later));
        let write = only_if(write, taken, "#seq = :seq AND #clear = :clear AND #attempts <= :attempts")
            .value(":attempts", n(u64::from(taken.attempts)));
        Ok(matches!(self.dynamo.write(&write).await?, WriteOutcome::Done(_)))
    }

    async fn paid(&self, owed: &OwedPush) -> Result<()> {
        self.writable()?;
        let write = Write::delete(Table::PushOutbox, row_key(&owed.user_id, &owed.conversation_id));
        let condition = "#seq < :seq OR (#seq = :seq AND (#clear < :clear OR (#clear = :clear AND #attempts <= :attempts)))";
        let write = only_if(write, owed, condition).value(":attempts", n(u64::from(owed.attempts)));
        self.dynamo.write(&write).await.map(|_| ())
    }

    async fn owed_to(&self, user: &UserId) -> Result<Vec<OwedPush>> {
        self.dynamo.query_all(Table::PushOutbox, s(user)).await?.iter().map(read_owed).collect()
    }
}
