//! Spans: steps of the chain that make no revision (a sandbox started, rules programmed), told to the API
//! server, which keeps them beside the revisions that caused them.

use http::Request;
use kube::client::Body;
pub use machinery::trace::Span;
use tokio::sync::mpsc;

use base::Tasks;

/// The path to which spans are posted.
pub const SPANS_PATH: &str = "/debug/knarr/spans";
/// Spans that wait to be sent; more are dropped.
const QUEUE_MAX: usize = 4096;
/// Spans in one request.
const BATCH_MAX: usize = 256;

/// A reporter of spans, which sends them in the background. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Reporter {
    queue: mpsc::Sender<Span>,
}

impl Reporter {
    /// A reporter that posts to the API server behind `client`.
    pub fn start(client: kube::Client, tasks: &Tasks) -> Self {
        let (queue, mut spans) = mpsc::channel(QUEUE_MAX);
        tasks.spawn("span reporter", async move {
            let mut batch = Vec::new();
            while spans.recv_many(&mut batch, BATCH_MAX).await > 0 {
                post(&client, &batch).await;
                batch.clear();
            }
        });
        Self { queue }
    }

    /// A reporter that keeps nothing, for parts that run against an API server that is not ours.
    pub fn disabled() -> Self {
        Self { queue: mpsc::channel(1).0 }
    }

    /// Tells of a step. Never waits; when the queue is full the span is lost.
    pub fn span(&self, span: Span) {
        if let Err(error) = self.queue.try_send(span) {
            let span = error.into_inner();
            tracing::debug!(span.component, span.name, "a span was dropped");
        }
    }
}

async fn post(client: &kube::Client, batch: &[Span]) {
    let Ok(body) = serde_json::to_vec(batch) else { return };
    let request = Request::post(SPANS_PATH).header("content-type", "application/json").body(Body::from(body));
    let outcome = match request {
        Ok(request) => {
            client.send(request).await.map(|response| response.status()).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    match outcome {
        Ok(status) if status.is_success() => {}
        outcome => tracing::debug!(?outcome, "spans were not taken"),
    }
}
