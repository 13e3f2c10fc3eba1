//! The answers of webhooks that review something: an object of the kind and version that was asked, with a status.
//!
//! Objects are objects: what is written as a list is never taken for one.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// How much of a stranger's text is shown.
const SHOWN_BYTES_MAX: usize = 256;

/// The kind of a review, and the version in which it was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Review {
    api_version: String,
    kind: String,
    status: Option<Map<String, Value>>,
}

/// An answer that is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    /// It is no object.
    #[error("the answer is no {0}: it is no object")]
    NoObject(String),
    /// It is an object of another form.
    #[error("the answer is no {kind}: {source}")]
    Form {
        /// The kind that it should be of.
        kind: String,
        /// Why it is not.
        source: serde_json::Error,
    },
    /// It says that it is something else.
    #[error("the answer is {found:?} of {found_version:?}, not {expected}")]
    Kind {
        /// Its kind, as far as it is shown.
        found: String,
        /// Its version, as far as it is shown.
        found_version: String,
        /// Kind and version that it should be of.
        expected: String,
    },
    /// A field has another form.
    #[error("{field}: {source}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Somebody is known who has no name.
    #[error("the webhook knows the user, and does not say who it is")]
    Nameless,
    /// There is too much of somebody.
    #[error("what the webhook says of the user is longer than {0} bytes")]
    TooLong(usize),
}

/// Reads the status of an answer; an absent one is an empty one.
///
/// # Errors
/// What is wrong with it.
pub(super) fn status<T: DeserializeOwned>(expected: Kind<'_>, answer: &[u8]) -> Result<T, AnswerError> {
    let Kind { group, version, kind } = expected;
    if !answer.trim_ascii_start().starts_with(b"{") {
        return Err(AnswerError::NoObject(kind.to_owned()));
    }
    let review: Review = serde_json::from_slice(answer)
        .map_err(|source| AnswerError::Form { kind: kind.to_owned(), source })?;
    let api_version = format!("{group}/{version}");
    if review.kind != kind || review.api_version != api_version {
        let shown = |text: &str| cut(text, SHOWN_BYTES_MAX).to_owned();
        return Err(AnswerError::Kind {
            found: shown(&review.kind),
            found_version: shown(&review.api_version),
            expected: format!("{kind} of {api_version}"),
        });
    }
    read("status", review.status)
}

/// Reads the object of a field.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read<T: DeserializeOwned>(
    field: &'static str,
    object: Option<Map<String, Value>>,
) -> Result<T, AnswerError> {
    let read = serde_json::from_value(Value::Object(object.unwrap_or_default()));
    read.map_err(|source| AnswerError::Field { field, source })
}

/// The beginning of a text.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
