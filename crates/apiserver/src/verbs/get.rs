//! GET of one object: the cache's bytes.

use http::StatusCode;

use crate::answer::Answer;
use crate::api::Api;
use crate::request::Authorized;
use crate::status::{Error, Result};

/// Reads one object. `resourceVersion=0` takes what is there; N waits for N; nothing waits for everything that was
/// committed before.
///
/// # Errors
/// 404, or 504 when the revision asked for does not come; 500 for what cannot be converted.
pub async fn get(api: &Api, request: &Authorized) -> Result<Answer> {
    match request.info.query.get("resourceVersion") {
        Some("0") => {}
        Some(text) => {
            let revision = super::list::parse_revision(text)?;
            api.cache.reached(revision).await?;
        }
        None => {
            api.cache.fresh().await?;
        }
    }
    let object = request
        .kind
        .cache()
        .read(&request.key())?
        .ok_or_else(|| Error::not_found(request.subject(), &request.resource.name))?;
    let object = request.kind.served(object).await?;
    Ok(Answer::Object { code: StatusCode::OK, object })
}
