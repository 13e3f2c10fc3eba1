//! Versions. Source: `k8s.io/apiserver/pkg/cel/library` (semver, version 1), `github.com/blang/semver`.

use std::borrow::Cow;
use std::sync::Arc;

use machinery::field::quote;
use semver::Version;

use super::{Answer, Row, fail, no_overload};
use crate::context::Context;
use crate::value::Value;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "semver",
        overloads: &[
            ("string_to_semver", "(string) -> kubernetes.Semver"),
            ("string_bool_to_semver", "(string, bool) -> kubernetes.Semver"),
        ],
        body: semver,
    },
    Row {
        name: "isSemver",
        overloads: &[
            ("is_semver_string", "(string) -> bool"),
            ("is_semver_string_bool", "(string, bool) -> bool"),
        ],
        body: is_semver,
    },
    Row {
        name: "major",
        overloads: &[("semver_major", PART)],
        body: |_, args| part(args, |version| version.major),
    },
    Row {
        name: "minor",
        overloads: &[("semver_minor", PART)],
        body: |_, args| part(args, |version| version.minor),
    },
    Row {
        name: "patch",
        overloads: &[("semver_patch", PART)],
        body: |_, args| part(args, |version| version.patch),
    },
];

const PART: &str = "kubernetes.Semver.() -> int";

/// Why a text is no version.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("Version string empty")]
    Empty,
    #[error("No Major.Minor.Patch elements found")]
    TooFew,
    #[error("short version cannot contain PreRelease/Build meta data")]
    ShortWithMore,
    #[error("Invalid character(s) found in {0} {1}")]
    Characters(&'static str, String),
    #[error("{0} must not contain leading zeroes {1}")]
    Zeros(&'static str, String),
    #[error("strconv.ParseUint: parsing {0}: {1}")]
    Number(String, &'static str),
    #[error("{0} is empty")]
    NoPart(&'static str),
    #[error("{0}")]
    Other(#[from] semver::Error),
}

/// A text, and whether it is to be made good before it is read as a version.
fn written<'v>(args: &'v [Value<'_>]) -> Option<(&'v str, bool)> {
    match args {
        [Value::String(text)] => Some((text, false)),
        [Value::String(text), Value::Bool(is_loose)] => Some((text, *is_loose)),
        _ => None,
    }
}

/// A version; one that is to be made good may have a `v`, zeros in front, and fewer than three numbers.
fn version(text: &str, is_loose: bool) -> Result<Version, Refusal> {
    let good = if is_loose { normal(text)?.into() } else { Cow::Borrowed(text) };
    check(&good)?;
    Ok(Version::parse(&good)?)
}

fn normal(text: &str) -> Result<String, Refusal> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err(Refusal::ShortWithMore);
    }
    parts.resize(3, "0".to_owned());
    Ok(parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|first: char| first.is_ascii_digit()) { rest.to_owned() } else { format!("0{rest}") }
}

/// The parts of a version in upstream's order, so that the first wrong one is told.
fn check(text: &str) -> Result<(), Refusal> {
    if text.is_empty() {
        return Err(Refusal::Empty);
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Refusal::TooFew);
    };
    check_number(major, "major number", "Major number")?;
    check_number(minor, "minor number", "Minor number")?;
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, before) = rest.split_once('-').map_or((rest, None), |(patch, before)| (patch, Some(before)));
    check_number(patch, "patch number", "Patch number")?;
    for part in before.into_iter().flat_map(|before| before.split('.')) {
        if part.is_empty() {
            return Err(Refusal::NoPart("Prerelease"));
        }
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            check_number(part, "prerelease", "Numeric PreRelease version")?;
        }
        check_name(part, "prerelease")?;
    }
    for part in build.into_iter().flat_map(|build| build.split('.')) {
        if part.is_empty() {
            return Err(Refusal::NoPart("Build meta data"));
        }
        check_name(part, "build meta data")?;
    }
    Ok(())
}

fn check_number(part: &str, name: &'static str, sentence: &'static str) -> Result<(), Refusal> {
    if !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refusal::Characters(name, quote(part)));
    }
    if part.len() > 1 && part.starts_with('0') {
        return Err(Refusal::Zeros(sentence, quote(part)));
    }
    match part.parse::<u64>() {
        Ok(_) => Ok(()),
        Err(_) if part.is_empty() => Err(Refusal::Number(quote(part), "invalid syntax")),
        Err(_) => Err(Refusal::Number(quote(part), "value out of range")),
    }
}

fn check_name(part: &str, name: &'static str) -> Result<(), Refusal> {
    if part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Ok(());
    }
    Err(Refusal::Characters(name, quote(part)))
}

fn semver<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    context.allocate(size_of::<Version>())?;
    let Some((text, is_loose)) = written(args) else { return no_overload() };
    match version(text, is_loose) {
        Ok(version) => Ok(Value::Semver(Arc::new(version))),
        Err(refusal) => fail(refusal.to_string()),
    }
}

fn is_semver<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let Some((text, is_loose)) = written(args) else { return no_overload() };
    Ok(Value::Bool(version(text, is_loose).is_ok()))
}

fn part<'a>(args: &[Value<'a>], part: fn(&Version) -> u64) -> Answer<'a> {
    let [Value::Semver(version)] = args else { return no_overload() };
    // As upstream, where the largest become negative.
    Ok(Value::Int(part(version).cast_signed()))
}
