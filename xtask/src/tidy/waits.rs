//! Nothing polls, but for what ARCHITECTURE lists: every place that waits for time to pass is a back-off, stands in that list, or
//! in `docs/waits.toml`, which says what it waits for.
//!
//! A back-off is known by what it is given: `backoff.next(...)`. Whatever else sleeps could be a look at something that might
//! have changed, so a person says once that it is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::functions::{Function, Token};

const POLLS: &str = "ARCHITECTURE.md";
/// The head of the list there.
const POLLS_HEAD: &str = "| what is looked at |";
const WAITS: &str = "docs/waits.toml";
/// Tools that measure and test, which may look as often as they like.
const TOOLS: [&str; 4] = ["crates/bench/", "crates/testkit/", "crates/torture/", "xtask/"];
const CALLS: [&str; 4] = ["sleep", "sleep_until", "interval", "interval_at"];

/// Says which places wait and are nowhere, and what is listed and does not wait, or is not there.
pub(super) fn check(root: &Path, functions: &[Function], breaches: &mut Vec<String>) -> Result<()> {
    let polls = polls(&fs::read_to_string(root.join(POLLS)).with_context(|| format!("read {POLLS}"))?);
    let waits = waits(&fs::read_to_string(root.join(WAITS)).with_context(|| format!("read {WAITS}"))?)?;
    let found = found(functions);
    let missing = polls.iter().filter(|file| !root.join(file).is_file());
    breaches.extend(missing.map(|file| format!("{POLLS}: {file}, which is said to poll, is not there")));
    breaches.extend(compare(&found, &polls, &waits));
    Ok(())
}

fn compare(
    found: &BTreeMap<String, usize>,
    polls: &BTreeSet<String>,
    waits: &BTreeMap<String, String>,
) -> Vec<String> {
    let unknown = found.iter().filter(|(file, _)| !polls.contains(*file) && !waits.contains_key(*file));
    let unknown = unknown.map(|(file, line)| {
        format!("{file}:{line}: waits for time to pass: a poll stands in {POLLS}, anything else in {WAITS}")
    });
    let stale = waits.keys().filter(|file| !found.contains_key(*file));
    let stale = stale.map(|file| format!("{WAITS}: {file} does not wait, or only for a back-off"));
    let twice = waits.keys().filter(|file| polls.contains(*file));
    let twice = twice.map(|file| format!("{WAITS}: {file} stands in {POLLS}, too"));
    unknown.chain(stale).chain(twice).collect()
}

/// The files with waits that are no back-offs, and the first line of one.
fn found(functions: &[Function]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for function in
        functions.iter().filter(|function| TOOLS.iter().all(|tool| !function.file.starts_with(tool)))
    {
        if let Some(line) = first_wait(&function.tokens) {
            found.entry(function.file.clone()).or_insert(line);
        }
    }
    found
}

fn first_wait(tokens: &[Token]) -> Option<usize> {
    (0..tokens.len()).find_map(|at| {
        let [module, colon, other, call, open, ..] = tokens.get(at..)? else { return None };
        let is_call = ["time", "thread"].contains(&module.text.as_str())
            && [colon, other].iter().all(|token| token.text == ":")
            && CALLS.contains(&call.text.as_str())
            && open.text == "(";
        (is_call && !is_back_off(tokens.get(at + 5..)?)).then_some(call.line)
    })
}

/// Whether what follows an opening bracket asks for the next of something before the bracket is closed.
fn is_back_off(tokens: &[Token]) -> bool {
    let mut depth = 0;
    for pair in tokens.windows(2) {
        match pair {
            [dot, next] if dot.text == "." && next.text == "next" => return true,
            [token, _] if token.text == "(" => depth += 1,
            [token, _] if token.text == ")" && depth == 0 => return false,
            [token, _] if token.text == ")" => depth -= 1,
            _ => {}
        }
    }
    false
}

/// The files in the last column of ARCHITECTURE's list, from the root on. `a/{b,c}.rs` are two.
fn polls(text: &str) -> BTreeSet<String> {
    let rows = text.lines().map(str::trim).skip_while(|line| !line.starts_with(POLLS_HEAD)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|line| line.trim_end_matches('|').rsplit_once('|').map(|(_, cell)| cell));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.flat_map(expanded).map(|name| format!("crates/{name}")).collect()
}

