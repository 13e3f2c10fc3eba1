//! The deadline of a request: what its `timeout` says, but no longer than the server allows.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/filters/request_deadline.go`.

use std::future::Future;
use std::time::Duration;

use machinery::duration;
use tokio::time::Instant;

use crate::request_info::RequestInfo;
use crate::status::{Error, Result};

/// The time that a request has.
///
/// # Errors
/// 400 if it says something that is no duration.
pub fn of(info: &RequestInfo, max: Duration) -> Result<Duration> {
    let Some(text) = info.query.get("timeout") else { return Ok(max) };
    let nanoseconds = duration::parse(text)
        .map_err(|why| Error::bad_request(format!("invalid timeout specified in the request URL - {why}")))?;
    // Nothing, and less than nothing, mean that the client does not mind.
    match u64::try_from(nanoseconds) {
        Ok(0) | Err(_) => Ok(max),
        Ok(given) => Ok(Duration::from_nanos(given).min(max)),
    }
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

/// Waits for a part of a request's work until nobody waits for its answer any more.
///
/// # Errors
/// As [`within`].
pub async fn before<T>(end: Instant, work: impl Future<Output = Result<T>>) -> Result<T> {
    within(end.saturating_duration_since(Instant::now()), work).await
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
        check("timeout=-3s", Ok(60));
        check(
            "timeout=10",
            Err("invalid timeout specified in the request URL - time: missing unit in duration \"10\""),
        );
        check(
            "timeout=soon",
            Err("invalid timeout specified in the request URL - time: invalid duration \"soon\""),
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_of_a_requests_work_ends_with_the_request() {
        let end = Instant::now() + Duration::from_secs(1);
        let work = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(())
        };
        assert_eq!(before(end, work).await.unwrap_err().code.as_u16(), 504);
        assert_eq!(Instant::now(), end, "and not later");
        assert!(before(end, async { Ok(()) }).await.is_ok(), "what need not wait is not late");
    }
}
