//! DELETE of a collection: every object that the selectors see, one by one.

use http::StatusCode;
use serde_json::{Value, json};

use super::list_options::{Purpose, validate};
use super::options::DeleteOptions;
use super::{Answer, Request, delete};
use crate::api::Api;
use crate::cache::Filter;
use crate::request_info::{ResourceInfo, Verb};
use crate::status::Result;

/// Deletes what the selectors see.
///
/// # Errors
/// The first failure that is not a 404.
pub async fn delete_collection(api: &Api, request: &Request) -> Result<Answer> {
    validate(&request.info.query, Purpose::List)?;
    let options = DeleteOptions::of(request)?;
    let filter = Filter::of(request.kind, &request.resource, &request.info.query)?;
    let revision = api.cache.fresh().await?;
    request.kind.cache(api).check_readable(&filter.prefix)?;
    let listing = request.kind.cache(api).list(&filter.prefix, revision);
    let mut items: Vec<Value> = Vec::new();
    for object in listing.objects.iter().filter(|object| filter.matches(object)) {
        let segments: Vec<&str> = object.key.rsplit('/').take(2).collect();
        let namespace = if request.kind.is_namespaced() { segments.get(1).copied() } else { None };
        let one = request.with_resource(
            request.kind,
            ResourceInfo {
                verb: Verb::Delete,
                name: object.name().to_owned(),
                namespace: namespace.unwrap_or_default().to_owned(),
                ..request.resource.clone()
            },
        );
        match delete::delete_object(api, &one, &options).await {
            Ok((committed, _)) => items.push(request.kind.value(&committed.object)),
            Err(error) if error.reason == "NotFound" => {}
            Err(error) => return Err(error),
        }
    }
    let list = json!({
        "kind": request.kind.row().list_kind,
        "apiVersion": request.kind.api_version(),
        "metadata": {"resourceVersion": api.cache.revision().to_string()},
        "items": items,
    });
    Ok(Answer::Value { code: StatusCode::OK, value: list, warnings: Vec::new() })
}
