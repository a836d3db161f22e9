//! Every path, test name and link in the documents leads somewhere.
//!
//! A document may shorten a path: `it/drain.rs` is `crates/server/tests/it/drain.rs`. `PREFIXES` lists
//! the short forms. A reference `path.rs::name` must name a function of that file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// What a path in a document may be relative to, tried in this order.
const PREFIXES: &[&str] = &[
    "",
    "crates/",
    "crates/server/tests/",
    "crates/server/tests/cluster/",
    "crates/server/tests/it/",
    "crates/chat/tests/",
    "crates/store/src/conformance/",
    "crates/store/src/",
    "crates/store/tests/",
    "crates/server/src/",
    "crates/chat/src/",
];
/// Ends of names that make a code span a path.
const ENDS: &[&str] = &[".rs", ".js", ".mjs", ".md", ".html", ".toml", ".json", ".yaml", ".conf", ".cfg"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown documents of the project, and the Rust files whose doc comments index tests.
fn documents() -> Vec<PathBuf> {
    let mut found = vec![root().join("crates/chat/src/rules.rs")];
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let skipped = ["target", "node_modules", "dist", "api"].contains(&name.as_str());
            if path.is_dir() && !name.starts_with('.') && !skipped {
                folders.push(path);
            } else if name.ends_with(".md") && name != "CHANGELOG.md" {
                found.push(path);
            }
        }
    }
    found
}

/// The text outside fenced code blocks.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let outside = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    outside.collect::<Vec<_>>().join("\n")
}

fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The addresses of `[text](address)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split(')').next())
}

/// A heading's anchor, as forges make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let named = text.split("id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    headings.map(|line| anchor(line.trim_start_matches('#'))).chain(named.map(str::to_owned)).collect()
}

/// The file that a path in a document means, if there is one.
fn resolve(document: &Path, path: &str) -> Option<PathBuf> {
    let beside = document.parent().map(|folder| folder.join(path));
    let candidates = PREFIXES.iter().map(|prefix| root().join(prefix).join(path)).chain(beside);
    candidates.into_iter().find(|candidate| candidate.exists())
}

fn has_function(file: &Path, name: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let quoted = |quote: char| text.contains(&format!("{quote}{name}{quote}"));
    text.contains(&format!("fn {name}("))
        || text.contains(&format!("fn {name}<"))
        || quoted('"')
        || quoted('\'')
}

#[test]
fn every_path_and_test_in_the_documents_exists() {
    let mut wrong = BTreeMap::<String, BTreeSet<String>>::new();
    for document in documents() {
        let text = prose(&fs::read_to_string(&document).unwrap());
        for span in code_spans(&text) {
            let (path, item) = span.split_once("::").map_or((span, None), |(path, item)| (path, Some(item)));
            let is_path = ENDS.iter().any(|end| path.ends_with(end));
            let is_literal = !path.contains([' ', '*', '{', '<', '$', '…']) && !path.starts_with('/');
            if !is_path || !is_literal {
                continue;
            }
            let found = resolve(&document, path);
            let ok = match (&found, item) {
                (None, _) => !path.contains('/') && item.is_none(),
                (Some(_), None) => true,
                (Some(file), Some(item)) => has_function(file, item),
            };
            if !ok {
                wrong.entry(document.display().to_string()).or_default().insert(span.to_owned());
            }
        }
    }
    assert!(wrong.is_empty(), "these do not exist: {wrong:#?}");
}

#[test]
fn every_check_of_the_conformance_suite_in_the_documents_exists() {
    let mut wrong = BTreeSet::new();
    for document in documents() {
        for span in code_spans(&prose(&fs::read_to_string(&document).unwrap())) {
            if let Some((module, check)) = span.split_once("::")
                && !module.contains(['/', '.'])
                && check.contains('_')
                && check.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            {
                let file = root().join(format!("crates/store/src/conformance/{module}.rs"));
                // `model` is also the model of the rules.
                let of_the_rules = root().join(format!("sim/tests/{module}/main.rs"));
                if file.exists() && !has_function(&file, check) && !has_function(&of_the_rules, check) {
                    wrong.insert(span.to_owned());
                }
            }
        }
    }
    assert!(wrong.is_empty(), "these checks do not exist: {wrong:#?}");
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let mut wrong = BTreeSet::new();
    for document in documents().into_iter().filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&prose(&text)) {
            if link.contains("://") || link.starts_with("mailto:") || link.contains(' ') {
                continue;
            }
            let (path, fragment) = link.split_once('#').map_or((link, None), |(path, f)| (path, Some(f)));
            let target = match path {
                "" => document.clone(),
                path => document.parent().unwrap().join(path),
            };
            let known = |fragment: &str| match fs::read_to_string(&target) {
                Ok(text) if target.extension().is_some_and(|end| end == "md") => {
                    anchors(&text).contains(fragment)
                }
                _ => true,
            };
            if !target.exists() || !fragment.is_none_or(known) {
                wrong.insert(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "these links lead nowhere: {wrong:#?}");
}

#[test]
fn a_wrong_reference_is_found() {
    let readme = root().join("README.md");
    assert!(resolve(&readme, "it/no_such_file.rs").is_none());
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/references.rs");
    assert!(has_function(&own, "a_wrong_reference_is_found"));
    assert!(!has_function(&own, concat!("a_test_that", "_is_not_there")));
    assert_eq!(anchor(" Many machines: the store"), "many-machines-the-store");
}
