//! How long a request may take: what its `timeout` says, but no longer than the server allows.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/filters/request_deadline.go`.

use std::future::Future;
use std::time::Duration;

use crate::request_info::RequestInfo;
use crate::status::{Error, Result};

/// The time that a request has.
///
/// # Errors
/// 400 if it says something that is no duration.
pub fn of(info: &RequestInfo, max: Duration) -> Result<Duration> {
    let Some(text) = info.query.get("timeout") else { return Ok(max) };
    match parse(text) {
        Some(given) if given.is_zero() => Ok(max),
        Some(given) => Ok(given.min(max)),
        None => {
            let why = format!("time: invalid duration {text:?}");
            Err(Error::bad_request(format!("invalid timeout specified in the request URL - {why}")))
        }
    }
}

/// A duration as Go writes it: `1h30m`, `1.5s`, `0`.
fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = tail;
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(total).ok() }
}

/// Runs a request for so long.
///
/// # Errors
/// 504 when it takes longer; what it was about to write may be written all the same.
pub async fn within<T>(limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Error::timeout("request did not complete within requested timeout - context deadline exceeded"))
    })
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn check(query: &str, expect: Result<u64, &str>) {
        let info = RequestInfo::parse(&Method::GET, "/api/v1/pods", Some(query));
        let found = of(&info, Duration::from_secs(60)).map(|limit| limit.as_secs()).map_err(|e| e.message);
        assert_eq!(found, expect.map_err(str::to_owned), "{query}");
    }

    #[test]
    fn a_request_has_the_time_that_it_asks_for_up_to_the_servers() {
        check("", Ok(60));
        check("timeout=10s", Ok(10));
        check("timeout=1h", Ok(60));
        check("timeout=0", Ok(60));
        check(
            "timeout=soon",
            Err("invalid timeout specified in the request URL - time: invalid duration \"soon\""),
        );
    }
}
