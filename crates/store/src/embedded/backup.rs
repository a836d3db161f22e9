//! Backup and restore: every row of the engine in one stream, taken while serving.
//!
//! ```text
//! "BLUETICK-BACKUP-4\n" · row* · end
//! row = 0x01 · keyspace · key · value · crc32c u32        (texts with a varint length in front)
//! end = 0x00 · number of rows u64
//! ```
//!
//! The number in the first line is the directory's format: a restore reads this one and older ones.
//!
//! A stream without `end` is not a backup, and a restore refuses it. Cold objects and the bytes of
//! attachments are not in it, only the rows that name them.

use std::{io::Read, path::Path};

use super::{
    Embedded,
    bytes::put_u64,
    committer::WriteOp,
    data_dir::claim,
    engine::{Engine, EngineChange},
    wal::WAL_DIR,
};
use crate::{BackupSink, Result, StoreError};

const MAGIC: &[u8] = b"BLUETICK-BACKUP-4\n";
const OLDER_MAGICS: [&[u8]; 3] = [b"BLUETICK-BACKUP-1\n", b"BLUETICK-BACKUP-2\n", b"BLUETICK-BACKUP-3\n"];
const CHUNK_BYTES: usize = 256 * 1024;
/// How much a restore sorts into one run of the engine.
const RUN_ROWS: usize = 200_000;
const RUN_BYTES: usize = 32 * 1024 * 1024;
const PART_MAX_BYTES: u64 = 16 * 1024 * 1024;

impl Embedded {
    /// Writes everything that was durable at the time of the call, as rows of the engine.
    pub(super) async fn write_backup(&self, sink: BackupSink<'_>) -> Result<u64> {
        let snapshot = self.ask(WriteOp::Checkpoint).await?;
        let (chunks, mut chunks_in) = tokio::sync::mpsc::channel::<Vec<u8>>(4);
        let reader = tokio::task::spawn_blocking(move || {
            let gone = || StoreError::unavailable("the receiver of the backup");
            let (mut chunk, mut rows) = (MAGIC.to_vec(), 0u64);
            snapshot.for_each(|space, key, value| {
                let start = chunk.len();
                chunk.push(1);
                for part in [space.as_bytes(), key, value] {
                    put_u64(&mut chunk, part.len() as u64);
                    chunk.extend_from_slice(part);
                }
                let crc = crc32c::crc32c(&chunk[start..]);
                chunk.extend_from_slice(&crc.to_le_bytes());
                rows += 1;
                if chunk.len() >= CHUNK_BYTES {
                    chunks.blocking_send(std::mem::take(&mut chunk)).map_err(|_| gone())?;
                }
                Ok(())
            })?;
            chunk.push(0);
            chunk.extend_from_slice(&rows.to_le_bytes());
            chunks.blocking_send(chunk).map_err(|_| gone())?;
            Ok(rows)
        });
        while let Some(chunk) = chunks_in.recv().await {
            sink(chunk).map_err(|e| StoreError::Unusable(format!("the backup could not be written: {e}")))?;
        }
        reader.await.unwrap_or_else(|e| Err(StoreError::Corrupt(format!("the backup failed: {e}"))))
    }
}

/// Creates a data directory from a backup. Refuses a directory that already holds a store. Returns
/// the number of rows.
pub fn restore(backup: &mut dyn Read, dir: &Path) -> Result<u64> {
    if dir.join("engine").exists() || dir.join(WAL_DIR).exists() {
        return Err(StoreError::Unusable(format!(
            "{} already holds a store; restore into a new directory",
            dir.display()
        )));
    }
    let mut input = BackupReader { from: std::io::BufReader::with_capacity(1 << 20, backup), crc: 0 };
    let mut magic = [0; MAGIC.len()];
    input.bytes(&mut magic)?;
    if magic != MAGIC && !OLDER_MAGICS.contains(&magic.as_slice()) {
        return Err(StoreError::Unusable(
            "this is not a backup of bluetick, or it is from a newer version".into(),
        ));
    }
    let _lock = claim(dir)?;
    let rows = fill(&mut input, dir);
    if rows.is_err() {
        // Half a store must not pass for a whole one.
        let _ = std::fs::remove_dir_all(dir.join("engine"));
    }
    rows
}

fn fill(input: &mut BackupReader<impl Read>, dir: &Path) -> Result<u64> {
    let engine =
        Engine::open(&dir.join("engine"), 32 << 20, super::EmbeddedConfig::new(dir).idempotency_window_ms)?;
    let (mut rows, mut space, mut run, mut bytes) = (0u64, String::new(), Vec::<EngineChange>::new(), 0);
    loop {
        input.crc = 0;
        let mut kind = [0];
        input.bytes(&mut kind)?;
        if kind == [0] {
            break;
        }
        let name = String::from_utf8(input.part()?).map_err(|_| damaged("a keyspace's name is not text"))?;
        let (key, value) = (input.part()?, input.part()?);
        let crc = input.crc;
        let mut stored = [0; 4];
        input.bytes(&mut stored)?;
        if crc != u32::from_le_bytes(stored) {
            return Err(damaged(&format!("row {rows} does not match its checksum")));
        }
        if name != space || run.len() >= RUN_ROWS || bytes >= RUN_BYTES {
            engine.fill_run(&space, &mut run)?;
            (space, bytes) = (name, 0);
        }
        bytes += key.len() + value.len();
        run.push((key, Some(value)));
        rows += 1;
    }
    engine.fill_run(&space, &mut run)?;
    let mut count = [0; 8];
    input.bytes(&mut count)?;
    match u64::from_le_bytes(count) == rows {
        true => Ok(rows),
        false => Err(damaged("it does not hold the number of rows it says")),
    }
}

fn damaged(why: &str) -> StoreError {
    StoreError::Corrupt(format!("the backup is damaged: {why}"))
}

impl Engine {
    fn fill_run(&self, space: &str, run: &mut Vec<EngineChange>) -> Result<()> {
        match run.is_empty() {
            true => Ok(()),
            false => self.fill(space, std::mem::take(run)),
        }
    }
}

struct BackupReader<R> {
    from: R,
    crc: u32,
}

impl<R: Read> BackupReader<R> {
    fn bytes(&mut self, into: &mut [u8]) -> Result<()> {
        self.from.read_exact(into).map_err(|e| damaged(&format!("it ends too early ({e})")))?;
        self.crc = crc32c::crc32c_append(self.crc, into);
        Ok(())
    }

    fn part(&mut self) -> Result<Vec<u8>> {
        let (mut length, mut shift) = (0u64, 0);
        loop {
            let mut byte = [0];
            self.bytes(&mut byte)?;
            length |= u64::from(byte[0] & 0x7f) << shift;
            shift += 7;
            if byte[0] & 0x80 == 0 {
                break;
            }
            if shift > 35 {
                return Err(damaged("a length is too long"));
            }
        }
        if length > PART_MAX_BYTES {
            return Err(damaged("a length is too large"));
        }
        let mut part = vec![0; length as usize];
        self.bytes(&mut part)?;
        Ok(part)
    }
}
