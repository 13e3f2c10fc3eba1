//! DELETE: one object, and what its client is told.

use http::StatusCode;
use serde_json::json;

use super::answer;
use crate::answer::Answer;
use crate::api::Api;
use crate::request::Authorized;
use crate::status::{self, Result};
use crate::write::delete;
use crate::write::options::DeleteOptions;

/// Deletes an object.
///
/// # Errors
/// What the client is told.
pub async fn delete(api: &Api, request: &Authorized) -> Result<Answer> {
    let options = DeleteOptions::of(request)?;
    let (committed, is_removed) = delete::delete(api, request, &options).await?;
    if !is_removed || request.kind.is_deletion_answered() {
        let is_pending = !is_removed && options.is_waited_for;
        let code = if is_pending { StatusCode::ACCEPTED } else { StatusCode::OK };
        return Ok(answer(code, committed));
    }
    let uid = committed.object.value().pointer("/metadata/uid").cloned().unwrap_or_default();
    let mut details = json!({"name": request.resource.name, "kind": request.kind.resource(), "uid": uid});
    if !request.kind.group().is_empty() {
        details["group"] = request.kind.group().into();
    }
    Ok(Answer::value(status::success(details)))
}
