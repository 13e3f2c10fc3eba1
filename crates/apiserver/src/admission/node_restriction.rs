//! A kubelet changes its own node and the Pods on it, nothing else.
//!
//! The rules are `auth`'s; this finds the objects they are about.
//! Source: `plugin/pkg/admission/noderestriction`.

use auth::node_restriction::{Objects, check};
use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation};
use crate::security::attributes;
use crate::status::{Error, Result};
use crate::verbs::Request;

/// Refuses what is none of the node's business.
pub(super) fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    let is_pod = context.request.kind.group().is_empty() && context.request.kind.resource() == "pods";
    let is_delete = context.operation == Operation::Delete;
    let stored = if is_delete { Some(object) } else { context.old };
    let objects =
        Objects { new: (!is_delete).then_some(object), old: stored, pod: stored.filter(|_| is_pod) };
    refuse(context.request, objects, Metadata::of(object).name())
}

/// The same for what is posted below an object: evictions and token requests.
///
/// # Errors
/// 403 with upstream's text.
pub fn validate_posted(request: &Request, posted: &Value, pod: Option<&Value>) -> Result<()> {
    refuse(request, Objects { new: Some(posted), old: None, pod }, &request.resource.name)
}

fn refuse(request: &Request, objects: Objects<'_>, name: &str) -> Result<()> {
    let mut attributes = attributes(&request.info);
    if attributes.name.is_empty() {
        attributes.name = name.to_owned();
    }
    check(&request.user, &attributes, objects).map_err(|why| Error::forbidden(request.subject(), name, &why))
}
