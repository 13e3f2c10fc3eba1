//! Copies of requests for backends that are not listened to. Nobody waits for them: one that is slow loses its copy, and
//! there are only so many at a time.

use std::sync::Arc;

use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::body::Upload;
use super::endpoint::Endpoint;
use super::limits::{COPY, COPY_ANSWER_BYTES_MAX};
use super::live::Pool;
use super::plane::Plane;
use crate::table::Mirror;

/// Sends a request's copies to the mirrors whose turn it is; the bodies follow when the request's own does.
pub(super) fn copy(plane: &Arc<Plane>, mirrors: &[Mirror], pools: &[Pool], request: &mut Request<Upload>) {
    for (mirror, pool) in mirrors.iter().zip(pools) {
        if !pool.is_turn(u64::from(mirror.numerator), u64::from(mirror.denominator)) {
            continue;
        }
        let Some(endpoint) = pool.in_turn().into_iter().next() else { continue };
        let Ok(permit) = Arc::clone(&plane.copies).try_acquire_owned() else { return };
        let mut copied = Request::new(request.body_mut().copy());
        *copied.method_mut() = request.method().clone();
        *copied.uri_mut() = request.uri().clone();
        *copied.headers_mut() = request.headers().clone();
        plane.tasks.spawn("ingress mirror", async move {
            let _permit = permit;
            if tokio::time::timeout(COPY, send(&endpoint, copied)).await.is_err() {
                tracing::debug!("a mirror did not answer in time");
            }
        });
    }
}

async fn send(endpoint: &Arc<Endpoint>, request: Request<Upload>) {
    match endpoint.send(request).await {
        Ok(answer) => forget(answer.into_body()).await,
        Err(_) => tracing::debug!("a mirror did not answer"),
    }
}

/// Takes a short answer off the connection, which is good for the next request then.
async fn forget(mut body: Incoming) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
        if bytes > COPY_ANSWER_BYTES_MAX {
            return;
        }
    }
}
