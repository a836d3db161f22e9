//! `attachments`: announced uploads and the conversations that refer to them, as small rows that
//! change together.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, S3Ref, UserId};

use super::{
    Embedded,
    bytes::{ByteReader, FORMAT, Malformed, check_format},
    rows::{RowSpace, RowTransaction, key_parts, row_key, user_prefix},
};
use crate::{
    Announced, AttachmentRow, Attachments, Result, StoreError, UploadQuota, UploadState, UploadUsage,
};

/// The highest time in an [`S3Ref`].
const TIME_MAX: u64 = 0xffff_ffff_ffff;

/// Stored as JSON, so that fields can be added.
pub(super) fn encode(row: &AttachmentRow) -> Result<Vec<u8>> {
    let mut out = vec![FORMAT];
    serde_json::to_writer(&mut out, row)
        .map_err(|e| StoreError::Unsupported(format!("an attachment that cannot be written as JSON: {e}")))?;
    Ok(out)
}

pub(super) fn decode(value: &[u8]) -> Result<AttachmentRow, Malformed> {
    let r = &mut ByteReader(value);
    check_format(r)?;
    serde_json::from_slice(r.0).map_err(|_| Malformed("a stored attachment does not parse"))
}

fn encode_usage(usage: &UploadUsage) -> Result<Vec<u8>> {
    let mut out = vec![FORMAT];
    serde_json::to_writer(&mut out, usage)
        .map_err(|e| StoreError::Unsupported(format!("upload usage that cannot be written as JSON: {e}")))?;
    Ok(out)
}

fn decode_usage(value: &[u8]) -> Result<UploadUsage, Malformed> {
    let r = &mut ByteReader(value);
    check_format(r)?;
    serde_json::from_slice(r.0).map_err(|_| Malformed("a stored upload usage does not parse"))
}

fn owner_key(row: &AttachmentRow) -> Vec<u8> {
    row_key(row.owner.as_str(), row.s3_ref.as_str())
}

impl RowTransaction<'_> {
    fn attachment(&self, s3_ref: &S3Ref) -> Result<Option<AttachmentRow>> {
        let value = self.get(RowSpace::Attachments, s3_ref.as_str().as_bytes())?;
        Ok(value.map(|value| decode(&value)).transpose()?)
    }

    /// Writes the row, and the index entry of an unclaimed one.
    fn put_attachment(&mut self, row: &AttachmentRow) -> Result<()> {
        let key = row.s3_ref.as_str().as_bytes();
        self.put(RowSpace::Attachments, key, encode(row)?);
        match row.claimed {
            true => self.forget(RowSpace::UnclaimedAttachments, key.to_vec())?,
            false => self.put(RowSpace::UnclaimedAttachments, key, vec![FORMAT]),
        }
        Ok(())
    }

    /// What a user is charged for.
    fn upload_usage(&self, user: &UserId) -> Result<UploadUsage> {
        match self.kept_usage(user)? {
            Some(usage) => Ok(usage),
            None => self.derived_usage(user),
        }
    }

    fn kept_usage(&self, user: &UserId) -> Result<Option<UploadUsage>> {
        let value = self.get(RowSpace::UploadUsage, user.as_str().as_bytes())?;
        Ok(value.map(|value| decode_usage(&value)).transpose()?)
    }

    /// Sums up every row of a user: older versions stored no usage. The next write stores the
    /// result, so it is derived once.
    fn derived_usage(&self, user: &UserId) -> Result<UploadUsage> {
        let mut rows = Vec::new();
        for (key, _) in self.under(RowSpace::OwnedAttachments, &user_prefix(user.as_str()))? {
            let (_, s3_ref) = key_parts(&key)?;
            let value = self.get(RowSpace::Attachments, s3_ref.as_bytes())?;
            rows.extend(value.map(|value| decode(&value)).transpose()?);
        }
        Ok(UploadUsage::of(&rows))
    }

    fn put_usage(&mut self, user: &UserId, usage: Option<UploadUsage>) -> Result<()> {
        let key = user.as_str().as_bytes();
        match usage {
            Some(usage) => {
                self.put(RowSpace::UploadUsage, key, encode_usage(&usage)?);
                Ok(())
            }
            None => self.forget(RowSpace::UploadUsage, key.to_vec()),
        }
    }
}

