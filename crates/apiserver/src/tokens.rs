//! `serviceaccounts/token`: a TokenRequest is answered with a bound token.

use crate::api::Api;
use crate::status::{Error, Result};
use crate::verbs::{Answer, Request};

/// Issues a token.
///
/// # Errors
/// 404 when the service account is absent, 422 when the request makes no sense.
pub async fn request_token(_api: &Api, _request: &Request) -> Result<Answer> {
    Err(Error::unavailable("tokens are not there yet"))
}
