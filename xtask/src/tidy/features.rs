//! Libraries are built with the same features whichever crate is built or tested alone, so that they are built once.
//!
//! Cargo gives a library the features that the chosen crates ask for, and their tests: `cargo test -p cni` and
//! `cargo test --workspace` may well want other builds of hundreds of libraries. The crate `workspace-hack`, which the
//! tests of all crates depend on, asks for everything that any of them asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A library with its version, and the features of each of its builds: that for programs that run while building may
/// differ.
type Builds = BTreeMap<String, BTreeSet<String>>;

/// Says which libraries have other features if `members` are built alone.
pub(super) fn check<'a>(
    root: &Path,
    members: impl IntoIterator<Item = &'a str>,
    breaches: &mut Vec<String>,
) -> Result<()> {
    let all = builds(root, &["--workspace"])?;
    let mut lacking = BTreeMap::new();
    for member in members {
        for (library, of) in differing(&all, &builds(root, &["--package", member])?) {
            lacking.entry(library).or_insert((member.to_owned(), of));
        }
    }
    breaches.extend(lacking.into_iter().map(|(library, (member, of))| {
        let wanted: Vec<&str> = of.iter().map(String::as_str).collect();
        format!(
            "crates/workspace-hack/Cargo.toml: {library} is built anew for {member} alone; the workspace has it with {}",
            wanted.join(" and with ")
        )
    }));
    Ok(())
}

/// The libraries of which `alone` has a build that `all` does not have, with those that `all` has.
fn differing(all: &Builds, alone: &Builds) -> Builds {
    let other = alone.iter().filter_map(|(library, builds)| {
        let known = all.get(library)?;
        (!builds.is_subset(known)).then(|| (library.clone(), known.clone()))
    });
    other.collect()
}

fn builds(root: &Path, which: &[&str]) -> Result<Builds> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}|{f}"]);
    let output = cargo.args(which).current_dir(root).output().context("run cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(parse(&String::from_utf8(output.stdout)?))
}

/// Reads lines such as `tokio v1.54.1|default,fs,io-util`.
fn parse(text: &str) -> Builds {
    let mut builds = Builds::new();
    for (package, features) in text.lines().filter_map(|line| line.split_once('|')) {
        let library: Vec<&str> = package.split_whitespace().take(2).collect();
        // What was said before is marked so.
        let features = features.trim_end_matches(" (*)");
        builds.entry(library.join(" ")).or_default().insert(features.to_owned());
    }
    builds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_built_anew_is_found() {
        let all = parse(
            "tokio v1.54.1|fs,net\ntokio v1.54.1|fs,net (*)\nsyn v2.0.1 (proc-macro)|full\nsyn v2.0.1 (proc-macro)|derive\n",
        );
        let check = |alone: &str, expected: &[&str]| {
            let found: Vec<String> = differing(&all, &parse(alone)).into_keys().collect();
            assert_eq!(found, expected, "{alone}");
        };
        check("tokio v1.54.1|fs,net\nsyn v2.0.1 (proc-macro)|derive", &[]);
        check("tokio v1.54.1|fs", &["tokio v1.54.1"]);
        check("syn v2.0.1|derive,full\ntokio v1.54.1|fs,net", &["syn v2.0.1"]);
        check("only-here v1.0.0|", &[]);
    }
}
