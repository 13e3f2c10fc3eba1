//! The sending of requests: stamped with their cause, and counted.

use http::{Request, Response};
use kube::client::Body;
use tokio::time::Instant;

use crate::cause;
use crate::metrics::ClientMetrics;

/// A client whose requests are counted. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Sender {
    client: kube::Client,
    metrics: ClientMetrics,
}

impl Sender {
    pub(crate) fn new(client: kube::Client, metrics: ClientMetrics) -> Self {
        Self { client, metrics }
    }

    /// Sends `request` with the current cause.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let method = request.method().clone();
        let began = Instant::now();
        let answer = self.client.send(cause::stamp(request)).await;
        self.metrics.request(&method, answer.as_ref().ok().map(Response::status), began.elapsed());
        answer
    }
}
