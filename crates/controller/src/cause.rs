//! The cause of a request: the revision of the object whose change woke the component that makes it.
//!
//! The cause travels with the task ([`with`]) and is put on every request as [`CAUSE_HEADER`] by [`stamp`],
//! so that no controller has to carry it.

use std::future::Future;

use http::{HeaderValue, Request};

use crate::informer::{Decode, Kind, Transform};
use crate::plan::ApiRequest;
use crate::resource_ref::ResourceRef;

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

/// Sends one planned request with the current cause, and reads the answer.
///
/// # Errors
/// What the API server answered, or why it could not be asked.
pub async fn send<K: Decode>(client: &kube::Client, request: &ApiRequest) -> Result<K, kube::Error> {
    let http = request.to_http().map_err(kube::Error::HttpError)?;
    answer(client, http).await
}

/// The object of that name as it is now; the namespace of what has none is empty.
///
/// # Errors
/// As [`send`].
pub async fn get<K: Kind>(client: &kube::Client, namespace: &str, name: &str) -> Result<K, kube::Error> {
    let http = Request::get(ResourceRef::of::<K>().object_path(namespace, name)).body(Vec::new());
    answer(client, http.map_err(kube::Error::HttpError)?).await
}

/// Reads an answer by the decoder that informers of its kind have: all of its fields, and as Go would.
async fn answer<K: Decode>(client: &kube::Client, request: Request<Vec<u8>>) -> Result<K, kube::Error> {
    let text = client.request_text(stamp(request)).await?;
    K::decode(&text, &Transform::default()).map_err(kube::Error::SerdeError)
}
