//! DELETE of a collection: every object that the selectors see, page by page if a limit is set, one by one.
//!
//! The answer is the list of what was there, as a LIST with the same options gives it: objects as they were before they
//! were deleted, and with a limit the token that goes on.
//! Source: `Store.DeleteCollection` of `k8s.io/apiserver/pkg/registry/generic/registry`.

use super::list;
use crate::answer::Answer;
use crate::api::Api;
use crate::request::Authorized;
use crate::request_info::{ResourceInfo, Verb};
use crate::status::Result;
use crate::write::delete;
use crate::write::options::DeleteOptions;

/// Deletes what the selectors see.
///
/// # Errors
/// The first failure that is not a 404.
pub async fn delete_collection(api: &Api, request: &Authorized) -> Result<Answer> {
    let options = DeleteOptions::of(request)?;
    let listed = list::read(api, request).await?;
    for object in &listed.objects {
        let namespace = object.key.rsplit('/').nth(1).filter(|_| request.kind.is_namespaced());
        let one = request.with_resource(
            &request.kind,
            ResourceInfo {
                verb: Verb::Delete,
                name: object.name().to_owned(),
                namespace: namespace.unwrap_or_default().to_owned(),
                ..ResourceInfo::clone(&request.resource)
            },
        )?;
        match delete::delete(api, &one, &options).await {
            Err(error) if error.reason != "NotFound" => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(Answer::List(listed))
}
