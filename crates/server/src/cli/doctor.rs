//! `bluetick doctor`: checks configuration, data directory and server, and says what to do about each
//! problem.

mod local;
mod server;
mod store;
#[cfg(test)]
mod tests;

use clap::Args;

use super::{
    Failure, Outcome, output,
    target::{ResolvedTarget, Target},
};

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    Ok,
    Warn,
    Fail,
}

/// The results of all checks, in order.
#[derive(Default)]
struct Findings(Vec<(Grade, &'static str, String)>);

impl Findings {
    fn add(&mut self, grade: Grade, what: &'static str, text: impl Into<String>) {
        self.0.push((grade, what, text.into()));
    }

    fn ok(&mut self, what: &'static str, text: impl Into<String>) {
        self.add(Grade::Ok, what, text);
    }

    fn warn(&mut self, what: &'static str, text: impl Into<String>) {
        self.add(Grade::Warn, what, text);
    }

    fn fail(&mut self, what: &'static str, text: impl Into<String>) {
        self.add(Grade::Fail, what, text);
    }

    fn failed(&self) -> bool {
        self.0.iter().any(|(grade, ..)| *grade == Grade::Fail)
    }

    fn render(&self) -> String {
        let lines = self.0.iter().map(|(grade, what, text)| {
            let grade = match grade {
                Grade::Ok => "ok",
                Grade::Warn => "warn",
                Grade::Fail => "fail",
            };
            format!("{grade:<4}  {what:<14}  {text}\n")
        });
        lines.collect()
    }
}

pub async fn run(args: DoctorArgs) -> Outcome {
    let mut findings = Findings::default();
    match args.target.resolve() {
        Ok(place) => {
            let source = match &args.target.config {
                Some(path) => format!("{} is valid", path.display()),
                None => "no file given: defaults and environment are valid".into(),
            };
            findings.ok("configuration", source);
            examine(&place, &mut findings).await;
        }
        Err(Failure::Failed(why)) => findings.fail("configuration", why),
        Err(other) => return Err(other),
    }
    output::print(&findings.render())?;
    if findings.failed() { Err(Failure::Told) } else { Ok(()) }
}

async fn examine(place: &ResolvedTarget, findings: &mut Findings) {
    local::check_own_clock(findings);
    local::check_directory(&place.config.server.data_dir, findings);
    local::check_exposure(&place.config, findings);
    local::check_keys(&place.config, findings);
    local::check_tls(&place.config, findings);
    local::check_push(&place.config, findings).await;
    if !server::check_server(place, findings).await {
        store::check_store(place, findings).await;
    }
}
