//! Streams objects from one store to another.

use bytes::BytesMut;
use futures_util::TryStreamExt as _;
use object_store::{Error, ObjectStoreExt as _, WriteMultipart};
use sha2::{Digest as _, Sha256};

use super::Objects;
use crate::{Result, StoreError};

/// A shorter object is written in one request.
const PIECE_BYTES: usize = 8 * 1024 * 1024;
/// Parts in flight.
const IN_FLIGHT: usize = 4;

impl Objects {
    /// Copies an object from another store, replacing an existing one. Fails, and writes nothing,
    /// if its SHA-256 (in hex) differs.
    pub async fn copy_from(&self, from: &Objects, key: &str, sha256: &str) -> Result<()> {
        let damaged = |why: &str| StoreError::Damaged { object: key.to_owned(), why: why.to_owned() };
        let found = match from.store.get(&from.path(key)).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Err(damaged("it is missing")),
            Err(e) => return Err(from.failed("read", key, e)),
        };
        let is_short = found.meta.size <= PIECE_BYTES as u64;
        let (mut pieces, mut hash) = (found.into_stream(), Sha256::new());
        let is_it = |hash: Sha256| {
            let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            hex.eq_ignore_ascii_case(sha256)
        };
        if is_short {
            let mut whole = BytesMut::new();
            while let Some(piece) = pieces.try_next().await.map_err(|e| from.failed("read", key, e))? {
                hash.update(&piece);
                whole.extend_from_slice(&piece);
            }
            if !is_it(hash) {
                return Err(damaged("it is not what was uploaded"));
            }
            let written = self.store.put(&self.path(key), whole.freeze().into()).await;
            return written.map(drop).map_err(|e| self.failed("write", key, e));
        }
        let failed = |e| self.failed("write", key, e);
        let upload = self.store.put_multipart(&self.path(key)).await.map_err(failed)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PIECE_BYTES);
        let copied = async {
            while let Some(piece) = pieces.try_next().await.map_err(|e| from.failed("read", key, e))? {
                upload.wait_for_capacity(IN_FLIGHT).await.map_err(failed)?;
                hash.update(&piece);
                upload.put(piece);
            }
            match is_it(hash) {
                true => Ok(()),
                false => Err(damaged("it is not what was uploaded")),
            }
        };
        match copied.await {
            Ok(()) => upload.finish().await.map(drop).map_err(failed),
            Err(error) => {
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%key, %error, "parts of a failed copy could not be deleted; abort the multipart upload by hand");
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_object_is_copied_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (Objects::directory(dir.path()).unwrap(), Objects::memory());
        for bytes in [0, 5, 2 * PIECE_BYTES + 17] {
            let content: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
            let sum: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
            let key = format!("attachments/00/{bytes}");
            assert!(from.put_new(&key, content.clone().into()).await.unwrap());
            let wrong = to.copy_from(&from, &key, &"0".repeat(64)).await;
            assert!(matches!(wrong, Err(StoreError::Damaged { .. })), "{wrong:?}");
            assert!(to.info(&key).await.unwrap().is_none());
            for _ in 0..2 {
                to.copy_from(&from, &key, &sum).await.unwrap();
            }
            let there = to.info(&key).await.unwrap().unwrap();
            assert_eq!(there.bytes, bytes as u64);
            if bytes > 0 {
                assert!(to.read(&key, 0..bytes as u64).await.unwrap().unwrap() == content);
            }
        }
        let missing = to.copy_from(&from, "attachments/00/none", "").await;
        assert!(matches!(missing, Err(StoreError::Damaged { .. })), "{missing:?}");
    }
}
