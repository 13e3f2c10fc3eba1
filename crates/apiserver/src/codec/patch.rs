//! A patch: its media types, and how it is read.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use super::FieldValidation;
use crate::kinds::Kind;
use crate::negotiate::media_type;
use crate::request_info::Query;
use crate::status::{Error, Result};

/// RFC 6902.
const JSON_PATCH: &str = "application/json-patch+json";
/// RFC 7386.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Kubernetes' own.
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// Server-side apply.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A patch, parsed once.
#[derive(Clone, Debug)]
pub enum Patch {
    /// A list of operations.
    Json(Bytes),
    /// A partial object; null removes.
    Merge(Value),
    /// A partial object with directives, merged by the schema.
    Strategic(Value),
}

impl Patch {
    /// Reads a patch of an object of `kind`; answers it with what is to be warned about, or under strict validation refused.
    ///
    /// # Errors
    /// 415 for types that are not known, 400 for bodies that cannot be read.
    pub fn of(kind: &Kind, headers: &HeaderMap, query: &Query, body: &Bytes) -> Result<(Self, Vec<String>)> {
        let validation = FieldValidation::of(query);
        let read = |what| super::merge_patch(kind, body, validation, what);
        match media_type(headers) {
            JSON_PATCH => Ok((Self::Json(body.clone()), Vec::new())),
            MERGE_PATCH => read("error decoding patch: ").map(|(patch, strict)| (Self::Merge(patch), strict)),
            STRATEGIC_PATCH if !kind.is_custom() => {
                read("").map(|(patch, strict)| (Self::Strategic(patch), strict))
            }
            _ => {
                let known: &[&str] = match kind.is_custom() {
                    true => &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH],
                    false => &[JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH],
                };
                Err(Error::unsupported_media_type(&known.join(", ")))
            }
        }
    }

    /// The object that the client is told it sent: the patch if it is strategic, else what it makes of the object.
    pub fn shown(&self, kind: &Kind, object: &Value) -> String {
        match self {
            Self::Strategic(patch) => super::go_text(patch),
            _ => super::patch(kind, self, object).unwrap_or_default().to_string(),
        }
    }
}
