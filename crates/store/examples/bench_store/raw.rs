//! The limit: the same waiting and the same group commit, with nothing but bytes appended to a
//! plain file.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use tokio::sync::{mpsc, oneshot};

const GROUP_MAX: usize = 2048;

type RawWrite = (Vec<u8>, oneshot::Sender<Result<(), String>>);

#[derive(Clone)]
pub struct RawLog {
    ops: mpsc::Sender<RawWrite>,
    path: PathBuf,
}

impl RawLog {
    pub fn create(path: &Path) -> Result<RawLog, String> {
        let file = File::create(path).map_err(|e| e.to_string())?;
        let (ops, ops_in) = mpsc::channel(8192);
        let thread = std::thread::Builder::new().name("raw-commit".into());
        thread.spawn(move || commit(&file, ops_in)).map_err(|e| e.to_string())?;
        Ok(RawLog { ops, path: path.to_owned() })
    }

    pub async fn append(&self, record: Vec<u8>) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        let gone = || "the committer is gone".to_owned();
        self.ops.send((record, reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    pub fn remove(self) -> Result<(), String> {
        std::fs::remove_file(&self.path).map_err(|e| e.to_string())
    }
}

fn commit(file: &File, mut ops: mpsc::Receiver<RawWrite>) {
    let (mut batch, mut bytes, mut end) = (Vec::with_capacity(GROUP_MAX), Vec::new(), 0u64);
    while ops.blocking_recv_many(&mut batch, GROUP_MAX) > 0 {
        bytes.clear();
        for (record, _) in &batch {
            bytes.extend_from_slice(record);
        }
        let written = file.write_all_at(&bytes, end).and_then(|()| file.sync_data());
        end += bytes.len() as u64;
        for (_, reply) in batch.drain(..) {
            let _ = reply.send(written.as_ref().map(drop).map_err(|e| e.to_string()));
        }
    }
}
