//! PATCH: JSON patch, merge patch, strategic merge patch.
//!
//! Server-side apply is refused with 415 until field ownership is kept.

use bytes::Bytes;
use http::StatusCode;
use machinery::metadata::Metadata;
use serde_json::Value;

use super::options::FieldValidation;
use super::update::{Part, change};
use super::{Answer, Request, answer, decode};
use crate::api::Api;
use crate::codec;
use crate::negotiate::media_type;
use crate::status::{Error, Result};

/// RFC 6902.
const JSON_PATCH: &str = "application/json-patch+json";
/// RFC 7386.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Kubernetes' own.
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

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
    /// Reads the patch of a request.
    ///
    /// # Errors
    /// 415 for types that are not known, 400 for bodies that cannot be read.
    pub fn of(request: &Request) -> Result<Self> {
        let media_type = media_type(&request.headers);
        let parse = || codec::decode(crate::negotiate::Format::Json, &request.body);
        match media_type {
            JSON_PATCH => Ok(Self::Json(request.body.clone())),
            MERGE_PATCH => Ok(Self::Merge(parse()?)),
            STRATEGIC_PATCH => Ok(Self::Strategic(parse()?)),
            _ => Err(Error::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH].join(", "))),
        }
    }

    /// The patched object.
    ///
    /// # Errors
    /// 400 or 422 when the patch does not fit the object.
    pub fn apply(&self, request: &Request, object: &Value) -> Result<Value> {
        codec::patch(request.kind, self, object)
    }

    /// The patched object, for objects without a row of their own, such as Scale; strategic is plain merge there.
    ///
    /// # Errors
    /// As [`Patch::apply`].
    pub fn apply_untyped(&self, object: &Value) -> Result<Value> {
        codec::patch_untyped(self, object)
    }
}

/// Changes part of an object.
///
/// # Errors
/// What the client is told.
pub async fn patch(api: &Api, request: &Request) -> Result<Answer> {
    patch_part(api, request, Part::Object).await
}

/// Changes part of `part` of an object.
///
/// # Errors
/// What the client is told.
pub async fn patch_part(api: &Api, request: &Request, part: Part) -> Result<Answer> {
    let patch = Patch::of(request)?;
    let validation = FieldValidation::of(request)?;
    let mut warnings = Vec::new();
    let committed = change(api, request, part, |old| {
        let mut patched = patch.apply(request, old)?;
        let (old_version, new_version) = (
            Metadata::of(old).resource_version().to_owned(),
            Metadata::of(&patched).resource_version().to_owned(),
        );
        // Only a revision that the patch itself names is a precondition.
        if old_version == new_version {
            machinery::metadata::remove(&mut patched, "resourceVersion");
        }
        let decoded = decode::typed(request, request.kind, patched, validation)?;
        warnings = decoded.warnings;
        check_identity(request, &decoded.object)?;
        Ok(decoded.object)
    })
    .await?;
    Ok(answer(StatusCode::OK, committed, warnings))
}

fn check_identity(request: &Request, patched: &Value) -> Result<()> {
    let name = Metadata::of(patched).name();
    if name != request.resource.name {
        return Err(super::create::name_mismatch(name, &request.resource.name));
    }
    if request.kind.is_namespaced() && Metadata::of(patched).namespace() != request.resource.namespace {
        return Err(Error::bad_request(
            "the namespace of the object does not match the namespace on the request",
        ));
    }
    Ok(())
}
