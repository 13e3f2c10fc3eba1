//! Patches: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch.
//!
//! A patch turns one value into another; it knows nothing of versions, admission or storage. The result is not
//! checked against the schema: decode it. Work is bounded by the size of the patch and of the object.

mod json;
mod strategic;

use crate::arena::SchemaRef;
pub use json::Operation;
use serde_json::Value;
pub use strategic::go_text;

/// The reason why a patch cannot be applied. The texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not a patch: a bad request.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: an unprocessable entity.
    #[error("{0}")]
    Invalid(String),
    /// A `test` of the patch says no: an unprocessable entity.
    #[error("{0}")]
    TestFailed(String),
    /// The patch asks for more than one request may: an entity too large.
    #[error("{0}")]
    TooLarge(String),
}

/// Applies a JSON patch.
///
/// # Errors
/// If the bytes are no list of operations, or one of them does not apply.
pub fn json(target: Value, patch: &[u8]) -> Result<Value, PatchError> {
    json::apply(target, patch)
}

/// Applies the operations of a JSON patch.
///
/// # Errors
/// If there are too many, or one of them does not apply.
pub fn operations(target: Value, operations: Vec<Operation>) -> Result<Value, PatchError> {
    json::apply_operations(target, operations)
}

/// Applies a JSON merge patch.
///
/// # Errors
/// If the patch is not an object.
pub fn merge(mut target: Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed("invalid JSON Patch: a merge patch must be an object".into()));
    }
    json_patch::merge(&mut target, patch);
    Ok(target)
}

/// Applies a strategic merge patch to an object of this schema.
///
/// # Errors
/// If the patch is not an object, or its directives are wrong.
pub fn strategic(schema: SchemaRef<'_>, target: Value, patch: Value) -> Result<Value, PatchError> {
    strategic::apply(schema, target, patch)
}
