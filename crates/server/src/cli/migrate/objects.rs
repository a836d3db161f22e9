//! The objects of a store: where they are, and how the bytes of attachments get to the bucket of
//! the new servers. Cold messages are migrated as rows and become cold again.

use std::path::Path;

use bluetick_store::{AttachmentRow, EmbeddedSource, Objects, Result, StoreError, UploadState};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};

use super::{Failure, Outcome, failed};
use crate::{
    attachments::key_of,
    cli::{output, progress::Progress},
    config::Config,
};

/// Attachments that are copied, or looked at, at once.
const AT_ONCE: usize = 8;
const PAGE: usize = 500;

/// The objects of both sides.
pub struct Both {
    pub from: Option<Objects>,
    pub to: Option<Objects>,
}

impl Both {
    /// The objects of the old store: in the given directory, in its own directory, or in the
    /// bucket.
    pub fn of(config: &Config, data: &Path, named: Option<&Path>) -> Outcome<Both> {
        let own = data.join("objects");
        let dir = match named {
            Some(dir) if !dir.is_dir() => {
                return Err(Failure::Failed(format!("there is no directory {}", dir.display())));
            }
            Some(dir) => Some(dir),
            None => own.is_dir().then_some(own.as_path()),
        };
        let unusable = failed("the store's objects cannot be used");
        let to = config.bucket().map_err(&unusable)?;
        let from = match dir {
            Some(dir) => Some(Objects::directory(dir).map_err(unusable)?),
            None => to.clone(),
        };
        Ok(Both { from, to })
    }

    fn both(&self) -> Outcome<(&Objects, &Objects)> {
        let none = |what: &str| Failure::Failed(format!("the store has attachments, and {what}"));
        let from = self.from.as_ref().ok_or_else(|| {
            none("there is no directory objects in it; name the one that has its objects with --from-objects")
        })?;
        let to = self.to.as_ref();
        Ok((from, to.ok_or_else(|| none("no bucket is set up for the new servers; set objects.s3_bucket"))?))
    }

    /// Nothing is begun that cannot be ended.
    pub async fn check(&self, source: &EmbeddedSource) -> Outcome {
        let any = source.attachments(None, 1).await.map_err(failed("the store cannot be read"))?;
        match any.is_empty() {
            true => Ok(()),
            false => self.both().map(drop),
        }
    }

    /// Copies the bytes that are not there yet. What is lost in the store is named, and stays lost.
    pub async fn copy(&self, source: &EmbeddedSource) -> Outcome {
        if source.attachments(None, 1).await.map_err(failed("the store cannot be read"))?.is_empty() {
            return Ok(());
        }
        let (from, to) = self.both()?;
        let progress = Progress::start("attachments copied", 0);
        let copied = uploaded(source).map(|row| async {
            let (row, progress) = (row?, progress.clone());
            let key = key_of(&row.s3_ref);
            let lost = match to.info(&key).await?.is_some_and(|there| there.bytes == row.bytes) {
                true => None,
                false => match to.copy_from(from, &key, &row.sha256).await {
                    Err(StoreError::Damaged { why, .. }) => Some(why),
                    copied => copied.map(|()| None)?,
                },
            };
            progress.step(1);
            Ok::<_, StoreError>(lost.map(|why| format!("the attachment {key} cannot be copied: {why}\n")))
        });
        let lost: Vec<Option<String>> = copied
            .buffer_unordered(AT_ONCE)
            .try_filter(|lost| std::future::ready(lost.is_some()))
            .try_collect()
            .await
            .map_err(failed("not every attachment was copied; run the same command again to go on"))?;
        drop(progress);
        Ok(output::print(&lost.into_iter().flatten().collect::<String>())?)
    }

    /// The keys of those that are in the store's objects and not in the bucket.
    pub async fn missing(&self, source: &EmbeddedSource) -> Outcome<Vec<String>> {
        let unread = failed("the attachments cannot be compared; run the same command again");
        if source.attachments(None, 1).await.map_err(&unread)?.is_empty() {
            return Ok(Vec::new());
        }
        let (from, to) = self.both()?;
        let looked_at = uploaded(source).map(|row| async {
            let row = row?;
            let key = key_of(&row.s3_ref);
            let has = async |objects: &Objects| {
                Ok::<_, StoreError>(objects.info(&key).await?.is_some_and(|there| there.bytes == row.bytes))
            };
            Ok::<_, StoreError>((!has(to).await? && has(from).await?).then(|| key.clone()))
        });
        let missing: Vec<Option<String>> =
            looked_at.buffer_unordered(AT_ONCE).try_collect().await.map_err(unread)?;
        Ok(missing.into_iter().flatten().collect())
    }
}

/// The attachments of a store whose bytes are there.
fn uploaded(source: &EmbeddedSource) -> impl Stream<Item = Result<AttachmentRow>> {
    let pages = stream::try_unfold(None, async |after| {
        let page = source.attachments(after.as_ref(), PAGE).await?;
        Ok::<_, StoreError>(page.last().map(|row| row.s3_ref.clone()).map(|last| (page, Some(last))))
    });
    let rows = pages.map_ok(|page| stream::iter(page.into_iter().map(Ok))).try_flatten();
    rows.try_filter(|row| std::future::ready(row.state == UploadState::Uploaded))
}