#[async_trait]
impl Attachments for Embedded {
    async fn announce(&self, row: AttachmentRow, quota: &UploadQuota) -> Result<Announced> {
        let quota = *quota;
        self.transact(move |tx| {
            if row.charged_bytes() > 0 {
                let kept = tx.kept_usage(&row.owner)?;
                let usage = match kept {
                    Some(usage) => usage,
                    None => tx.derived_usage(&row.owner)?,
                };
                match usage.charge(&row, &quota) {
                    Ok(charged) => tx.put_usage(&row.owner, Some(charged))?,
                    Err(over) => {
                        // Store it: a user over the quota may announce again and again, and this is
                        // the committer's thread.
                        if kept.is_none() {
                            tx.put_usage(&row.owner, Some(usage))?;
                        }
                        return Ok(Announced::OverQuota(over));
                    }
                }
            }
            tx.put(RowSpace::OwnedAttachments, owner_key(&row), vec![FORMAT]);
            tx.put_attachment(&row)?;
            Ok(Announced::Done)
        })
        .await
    }

    async fn upload_usage(&self, user: &UserId) -> Result<UploadUsage> {
        let user = user.clone();
        self.transact(move |tx| tx.upload_usage(&user)).await
    }

    async fn attachment(&self, s3_ref: &S3Ref) -> Result<Option<AttachmentRow>> {
        let key = s3_ref.as_str().as_bytes();
        let value = self.shared.rows.get(&self.shared.engine, RowSpace::Attachments, key)?;
        Ok(value.map(|value| decode(&value)).transpose()?)
    }

    async fn uploaded(&self, s3_ref: &S3Ref) -> Result<bool> {
        let s3_ref = s3_ref.clone();
        self.transact(move |tx| {
            let row = tx.attachment(&s3_ref)?.filter(|row| row.state == UploadState::Expected);
            let Some(row) = row else { return Ok(false) };
            tx.put_attachment(&AttachmentRow { state: UploadState::Uploaded, ..row })?;
            Ok(true)
        })
        .await
    }

    async fn claim(&self, s3_ref: &S3Ref, conversation: &ConversationId) -> Result<bool> {
        let (s3_ref, key) = (s3_ref.clone(), row_key(s3_ref.as_str(), conversation.as_str()));
        self.transact(move |tx| {
            let row = tx.attachment(&s3_ref)?.filter(|row| row.state == UploadState::Uploaded);
            let Some(row) = row else { return Ok(false) };
            if !row.claimed {
                tx.put_attachment(&AttachmentRow { claimed: true, ..row })?;
            }
            if tx.get(RowSpace::AttachmentClaims, &key)?.is_none() {
                tx.put(RowSpace::AttachmentClaims, key, vec![FORMAT]);
            }
            Ok(true)
        })
        .await
    }

    async fn is_claimed_by(&self, s3_ref: &S3Ref, conversation: &ConversationId) -> Result<bool> {
        let key = row_key(s3_ref.as_str(), conversation.as_str());
        Ok(self.shared.rows.get(&self.shared.engine, RowSpace::AttachmentClaims, &key)?.is_some())
    }

    async fn owned_by(&self, user: &UserId) -> Result<Vec<S3Ref>> {
        let prefix = user_prefix(user.as_str());
        self.blocking(move |shared| {
            let rows = shared.rows.under(&shared.engine, RowSpace::OwnedAttachments, &prefix)?;
            let mut owned = Vec::with_capacity(rows.len());
            for (key, _) in &rows {
                let (_, s3_ref) = key_parts(key)?;
                owned.push(S3Ref::new(s3_ref).map_err(|_| Malformed("not the name of an attachment"))?);
            }
            Ok(owned)
        })
        .await
    }

