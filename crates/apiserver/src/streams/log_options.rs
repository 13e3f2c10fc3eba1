//! Rules of `PodLogOptions`. Source: `ValidatePodLogOptions` of upstream.

use machinery::field::{FieldError, FieldErrors, Path};

use crate::request_info::Query;
use crate::status::{Error, Result, Subject};

const STREAMS: [&str; 3] = ["All", "Stderr", "Stdout"];

/// Checks the options of a log request.
///
/// # Errors
/// 400 for what is no number or time, 422 for numbers and combinations that mean nothing.
pub(super) fn validate(query: &Query, pod: &str) -> Result<()> {
    let (tail, limit) = (query.number("tailLines")?, query.number("limitBytes")?);
    let (seconds, time) = (query.number("sinceSeconds")?, query.get("sinceTime"));
    if let Some(time) = time {
        time.parse::<jiff::Timestamp>().map_err(|_| {
            Error::bad_request(format!(
                "parsing time {time:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {time:?}"
            ))
        })?;
    }
    let mut errors = FieldErrors::default();
    if let Some(lines) = tail.filter(|lines| *lines < 0) {
        errors.push(FieldError::invalid(
            &Path::new("tailLines"),
            lines,
            "must be greater than or equal to 0",
        ));
    }
    if let Some(bytes) = limit.filter(|bytes| *bytes < 1) {
        errors.push(FieldError::invalid(&Path::new("limitBytes"), bytes, "must be greater than 0"));
    }
    match (seconds, time) {
        (Some(_), Some(_)) => errors.push(FieldError::forbidden(
            &Path::new(""),
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        )),
        (Some(seconds), None) if seconds < 1 => {
            errors.push(FieldError::invalid(&Path::new("sinceSeconds"), seconds, "must be greater than 0"));
        }
        _ => {}
    }
    if let Some(stream) = query.get("stream") {
        if !STREAMS.contains(&stream) {
            errors.push(FieldError::not_supported(&Path::new("stream"), stream, &STREAMS));
        } else if stream != "All" && tail.is_some() {
            let text = "`tailLines` and specific `stream` are mutually exclusive for now";
            errors.push(FieldError::forbidden(&Path::new(""), text));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(Subject { group: "", resource: "PodLogOptions" }, pod, &errors))
}
