//! The garbage collector for uploads that no message has referenced within a day. It expires the
//! upload, deletes the bytes, then deletes the row. Any number of app servers may run it at once.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bluetick_store::{AttachmentRow, Clock, Result, Store};

use super::Uploads;

/// How long after its announcement an upload may be referenced for the first time.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
const AT_ONCE: usize = 100;
/// After this many failures the rest is left for the next run.
const GIVE_UP_AT: usize = 1000;

pub struct Collector {
    store: Store,
    uploads: Arc<dyn Uploads>,
    clock: Arc<dyn Clock>,
}

impl Collector {
    pub fn new(store: Store, uploads: Arc<dyn Uploads>, clock: Arc<dyn Clock>) -> Collector {
        Collector { store, uploads, clock }
    }

    /// Collects everything that is due. Returns how many uploads were removed.
    pub async fn collect(&self) -> Result<u64> {
        if let Err(error) = self.uploads.sweep().await {
            tracing::warn!(%error, "what uploads that broke off have left could not be removed");
        }
        let before = self.clock.now_ms().saturating_sub(KEPT_FOR.as_millis() as u64);
        let mut collected = 0;
        // Uploads that could not be removed are found again first; the ones after them are removed
        // nevertheless.
        let mut stay = BTreeSet::new();
        loop {
            let limit = AT_ONCE + stay.len();
            let rows = self.store.attachments.unclaimed(before, limit).await?;
            let mut gone = 0;
            for row in &rows {
                if stay.contains(&row.s3_ref) {
                    continue;
                }
                match self.collect_one(row).await {
                    Ok(true) => gone += 1,
                    Ok(false) => drop(stay.insert(row.s3_ref.clone())),
                    Err(error) => {
                        stay.insert(row.s3_ref.clone());
                        metrics::counter!("bluetick_uploads_uncollected_total").increment(1);
                        tracing::warn!(s3_ref = %row.s3_ref, %error, "an upload could not be collected");
                    }
                }
            }
            metrics::counter!("bluetick_uploads_collected_total").increment(gone);
            collected += gone;
            if rows.len() < limit || stay.len() >= GIVE_UP_AT {
                return Ok(collected);
            }
        }
    }

    async fn collect_one(&self, row: &AttachmentRow) -> Result<bool> {
        if !self.store.attachments.collect(&row.s3_ref).await? {
            return Ok(false);
        }
        self.uploads.remove(row).await?;
        self.store.attachments.forget(&row.s3_ref).await?;
        Ok(true)
    }
}
