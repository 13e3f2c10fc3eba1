//! The cause of a request: the revision of the object whose change woke the component that makes it.
//!
//! The cause travels with the task ([`with`]) and is put on every request as [`CAUSE_HEADER`] by [`stamp`],
//! so that no controller has to carry it.

use std::future::Future;

use http::{HeaderValue, Request};

/// The request header that carries the cause: a decimal revision.
pub const CAUSE_HEADER: &str = "knarr-cause";

tokio::task_local! {
    static CAUSE: u64;
}

/// Runs `work` so that every request in it names `revision` as its cause. 0 means none.
pub async fn with<T>(revision: u64, work: impl Future<Output = T>) -> T {
    CAUSE.scope(revision, work).await
}

/// The cause of what runs now, if it has one.
pub fn current() -> Option<u64> {
    CAUSE.try_with(|revision| *revision).ok().filter(|revision| *revision != 0)
}

/// Puts the current cause on a request.
///
/// To be done where the request is made: `kube::Client` hands requests to a task of its own, which has no cause.
pub fn stamp<B>(mut request: Request<B>) -> Request<B> {
    if let Some(revision) = current() {
        request.headers_mut().insert(CAUSE_HEADER, HeaderValue::from(revision));
    }
    request
}
