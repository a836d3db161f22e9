//! What operators ask of the store: health, backup, erasure, checkpoint, shutdown.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, UserId};

use super::{Embedded, committer::WriteOp, engine::Space, receipts::side_of};
use crate::{BackupSink, Health, Maintenance, PageLimit, Result};

#[async_trait]
impl Maintenance for Embedded {
    async fn health(&self) -> Health {
        Health {
            backend: "embedded",
            degraded: None,
            refusing: self.shared.refusing(),
            free_bytes: self.shared.free_bytes(),
            log_bytes: self.shared.log_bytes.load(Ordering::Relaxed),
            unflushed_messages: self.shared.unflushed.load(Ordering::Relaxed),
        }
    }

    async fn backup(&self, sink: BackupSink<'_>) -> Result<u64> {
        self.write_backup(sink).await
    }

    async fn erase_member(&self, user: &UserId, conversation: &ConversationId) -> Result<u64> {
        let side = side_of(conversation, user)?;
        let id = conversation.clone();
        let erased = self
            .blocking(move |shared| {
                let (mut from, mut erased) = (1, 0);
                loop {
                    let page = shared.read_from(&id, from, PageLimit::messages(1000))?;
                    let Some(last) = page.last() else {
                        return Ok(erased);
                    };
                    from = last.message.seq + 1;
                    erased +=
                        page.iter().filter(|e| e.message.from == side && !e.message.void).count() as u64;
                }
            })
            .await?;
        let id = conversation.clone();
        self.ask(|reply| WriteOp::Erase { id, side, reply }).await?;
        Ok(erased)
    }

    async fn erase_user(&self, user: &UserId) -> Result<()> {
        let user = user.clone();
        self.ask(|reply| WriteOp::EraseUser { user, reply }).await?;
        // The checkpoint lets the log segments with the erased bytes go; compactions remove them
        // from the engine.
        self.ask(WriteOp::Checkpoint).await.map(drop)
    }

    async fn memberships(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        let user = user.clone();
        self.blocking(move |shared| {
            let listed = shared.per_conversation(Space::Members, &user, |conv, side| {
                Ok(conv.lists(side).then(|| conv.id.clone()))
            })?;
            Ok(listed.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
        })
        .await
    }

    async fn checkpoint(&self) -> Result<()> {
        self.ask(WriteOp::Checkpoint).await.map(drop)
    }

    async fn close(&self) -> Result<()> {
        self.shut().await
    }
}
