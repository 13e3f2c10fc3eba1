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

/// Reads the status of an answer; an absent one is an empty one.
///
/// # Errors
/// What is wrong with it.
pub(super) fn status<T: DeserializeOwned>(expected: Kind<'_>, answer: &[u8]) -> Result<T, String> {
    let Kind { group, version, kind } = expected;
    if !answer.trim_ascii_start().starts_with(b"{") {
        return Err(format!("the answer is no {kind}: it is no object"));
    }
    let review: Review =
        serde_json::from_slice(answer).map_err(|why| format!("the answer is no {kind}: {why}"))?;
    let api_version = format!("{group}/{version}");
    if review.kind != kind || review.api_version != api_version {
        let (found, found_version) =
            (cut(&review.kind, SHOWN_BYTES_MAX), cut(&review.api_version, SHOWN_BYTES_MAX));
        return Err(format!("the answer is {found:?} of {found_version:?}, not {kind} of {api_version}"));
    }
    read(review.status).map_err(|why| format!("status: {why}"))
}

/// Reads an object.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read<T: DeserializeOwned>(object: Option<Map<String, Value>>) -> Result<T, String> {
    serde_json::from_value(Value::Object(object.unwrap_or_default())).map_err(|why| why.to_string())
}

/// The beginning of a text.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