    async fn unclaimed(&self, before_ms: u64, limit: usize) -> Result<Vec<AttachmentRow>> {
        self.blocking(move |shared| {
            // A reference begins with its time.
            let end = format!("{:012x}", before_ms.min(TIME_MAX)).into_bytes();
            let space = RowSpace::UnclaimedAttachments;
            let mut rows = Vec::new();
            for (key, _) in shared.rows.first(&shared.engine, space, &(Vec::new()..end), limit)? {
                let value = shared.rows.get(&shared.engine, RowSpace::Attachments, &key)?;
                rows.extend(value.map(|value| decode(&value)).transpose()?.filter(|row| !row.claimed));
            }
            Ok(rows)
        })
        .await
    }

    async fn collect(&self, s3_ref: &S3Ref) -> Result<bool> {
        let s3_ref = s3_ref.clone();
        self.transact(move |tx| {
            let Some(row) = tx.attachment(&s3_ref)?.filter(|row| !row.claimed) else { return Ok(false) };
            if row.state != UploadState::Collecting {
                tx.put_attachment(&AttachmentRow { state: UploadState::Collecting, ..row })?;
            }
            Ok(true)
        })
        .await
    }

    async fn forget(&self, s3_ref: &S3Ref) -> Result<()> {
        let s3_ref = s3_ref.clone();
        self.transact(move |tx| {
            if let Some(row) = tx.attachment(&s3_ref)? {
                if row.charged_bytes() > 0 {
                    // Before the row goes: without a stored usage, it is derived from the rows.
                    let left = tx.upload_usage(&row.owner)?.give_back(&row);
                    tx.put_usage(&row.owner, left)?;
                }
                tx.forget(RowSpace::OwnedAttachments, owner_key(&row))?;
            }
            let key = s3_ref.as_str().as_bytes();
            tx.forget(RowSpace::Attachments, key.to_vec())?;
            tx.forget(RowSpace::UnclaimedAttachments, key.to_vec())?;
            tx.forget_under(RowSpace::AttachmentClaims, &user_prefix(s3_ref.as_str()))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{EmbeddedConfig, ManualClock, OverQuota};

    fn row(n: u8) -> AttachmentRow {
        AttachmentRow {
            s3_ref: S3Ref::mint(1_760_000_000_000 + u64::from(n), [n; 10]),
            owner: UserId::new("alice").unwrap(),
            name: "a".into(),
            mime: "image/png".into(),
            bytes: 10_000,
            sha256: String::new(),
            upload_id: None,
            state: UploadState::Expected,
            claimed: false,
        }
    }

    /// In a directory of an older version, the first change derives the usage from the rows.
    #[tokio::test]
    async fn usage_that_was_never_counted_is_derived_from_the_rows() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_760_000_000_000));
        let store = Embedded::open(EmbeddedConfig::new(dir.path()), clock).unwrap();
        let quota = UploadQuota { bytes_per_day: 0, bytes_total: 25_000 };
        let forget_count = || store.transact(|tx| tx.forget(RowSpace::UploadUsage, b"alice".to_vec()));
        for n in 0..2 {
            assert_eq!(store.announce(row(n), &quota).await.unwrap(), Announced::Done);
        }
        forget_count().await.unwrap();
        let kept = || store.transact(|tx| tx.kept_usage(&row(0).owner));
        assert_eq!(kept().await.unwrap(), None);
        assert_eq!(store.announce(row(2), &quota).await.unwrap(), Announced::OverQuota(OverQuota::Total));
        let derived = kept().await.unwrap().expect("a refusal keeps it: the next one derives nothing");
        assert_eq!(derived.total_bytes, 20_000);
        assert_eq!(store.upload_usage(&row(0).owner).await.unwrap().total_bytes, 20_000);
        store.forget(&row(0).s3_ref).await.unwrap();
        assert_eq!(store.upload_usage(&row(0).owner).await.unwrap().total_bytes, 10_000);
        assert_eq!(store.announce(row(2), &quota).await.unwrap(), Announced::Done);
    }
}
