//! What comes from others is as `deny.toml` allows: its licence, where it is from, and in how many versions.
//!
//! `cargo deny` reads the same file; this needs no network and is part of every run. Advisories, which do, are left to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

const POLICY: &str = "deny.toml";
/// The machines that are built for: what only others take is never built.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// What the source of a package of a registry begins with: no repository, and no folder of somebody else.
const REGISTRY: &str = "registry+";

/// What `deny.toml` says.
#[derive(Debug)]
struct Policy {
    licenses: BTreeSet<String>,
    /// Whose package names no licence: library and expression.
    clarified: BTreeMap<String, String>,
    /// What may be there in several versions.
    skipped: BTreeSet<String>,
}

/// A library, as cargo tells of it.
#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    /// Where it is from; nothing for the workspace's own.
    source: Option<String>,
    license: String,
}

/// Says what is not as `deny.toml` allows.
pub(super) fn check(root: &Path, breaches: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(root.join(POLICY)).context("read deny.toml")?;
    breaches.extend(breaches_of(&Policy::parse(&text)?, &packages(root)?));
    Ok(())
}

impl Policy {
    fn parse(text: &str) -> Result<Self> {
        let list = |name: &str| -> Result<BTreeSet<String>> {
            let start = format!("\n{name} = [");
            let list = super::between(text, &start, "]").with_context(|| format!("{POLICY}: no {name}"))?;
            let lines = list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            Ok(lines.map(|line| line.trim_end_matches(',').trim_matches('"').to_owned()).collect())
        };
        let quoted =
            |line: &str, name: &str| Some(super::between(line, &format!("{name} = \""), "\"")?.to_owned());
        let clarified = text.split("[[licenses.clarify]]").skip(1);
        let clarified = clarified.filter_map(|one| Some((quoted(one, "crate")?, quoted(one, "expression")?)));
        Ok(Self { licenses: list("allow")?, clarified: clarified.collect(), skipped: list("skip")? })
    }
}

fn packages(root: &Path) -> Result<Vec<Package>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version=1", "--locked", "--filter-platform", TARGET]);
    let output = cargo.current_dir(root).output().context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Ok(packages
        .iter()
        .map(|package| Package {
            name: text(&package["name"]).unwrap_or_default(),
            version: text(&package["version"]).unwrap_or_default(),
            source: text(&package["source"]),
            license: text(&package["license"]).unwrap_or_default(),
        })
        .collect())
}

fn breaches_of(policy: &Policy, packages: &[Package]) -> Vec<String> {
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let Some(source) = &package.source else { continue };
        let Package { name, version, .. } = package;
        let license = policy.clarified.get(name).unwrap_or(&package.license);
        versions.entry(name).or_default().insert(version);
        if !source.starts_with(REGISTRY) {
            found.push(format!("{POLICY}: {name} {version} is from {source}, not from a registry"));
        }
        if !is_allowed(license, &policy.licenses) {
            found.push(format!(
                "{POLICY}: {name} {version} has the licence {license:?}, which is not allowed"
            ));
        }
    }
    for (name, versions) in &versions {
        let is_double = versions.len() > 1;
        if is_double && !policy.skipped.contains(*name) {
            let versions: Vec<&str> = versions.iter().copied().collect();
            found.push(format!("{POLICY}: {name} is built in the versions {}", versions.join(", ")));
        }
        if !is_double && policy.skipped.contains(*name) {
            found.push(format!("{POLICY}: {name} has one version only: take it off the list"));
        }
    }
    found
}

/// Whether an SPDX expression is met by these licences. `/` is the `OR` of old; `AND` binds closer, and parentheses closest.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    split(expression, &[" OR ", " / ", "/"])
        .into_iter()
        .any(|choice| split(choice, &[" AND "]).into_iter().all(|part| is_part_allowed(part, allowed)))
}

fn is_part_allowed(part: &str, allowed: &BTreeSet<String>) -> bool {
    let part = part.trim();
    match part.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        Some(inner) => is_allowed(inner, allowed),
        None => allowed.contains(part),
    }
}

/// The parts between separators that no parenthesis encloses.
fn split<'a>(text: &'a str, separators: &[&str]) -> Vec<&'a str> {
    let (mut parts, mut depth, mut start, mut at) = (Vec::new(), 0_usize, 0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let found = separators.iter().find(|separator| depth == 0 && rest.starts_with(**separator));
        if let Some(separator) = found {
            parts.extend(text.get(start..at));
            at += separator.len();
            start = at;
            continue;
        }
        match rest.as_bytes().first() {
            Some(b'(') => depth += 1,
            Some(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += rest.chars().next().map_or(1, char::len_utf8);
    }
    parts.extend(text.get(start..));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[licenses]\nallow = [\n    # Why.\n    \"MIT\",\n    \"ISC\",\n]\n[bans]\nskip = [\n    \"syn\",\n]\n[[licenses.clarify]]\ncrate = \"silent\"\nexpression = \"ISC\"\n";

    #[test]
    fn licences_are_judged_as_they_are_joined() {
        let allowed = Policy::parse(TEXT).unwrap().licenses;
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("GPL-3.0 / MIT", true),
            ("MIT AND ISC", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND ISC", true),
            ("(GPL-3.0 OR LGPL-3.0) AND ISC", false),
            ("GPL-3.0 OR MIT AND GPL-2.0", false),
            ("MIT WITH strings-attached", false),
            ("((MIT", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let package = |name: &str, version: &str, source: Option<&str>, license: &str| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            source: source.map(str::to_owned),
            license: license.to_owned(),
        };
        let packages = [
            package("own", "0.1.0", None, "Whatever"),
            package("nix", "0.29.0", Some(REGISTRY), "MIT"),
            package("nix", "0.31.3", Some(REGISTRY), "MIT"),
            package("silent", "1.0.0", Some(REGISTRY), ""),
            package("syn", "2.0.1", Some(REGISTRY), "MIT"),
            package("copied", "1.0.0", Some("git+https://example.com"), "GPL-3.0"),
        ];
        let found = breaches_of(&Policy::parse(TEXT).unwrap(), &packages);
        assert_eq!(
            found,
            [
                "deny.toml: copied 1.0.0 is from git+https://example.com, not from a registry",
                "deny.toml: copied 1.0.0 has the licence \"GPL-3.0\", which is not allowed",
                "deny.toml: nix is built in the versions 0.29.0, 0.31.3",
                "deny.toml: syn has one version only: take it off the list",
            ]
        );
    }

    #[test]
    fn a_policy_without_its_lists_is_refused() {
        assert!(Policy::parse("[licenses]\nallow = [\n]\n").is_err());
    }
}
