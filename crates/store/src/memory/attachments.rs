//! Attachments and their claims.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, S3Ref, UserId};

use super::Memory;
use crate::{Announced, AttachmentRow, Attachments, Result, UploadQuota, UploadState, UploadUsage};

#[async_trait]
impl Attachments for Memory {
    async fn announce(&self, row: AttachmentRow, quota: &UploadQuota) -> Result<Announced> {
        let mut state = self.write()?;
        if row.charged_bytes() > 0 {
            let usage = state.upload_usage.get(&row.owner).copied().unwrap_or_default();
            match usage.charge(&row, quota) {
                Ok(charged) => drop(state.upload_usage.insert(row.owner.clone(), charged)),
                Err(over) => return Ok(Announced::OverQuota(over)),
            }
        }
        state.attachments.insert(row.s3_ref.clone(), (row, BTreeSet::new()));
        Ok(Announced::Done)
    }

    async fn upload_usage(&self, user: &UserId) -> Result<UploadUsage> {
        Ok(self.read().upload_usage.get(user).copied().unwrap_or_default())
    }

    async fn attachment(&self, s3_ref: &S3Ref) -> Result<Option<AttachmentRow>> {
        Ok(self.read().attachments.get(s3_ref).map(|(row, _)| row.clone()))
    }

    async fn uploaded(&self, s3_ref: &S3Ref) -> Result<bool> {
        let mut state = self.write()?;
        let row = state.attachments.get_mut(s3_ref).map(|(row, _)| row);
        let expected = row.filter(|row| row.state == UploadState::Expected);
        Ok(expected.map(|row| row.state = UploadState::Uploaded).is_some())
    }

    async fn claim(&self, s3_ref: &S3Ref, conversation: &ConversationId) -> Result<bool> {
        let mut state = self.write()?;
        let row = state.attachments.get_mut(s3_ref).filter(|(row, _)| row.state == UploadState::Uploaded);
        Ok(row
            .map(|(row, claims)| {
                row.claimed = true;
                claims.insert(conversation.clone());
            })
            .is_some())
    }

    async fn is_claimed_by(&self, s3_ref: &S3Ref, conversation: &ConversationId) -> Result<bool> {
        Ok(self.read().attachments.get(s3_ref).is_some_and(|(_, claims)| claims.contains(conversation)))
    }

    async fn owned_by(&self, user: &UserId) -> Result<Vec<S3Ref>> {
        let state = self.read();
        let rows = state.attachments.values().map(|(row, _)| row);
        Ok(rows.filter(|row| row.owner == *user).map(|row| row.s3_ref.clone()).collect())
    }

    async fn unclaimed(&self, before_ms: u64, limit: usize) -> Result<Vec<AttachmentRow>> {
        let state = self.read();
        let rows = state.attachments.values().map(|(row, _)| row);
        let old = rows.filter(|row| !row.claimed && row.s3_ref.minted_at() < before_ms);
        Ok(old.take(limit).cloned().collect())
    }

    async fn collect(&self, s3_ref: &S3Ref) -> Result<bool> {
        let mut state = self.write()?;
        let row = state.attachments.get_mut(s3_ref).map(|(row, _)| row).filter(|row| !row.claimed);
        Ok(row.map(|row| row.state = UploadState::Collecting).is_some())
    }

    async fn forget(&self, s3_ref: &S3Ref) -> Result<()> {
        let mut state = self.write()?;
        let Some((row, _)) = state.attachments.remove(s3_ref) else { return Ok(()) };
        if let Some(usage) = state.upload_usage.remove(&row.owner)
            && let Some(left) = usage.give_back(&row)
        {
            state.upload_usage.insert(row.owner, left);
        }
        Ok(())
    }
}
