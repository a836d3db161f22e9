//! `bluetick push`: what it takes to set up notifications, and whether they arrive.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use bluetick_chat::PushTested;
use bluetick_protocol::UserId;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::{Failure, Outcome, output, remote::segment, table, target::Target};
use crate::{
    config::{Config, Overrides},
    push::make_vapid_key,
};

#[derive(Debug, Args)]
pub struct PushArgs {
    #[command(subcommand)]
    command: PushCommand,
}

#[derive(Debug, Subcommand)]
enum PushCommand {
    /// Notify all devices of a user now, and say what each provider answered
    Test(TestArgs),
    /// Make the key by which browsers know this server
    Keys(KeysArgs),
}

#[derive(Debug, Args)]
struct TestArgs {
    /// Whose devices
    #[arg(long, value_name = "USER")]
    user: UserId,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct KeysArgs {
    /// The file to write [default: the configured key file, or vapid.pem in the data directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The data directory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub async fn run(args: PushArgs) -> Outcome {
    match args.command {
        PushCommand::Test(args) => test(args).await,
        PushCommand::Keys(args) => keys(args),
    }
}

async fn test(args: TestArgs) -> Outcome {
    let answer =
        args.target.remote()?.post(&format!("users/{}/push/test", segment(args.user.as_str()))).await?;
    let tested: Vec<PushTested> = serde_json::from_slice(&answer)
        .map_err(|e| Failure::Failed(format!("the server's answer is not a report: {e}")))?;
    output::print(&render(&tested))?;
    match tested.iter().all(|device| device.accepted) {
        true => Ok(()),
        false => Err(Failure::Told),
    }
}

fn render(tested: &[PushTested]) -> String {
    let rows: Vec<Vec<Value>> = tested
        .iter()
        .map(|PushTested { device, provider, answer, .. }| {
            vec![device.as_str().into(), provider.as_str().into(), answer.as_str().into()]
        })
        .collect();
    table::render(&["device", "provider", "answer"], &rows)
}

fn keys(args: KeysArgs) -> Outcome {
    let overrides = Overrides { data: args.data, listen: None };
    let config =
        Config::load(args.config.as_deref(), overrides).map_err(|e| Failure::Failed(e.to_string()))?;
    let named = config.push.webpush.map(|webpush| webpush.key_file);
    let path = match args.out.or(named) {
        Some(path) => path,
        None => {
            let dir = &config.server.data_dir;
            let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(|e| Failure::Failed(format!("cannot make {}: {e}", dir.display())))?;
            dir.join("vapid.pem")
        }
    };
    let public = make_key(&path)?;
    let shown = std::path::absolute(&path).unwrap_or(path);
    let shown = shown.display();
    Ok(output::print(&format!(
        "key         {shown}\npublic key  {public}\n\n\
         Keep the key: a browser's subscription belongs to the key it was made with. The server reads it by\n\n\
         [push.webpush]\nkey_file = \"{shown}\"\nsubject = \"mailto:you@example.org\"\n"
    ))?)
}

/// Writes a new key, readable by its owner only. Returns the public half.
fn make_key(path: &Path) -> Result<String, String> {
    if path.exists() {
        return Err(format!(
            "{} is there already, and subscriptions may belong to it; name another file with --out",
            path.display()
        ));
    }
    let (pem, public) = make_vapid_key().map_err(|e| e.to_string())?;
    let mut file = output::WholeFile::create(path)?;
    file.write(pem.as_bytes())?;
    file.keep()?;
    Ok(public)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bluetick_protocol::{DeviceId, PushProvider};

    #[test]
    fn every_device_has_a_line() {
        let tested = |device: &str, provider, accepted, answer: &str| PushTested {
            device: DeviceId::new(device).unwrap(),
            provider,
            accepted,
            answer: answer.into(),
        };
        let text = render(&[
            tested("phone", PushProvider::Apns, true, "accepted"),
            tested("laptop", PushProvider::Webpush, false, "not now: no answer"),
        ]);
        assert_eq!(
            text,
            "device  provider  answer\nphone   apns      accepted\nlaptop  webpush   not now: no answer\n"
        );
    }

    #[test]
    fn a_key_is_made_once_and_is_not_for_others() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vapid.pem");
        let public = make_key(&path).unwrap();
        assert_eq!(public.len(), 87, "65 bytes as base64url");
        let pem = std::fs::read_to_string(&path).unwrap();
        assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(make_key(&path).unwrap_err().contains("--out"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), pem, "what is there stays");
    }
}
