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
        }
        if stream != "All" && tail.is_some() {
            let text = "`tailLines` and specific `stream` are mutually exclusive for now";
            errors.push(FieldError::forbidden(&Path::new(""), text));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(Subject { group: "", resource: "PodLogOptions" }, pod, &errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: `TestValidatePodLogOptions` of upstream.
    #[test]
    fn options_are_checked_together() {
        const SPLIT: &str = "`tailLines` and specific `stream` are mutually exclusive for now";
        for (query, expect) in [
            ("", &[][..]),
            ("tailLines=0&limitBytes=1&sinceSeconds=1&stream=All", &[]),
            ("stream=Stderr&follow=true&limitBytes=12", &[]),
            ("sinceTime=2026-01-01T00:00:00Z&tailLines=8", &[]),
            ("tailLines=-8", &["tailLines: Invalid value: -8: must be greater than or equal to 0"]),
            ("limitBytes=0", &["limitBytes: Invalid value: 0: must be greater than 0"]),
            (
                "tailLines=-8&sinceSeconds=0",
                &["tailLines: Invalid value: -8", "sinceSeconds: Invalid value: 0: must be greater than 0"],
            ),
            (
                "sinceSeconds=0&sinceTime=2026-01-01T00:00:00Z",
                &["at most one of `sinceTime` or `sinceSeconds` may be specified"],
            ),
            ("stream=invalid", &["stream: Unsupported value: \"invalid\""]),
            ("stream=Stdout&tailLines=8", &[SPLIT]),
            ("stream=invalid&tailLines=8", &["stream: Unsupported value", SPLIT]),
            ("sinceSeconds=x", &["strconv.ParseInt: parsing \"x\": invalid syntax"]),
            ("sinceTime=yesterday", &["cannot parse \"yesterday\""]),
        ] {
            let found = validate(&Query::parse(query), "p").err().map(|error| error.to_string());
            match found {
                None => assert!(expect.is_empty(), "{query}"),
                Some(text) => {
                    assert!(
                        !expect.is_empty() && expect.iter().all(|part| text.contains(part)),
                        "{query}: {text}"
                    );
                }
            }
        }
    }
}
