//! `bluetick backup`: all data of a running server, in one file.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
};

use clap::Args;

use super::{Failure, Outcome, output, target::Target};

#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to write; one that is there is replaced when the new one is complete
    file: PathBuf,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: BackupArgs) -> Outcome {
    let remote = args.target.remote()?;
    let mut file = output::WholeFile::create(&args.file)?;
    let mut answer = remote.open("backup").await?;
    let mut bytes: u64 = 0;
    while let Some(piece) = answer.chunk().await.map_err(|e| remote.broken(&e))? {
        file.write(&piece)?;
        bytes += piece.len() as u64;
    }
    let rows = rows_at_end(file.contents()).map_err(|why| {
        Failure::Failed(format!(
            "{} sent a backup that is not whole ({why}); nothing was kept, try again",
            remote.url()
        ))
    })?;
    file.keep()?;
    Ok(output::print(&format!("{rows} rows, {bytes} bytes in {}\n", args.file.display()))?)
}

/// A backup ends with a zero byte and the number of its rows. HTTP reports a truncated response by
/// itself, but a proxy in between may not.
fn rows_at_end(file: &mut File) -> Result<u64, String> {
    let mut end = [0; 9];
    file.seek(SeekFrom::End(-9)).map_err(|_| "it is too short".to_owned())?;
    file.read_exact(&mut end).map_err(|e| e.to_string())?;
    match end {
        [0, rows @ ..] => Ok(u64::from_le_bytes(rows)),
        _ => Err("its end is missing".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_backup_without_its_end_is_none() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(rows_at_end(&mut file).is_err());
        file.write_all(b"BLUETICK-BACKUP-4\nrow after row").unwrap();
        assert!(rows_at_end(&mut file).is_err());
        file.write_all(&[0, 7, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(rows_at_end(&mut file), Ok(7));
    }
}
