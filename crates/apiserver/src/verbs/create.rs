//! POST: a new object.

use http::StatusCode;

use super::answer;
use crate::answer::Answer;
use crate::api::Api;
use crate::request::Authorized;
use crate::status::Result;
use crate::write::{create, decoding};

/// Creates the object in the body.
///
/// # Errors
/// What the client is told.
pub async fn create(api: &Api, request: &Authorized) -> Result<Answer> {
    let decoded = decoding::body(request)?;
    let committed = create::create(api, request, decoded).await?;
    Ok(answer(StatusCode::CREATED, committed))
}
