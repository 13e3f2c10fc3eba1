//! `/openapi/v3` and `/openapi/v2`, from the schema.

use http::{HeaderMap, Response};

use crate::request_info::RequestInfo;
use crate::respond::Body;
use crate::status::{Error, Result};

/// Answers a path below `/openapi`.
///
/// # Errors
/// 404 for what is not served.
pub fn document(
    _version: &str,
    _path: &str,
    _info: &RequestInfo,
    _headers: &HeaderMap,
) -> Result<Response<Body>> {
    Err(Error::unknown_path())
}
