//! The notes of a request's handling beside its answer: warnings for the client, annotations for the audit log.
//!
//! Shared by all copies of a request. Nothing is allocated until there is something to say.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;

/// How long a warning may be.
const WARNING_CHARS_MAX: usize = 4096;
/// How many warnings are kept.
const WARNINGS_MAX: usize = 64;
/// How long all of them may be together. When they are longer, each is cut, and then what is too much is left out: clients
/// refuse an answer whose headers are too long. Source: `k8s.io/apiserver/pkg/endpoints/filters/warning.go`.
const ALL_CHARS_MAX: usize = 4096;
/// To how much.
const CUT_CHARS: usize = 256;

/// Warnings and annotations.
#[derive(Debug, Default)]
pub struct Notes {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    warnings: Vec<String>,
    annotations: BTreeMap<String, String>,
    /// Those that tell of what the client sent.
    request_annotations: BTreeMap<String, String>,
}

/// The detail of an audit event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Who asked for what.
    Metadata,
    /// What they sent, too.
    Request,
}

impl Notes {
    /// Warns the client, once per text.
    pub fn warn(&self, warning: impl Into<String>) {
        let mut warning: String = warning.into();
        if let Some((cut, _)) = warning.char_indices().nth(WARNING_CHARS_MAX) {
            warning.truncate(cut);
        }
        let mut kept = self.kept.lock();
        if kept.warnings.len() < WARNINGS_MAX && !kept.warnings.contains(&warning) {
            kept.warnings.push(warning);
        }
    }

    /// Warns the client of several things.
    pub fn warn_all(&self, warnings: impl IntoIterator<Item = String>) {
        warnings.into_iter().for_each(|warning| self.warn(warning));
    }

    /// Annotates the audit event; the first value of a key stays.
    pub fn annotate(&self, key: &str, value: &str) {
        self.kept.lock().annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }

    /// Annotates the audit event if it has what the client sent: the annotation tells of that.
    pub fn annotate_request(&self, key: &str, value: &str) {
        let mut kept = self.kept.lock();
        kept.request_annotations.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }

    /// All annotations, with those that belong to what the client sent or without.
    pub fn annotations(&self, detail: Detail) -> BTreeMap<String, String> {
        let kept = self.kept.lock();
        let mut all = kept.annotations.clone();
        if detail == Detail::Request {
            all.extend(kept.request_annotations.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        all
    }

    /// Adds the warnings to a response's headers (RFC 7234, 5.5).
    pub fn write(&self, headers: &mut HeaderMap) {
        let kept = self.kept.lock();
        let chars: usize = kept.warnings.iter().map(|warning| warning.chars().count()).sum();
        let longest = if chars > ALL_CHARS_MAX { CUT_CHARS } else { WARNING_CHARS_MAX };
        let mut left = ALL_CHARS_MAX;
        for warning in &kept.warnings {
            let warning: String = warning.chars().take(longest).collect();
            let Some(rest) = left.checked_sub(warning.chars().count()) else { return };
            left = rest;
            let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
                headers.append(http::header::WARNING, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_never_grow_too_long_for_clients() {
        let notes = Notes::default();
        notes.warn("short");
        notes.warn("ü".repeat(9000));
        (0..100).for_each(|n| notes.warn(format!("{n}{}", "x".repeat(1000))));
        let mut headers = HeaderMap::new();
        notes.write(&mut headers);
        let all: Vec<_> = headers.get_all(http::header::WARNING).iter().collect();
        assert_eq!(*all.first().unwrap(), "299 - \"short\"");
        assert_eq!(all.get(1).unwrap().len(), "299 - \"\"".len() + 2 * CUT_CHARS);
        assert!(all.len() > 10 && all.iter().map(|value| value.len()).sum::<usize>() < 8192, "{}", all.len());
    }

    #[test]
    fn a_warning_is_said_once_and_quoted() {
        let notes = Notes::default();
        for _ in 0..2 {
            notes.warn("say \"no\"");
        }
        let mut headers = HeaderMap::new();
        notes.write(&mut headers);
        let all: Vec<_> = headers.get_all(http::header::WARNING).iter().collect();
        assert_eq!(all, ["299 - \"say \\\"no\\\"\""]);
    }
}
