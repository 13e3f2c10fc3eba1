//! The level of the Pod Security Standards that a namespace asks for, by its labels. Pure.
//!
//! Source: `k8s.io/pod-security-admission/api`.

use std::fmt;

use machinery::field::{FieldError, FieldErrors, Path};
use serde_json::{Map, Value};

/// What labels of a namespace begin with.
const PREFIX: &str = "pod-security.kubernetes.io/";

/// The strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything goes.
    Privileged,
    /// Known ways to more rights are closed.
    Baseline,
    /// Hardened.
    Restricted,
}

/// The minor version of the rules. `Latest` is newer than all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `v1.<minor>`
    Minor(u32),
    /// `latest`
    Latest,
}

/// A level as of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelVersion {
    /// The strictness.
    pub level: Level,
    /// The version of the rules.
    pub version: Version,
}

/// The levels that a namespace asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The level whose violations are refused.
    pub enforce: LevelVersion,
    /// The level whose violations are noted in the audit log.
    pub audit: LevelVersion,
    /// The level whose violations are warned of.
    pub warn: LevelVersion,
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

impl LevelVersion {
    const PRIVILEGED: Self = Self { level: Level::Privileged, version: Version::Latest };
}

impl Policy {
    /// The policy of a namespace without labels: nothing.
    pub const DEFAULT: Self = Self {
        enforce: LevelVersion::PRIVILEGED,
        audit: LevelVersion::PRIVILEGED,
        warn: LevelVersion::PRIVILEGED,
    };

    /// `true` if nothing is asked for.
    pub fn is_fully_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|one| one.level == Level::Privileged)
    }

    /// The policy that labels ask for, and those labels that cannot be read: enforcement fails closed, audit and warn
    /// open.
    pub fn of_labels(labels: Option<&Map<String, Value>>) -> (Self, FieldErrors) {
        let mut policy = Self::DEFAULT;
        let mut errors = FieldErrors::new();
        let Some(labels) = labels else { return (policy, errors) };
        let text = |mode: &str| labels.get(&format!("{PREFIX}{mode}")).and_then(Value::as_str);
        let mut has_enforce_level = false;
        for (mode, target) in
            [("enforce", &mut policy.enforce), ("audit", &mut policy.audit), ("warn", &mut policy.warn)]
        {
            if let Some(given) = text(mode) {
                let level = level(given);
                if level.is_none() {
                    errors.push(refused(mode, given, "must be one of privileged, baseline, restricted"));
                }
                let fallback = if mode == "enforce" { Level::Restricted } else { Level::Privileged };
                has_enforce_level |= mode == "enforce" && level.is_some();
                target.level = level.unwrap_or(fallback);
            }
            let mode = format!("{mode}-version");
            if let Some(given) = text(&mode) {
                let version = version(given);
                if version.is_none() {
                    errors.push(refused(&mode, given, "must be \"latest\" or \"v1.x\""));
                }
                target.version = version.unwrap_or(Version::Latest);
            }
        }
        // Who enforces more than the default also wants to warn controllers about it.
        if text("warn").is_none() && has_enforce_level && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if text("warn-version").is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }
}

fn refused(mode: &str, given: &str, why: &str) -> FieldError {
    let path = Path::new("metadata").child("labels").key(&format!("{PREFIX}{mode}"));
    FieldError::invalid(&path, given, why)
}

fn level(text: &str) -> Option<Level> {
    match text {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

fn version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(Version::Latest);
    }
    let digits = text.strip_prefix("v1.")?;
    let is_canonical = !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| is_canonical).map(Version::Minor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(labels: &Value, expect: &str, errors: &[&str]) {
        let labels: Map<String, Value> = labels
            .as_object()
            .unwrap()
            .iter()
            .map(|(mode, value)| (format!("{PREFIX}{mode}"), value.clone()))
            .collect();
        let (policy, found) = Policy::of_labels(Some(&labels));
        assert_eq!(format!("{} {} {}", policy.enforce, policy.audit, policy.warn), expect);
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), errors);
    }

    #[test]
    fn labels_say_the_level_and_the_version() {
        check(&json!({}), "privileged:latest privileged:latest privileged:latest", &[]);
        check(
            &json!({"enforce": "baseline", "enforce-version": "v1.20"}),
            "baseline:v1.20 privileged:latest baseline:v1.20",
            &[],
        );
        check(
            &json!({"enforce": "restricted", "warn": "baseline", "audit": "restricted"}),
            "restricted:latest restricted:latest baseline:latest",
            &[],
        );
    }

    #[test]
    fn unreadable_labels_enforce_the_strictest_level() {
        check(
            &json!({"enforce": "strict", "audit": "x", "warn-version": "v1.01"}),
            "restricted:latest privileged:latest privileged:latest",
            &[
                "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of \
                 privileged, baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"x\": must be one of privileged, \
                 baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"v1.01\": must be \
                 \"latest\" or \"v1.x\"",
            ],
        );
    }
}