fn expanded(name: &str) -> Vec<String> {
    let parts = || {
        let (head, rest) = name.split_once('{')?;
        let (middle, tail) = rest.split_once('}')?;
        Some(middle.split(',').map(|one| format!("{head}{one}{tail}")).collect())
    };
    parts().unwrap_or_else(|| vec![name.to_owned()])
}

/// Reads lines like `"apiserver/src/trace.rs" = "the file is written a moment after a change"`.
fn waits(text: &str) -> Result<BTreeMap<String, String>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &str| {
        let (file, why) = line.split_once('=').with_context(|| format!("{WAITS}: {line}"))?;
        let [file, why] = [file, why].map(|text| text.trim().trim_matches('"').to_owned());
        anyhow::ensure!(!why.is_empty(), "{WAITS}: {file} waits for nothing");
        Ok((format!("crates/{file}"), why))
    };
    lines.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::functions;

    fn waits_at(body: &str) -> Option<usize> {
        let text = format!("fn f(backoff: Backoff, wait: Duration) {{\n{body}\n}}");
        let functions = functions::of_file("crates/a/src/b.rs", &text).expect("valid Rust");
        found(&functions).remove("crates/a/src/b.rs")
    }

    #[test]
    fn whatever_sleeps_but_for_a_back_off_is_found() {
        for (body, expect) in [
            ("tokio::time::sleep(wait).await;", Some(2)),
            ("time::sleep(PERIOD).await;", Some(2)),
            ("std::thread::sleep(PAUSE)", Some(2)),
            ("let mut ticks =\n tokio::time::interval(PERIOD);", Some(3)),
            ("tokio::select! { () = tokio::time::sleep_until(due) => {} () = other() => {} }", Some(2)),
            ("tokio::time::sleep(backoff.next(&random)).await;", None),
            ("tokio::time::sleep(self.backoff.next(now(), random)).await;", None),
            ("tokio::time::sleep(wait).await; list.next();", Some(2)),
            ("tokio::time::timeout(wait, work()).await;", None),
            ("sleep(&action, pod);", None),
        ] {
            assert_eq!(waits_at(body), expect, "{body}");
        }
        let tool =
            functions::of_file("crates/bench/src/a.rs", "fn f() { time::sleep(A) }").expect("valid Rust");
        assert!(found(&tool).is_empty());
    }

    #[test]
    fn both_lists_are_read_and_compared() {
        let architecture = "| a | b |\n|---|---|\n| x | `no/src/a.rs` |\n\n  | what is looked at | how often | where |\n  |---|---|---|\n  \
                            | a | 1 s | `a/src/{b,c}.rs` |\n  | d | 1 s; 2 s | `d/src/e.rs`, `f/src/g.rs` |\n\n| x | `no/src/b.rs` |\n";
        let polls = polls(architecture);
        let names =
            ["a/src/b.rs", "a/src/c.rs", "d/src/e.rs", "f/src/g.rs"].map(|name| format!("crates/{name}"));
        assert_eq!(polls, BTreeSet::from(names));
        let waits =
            waits("# Waits\n\"h/src/i.rs\" = \"a lease\"\n\"d/src/e.rs\" = \"twice\"\n").expect("valid");
        let found =
            ["crates/a/src/b.rs", "crates/d/src/e.rs", "crates/j/src/k.rs"].map(|file| (file.to_owned(), 7));
        let breaches = compare(&BTreeMap::from(found), &polls, &waits);
        assert_eq!(
            breaches,
            [
                "crates/j/src/k.rs:7: waits for time to pass: a poll stands in ARCHITECTURE.md, anything else in docs/waits.toml",
                "docs/waits.toml: crates/h/src/i.rs does not wait, or only for a back-off",
                "docs/waits.toml: crates/d/src/e.rs stands in ARCHITECTURE.md, too",
            ]
        );
        assert!(super::waits("\"a\" = \"\"").is_err());
    }
}
