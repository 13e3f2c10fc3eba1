//! What caused a request: the revision of the object whose change woke the component that makes it.
//!
//! The cause travels with the task ([`with`]) and is put on every request as [`CAUSE_HEADER`] by [`CauseLayer`],
//! so that no controller has to carry it.

use std::future::Future;
use std::task::{Context, Poll};

use http::{HeaderValue, Request};
use tower::{Layer, Service};

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

/// Puts the current cause on requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct CauseLayer;

impl<S> Layer<S> for CauseLayer {
    type Service = CauseService<S>;

    fn layer(&self, inner: S) -> CauseService<S> {
        CauseService { inner }
    }
}

/// See [`CauseLayer`].
#[derive(Clone, Debug)]
pub struct CauseService<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for CauseService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if let Some(revision) = current() {
            request.headers_mut().insert(CAUSE_HEADER, HeaderValue::from(revision));
        }
        self.inner.call(request)
    }
}
