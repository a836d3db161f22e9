//! Collecting what was announced and no message has referred to within a day: first no message may refer to it any more, then
//! its bytes go, then its row. Any app server may do it, and several at once.

use std::{sync::Arc, time::Duration};

use bluetick_store::{AttachmentRow, Clock, Result, Store};

use super::Uploads;

/// How long after it was announced a message may refer to an upload for the first time.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
const AT_ONCE: usize = 100;

pub struct Collector {
    store: Store,
    uploads: Arc<dyn Uploads>,
    clock: Arc<dyn Clock>,
}

impl Collector {
    pub fn new(store: Store, uploads: Arc<dyn Uploads>, clock: Arc<dyn Clock>) -> Collector {
        Collector { store, uploads, clock }
    }

    /// Collects what there is to collect now. Returns how many uploads went.
    pub async fn collect(&self) -> Result<u64> {
        self.uploads.sweep().await?;
        let before = self.clock.now_ms().saturating_sub(KEPT_FOR.as_millis() as u64);
        let mut collected = 0;
        loop {
            let rows = self.store.attachments.unclaimed(before, AT_ONCE).await?;
            let mut gone = 0;
            for row in &rows {
                match self.collect_one(row).await {
                    Ok(true) => gone += 1,
                    Ok(false) => {}
                    Err(error) => {
                        metrics::counter!("bluetick_uploads_uncollected_total").increment(1);
                        tracing::warn!(s3_ref = %row.s3_ref, %error, "an upload could not be collected");
                    }
                }
            }
            metrics::counter!("bluetick_uploads_collected_total").increment(gone);
            collected += gone;
            // What stays would be found again, first of all.
            if rows.len() < AT_ONCE || gone == 0 {
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
