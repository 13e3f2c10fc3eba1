//! Subresources of any kind: a part of them, or their scale.

use super::{get, patch, scale, update};
use crate::answer::Answer;
use crate::api::Api;
use crate::kinds::Part;
use crate::request::Authorized;
use crate::request_info::Verb;
use crate::status::{Error, Result};

/// Runs a verb on a subresource.
///
/// # Errors
/// What the client is told.
pub async fn run(api: &Api, request: &Authorized) -> Result<Answer> {
    let row = request.kind.row();
    match check(request)? {
        "status" => part(api, request, Part::Status).await,
        "scale" => scale::run(api, request).await,
        "approval" => part(api, request, Part::Approval).await,
        name if resources::partial(row, name).is_some() => part(api, request, Part::Partial(name)).await,
        _ => Err(Error::unknown_path()),
    }
}

/// Checks that there is such a subresource, and that the verb can be done on it; answers its name.
///
/// # Errors
/// 404 or 405 if not.
pub fn check(request: &Authorized) -> Result<&'static str> {
    let subresource = request.kind.row().subresource(&request.resource.subresource);
    let subresource = subresource.ok_or_else(Error::unknown_path)?;
    if !subresource.verbs.contains(&request.resource.verb.as_str()) {
        return Err(Error::method_not_allowed());
    }
    Ok(subresource.name)
}

async fn part(api: &Api, request: &Authorized, part: Part) -> Result<Answer> {
    match request.resource.verb {
        Verb::Get => get::get(api, request).await,
        Verb::Update => update::replace(api, request, part).await,
        Verb::Patch => patch::patch_part(api, request, part).await,
        _ => Err(Error::method_not_allowed()),
    }
}
