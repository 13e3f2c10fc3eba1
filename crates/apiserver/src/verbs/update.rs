//! PUT: replaces an object, or a part of it.

use http::StatusCode;
use machinery::field::{FieldError, FieldErrors, Path, Reason};
use machinery::metadata::{self, Metadata};

use super::answer;
use crate::answer::Answer;
use crate::api::Api;
use crate::kinds::Part;
use crate::request::Authorized;
use crate::request_info::Verb;
use crate::status::{Error, Result};
use crate::write::change::change;
use crate::write::options::precondition_failed;
use crate::write::{create, decoding, identity};

/// Replaces the object with the body.
///
/// # Errors
/// What the client is told.
pub async fn update(api: &Api, request: &Authorized) -> Result<Answer> {
    replace(api, request, Part::Object).await
}

/// Replaces `part` of the object with that of the body.
///
/// # Errors
/// What the client is told.
pub async fn replace(api: &Api, request: &Authorized, part: Part) -> Result<Answer> {
    let mut decoded = decoding::body(request)?;
    identity::take_namespace(request, decoded.object_mut())?;
    let name = Metadata::of(decoded.object()).name().to_owned();
    identity::check_name(request, &name)?;
    let strategy = request.kind.strategy();
    if Metadata::of(decoded.object()).resource_version().is_empty() && !strategy.allow_unconditional_update {
        let path = Path::new("metadata").child("resourceVersion");
        // Go prints the number that stands for none in hexadecimal.
        let message = "Invalid value: 0x0: must be specified for an update".to_owned();
        let errors = FieldErrors::from(FieldError { path, reason: Reason::Invalid, message });
        return Err(Error::invalid(request.kind.kind_subject(), &name, &errors));
    }
    let outcome = change(api, request, part, |_| Ok(decoded.clone())).await;
    match outcome {
        Err(error)
            if error.reason == "NotFound" && strategy.allow_create_on_update && part == Part::Object =>
        {
            authorize_create(api, request).await?;
            let uid = Metadata::of(decoded.object()).uid();
            if !uid.is_empty() {
                return Err(precondition_failed(request, &name, "UID", uid, ""));
            }
            metadata::remove(decoded.object_mut(), "resourceVersion");
            let committed = create::create(api, request, decoded).await?;
            Ok(answer(StatusCode::CREATED, committed))
        }
        other => Ok(answer(StatusCode::OK, other?)),
    }
}

/// A write that creates what it does not find needs both permissions.
///
/// # Errors
/// 403.
pub async fn authorize_create(api: &Api, request: &Authorized) -> Result<()> {
    let mut info = request.info.clone();
    if let Some(resource) = &mut info.resource {
        resource.verb = Verb::Create;
    }
    api.security.authorize(request.user(), &info).await.map(drop)
}
