//! `bluetick export`: everything kept of a user, as JSON, and their files if they are wanted too.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use bluetick_protocol::{ConversationId, Download, S3Ref, Seq, UserId};
use clap::Args;
use ring::digest;
use serde::Deserialize;

use super::{
    Failure, Outcome, output,
    progress::Progress,
    remote::{Remote, segment},
    target::Target,
};
use crate::auth::hex;

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Whose data
    #[arg(long, value_name = "USER")]
    user: UserId,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Save the attachments of the user's messages in this directory
    #[arg(long, value_name = "DIR")]
    attachments: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

#[derive(Deserialize)]
struct ExportDocument {
    #[serde(default)]
    attachments: Vec<ExportedFile>,
}

#[derive(Deserialize)]
struct ExportedFile {
    conversation_id: ConversationId,
    seq: Seq,
    s3_ref: S3Ref,
    #[serde(flatten)]
    download: Download,
}

pub async fn run(args: ExportArgs) -> Outcome {
    let remote = args.target.remote()?;
    let answer = remote.get(&format!("users/{}/export", segment(args.user.as_str()))).await?;
    let text = std::str::from_utf8(&answer)
        .map_err(|_| Failure::Failed("the server's answer is not text; is it a bluetick server?".into()))?;
    let text = format!("{}\n", text.trim_end());
    match &args.out {
        None => output::print(&text)?,
        Some(name) => {
            let mut file = output::WholeFile::create(name)?;
            file.write(text.as_bytes())?;
            file.keep()?;
        }
    }
    match &args.attachments {
        Some(dir) => save_attachments(&remote, text.as_str(), dir).await,
        None => Ok(()),
    }
}

async fn save_attachments(remote: &Remote, export: &str, dir: &Path) -> Result<(), Failure> {
    let export: ExportDocument = serde_json::from_str(export)
        .map_err(|e| Failure::Failed(format!("the server's answer is not an export: {e}")))?;
    std::fs::create_dir_all(dir)
        .map_err(|e| Failure::Failed(format!("cannot make the directory {}: {e}", dir.display())))?;
    let progress = Progress::start("files saved", export.attachments.len() as u64);
    let mut missing = Vec::new();
    for attachment in &export.attachments {
        if let Err(failure) = save(remote, attachment, dir).await {
            let why = match failure {
                Failure::Usage(why) | Failure::Failed(why) => why,
                Failure::Told => String::new(),
            };
            missing.push(format!("{}: {why}", file_name(attachment)));
        }
        progress.step(1);
    }
    drop(progress);
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::Failed(format!(
            "{} of {} files are not saved; run it again for these:\n{}",
            missing.len(),
            export.attachments.len(),
            missing.join("\n")
        ))),
    }
}

/// Saves one file, unless it is there from a run before.
async fn save(remote: &Remote, attachment: &ExportedFile, dir: &Path) -> Result<(), Failure> {
    let name = dir.join(file_name(attachment));
    if checksum_of(&name).is_some_and(|found| found == attachment.download.sha256) {
        return Ok(());
    }
    let mut file = output::WholeFile::create(&name)?;
    let mut answer = remote.fetch(&attachment.download.url).await?;
    let mut hash = digest::Context::new(&digest::SHA256);
    while let Some(piece) = answer.chunk().await.map_err(|e| remote.broken(&e))? {
        hash.update(&piece);
        file.write(&piece)?;
    }
    let found = hex(hash.finish().as_ref());
    if found != attachment.download.sha256 {
        return Err(Failure::Failed(format!(
            "{} is not what was uploaded: its checksum differs",
            name.display()
        )));
    }
    Ok(file.keep()?)
}

/// The SHA-256 of a file that can be read.
fn checksum_of(name: &Path) -> Option<String> {
    let mut file = File::open(name).ok()?;
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut piece = vec![0; 128 * 1024];
    loop {
        match file.read(&mut piece).ok()? {
            0 => return Some(hex(hash.finish().as_ref())),
            read => hash.update(&piece[..read]),
        }
    }
}

/// How much of a conversation's id stands in the name of a file; `s3_ref` tells files apart.
const CONVERSATION_SHOWN_BYTES: usize = 129;

/// Says where it is from, and leads nowhere else, whatever it is called.
fn file_name(attachment: &ExportedFile) -> String {
    let ExportedFile { conversation_id, seq, s3_ref, download } = attachment;
    let plain = |c: char| if c.is_control() || matches!(c, '/' | '\\') { '_' } else { c };
    let name: String = download.name.chars().map(plain).collect();
    // A name in a directory has 255 bytes at most; two user ids may have more by themselves.
    let conversation = conversation_id.as_str();
    let conversation = &conversation[..conversation.len().min(CONVERSATION_SHOWN_BYTES)];
    let room = 255usize.saturating_sub(conversation.len() + s3_ref.as_str().len() + 24);
    let from = (name.len().saturating_sub(room)..=name.len()).find(|at| name.is_char_boundary(*at));
    format!("{conversation}-{seq}-{s3_ref}-{}", &name[from.unwrap_or(0)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_its_message_and_stays_in_its_directory() {
        let named = |name: &str| named_in("alice~bob", name);
        assert_eq!(named("a.pdf"), format!("alice~bob-7-{}-a.pdf", "0".repeat(32)));
        assert!(!named("../../x").contains('/'));
        assert!(named(&"é".repeat(127)).len() <= 255);
        let long = format!("{}~{}", "a".repeat(128), "b".repeat(128));
        let name = named_in(&long, "contract.pdf");
        assert!(name.len() <= 255 && name.ends_with("contract.pdf"), "{name}");
    }

    fn named_in(conversation: &str, name: &str) -> String {
        file_name(&ExportedFile {
            conversation_id: conversation.parse().unwrap(),
            seq: 7,
            s3_ref: S3Ref::mint(0, [0; 10]),
            download: Download {
                url: String::new(),
                expires_at: 0,
                name: name.into(),
                mime: String::new(),
                bytes: 1,
                sha256: String::new(),
            },
        })
    }
}
