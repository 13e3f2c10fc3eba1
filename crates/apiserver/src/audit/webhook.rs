//! The audit webhook: events are sent to somebody else's server, many at a time or one by one while the request waits.
//!
//! What waits is bounded in number and length; what does not fit is dropped and counted. A batch is tried again for about
//! two minutes, as long as fewer than [`BATCHES_MAX`] are under way.
//! Source: `k8s.io/apiserver/plugin/pkg/audit/{webhook,buffered,truncate}`.

use std::sync::Arc;
use std::time::Duration;

use base::bucket::Bucket;
use base::{Clock, Random, Tasks};
use bytes::Bytes;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tracing::warn;

use super::metrics::AuditMetrics;
use super::policy::Level;
use crate::configuration_error::ConfigurationError;
use crate::webhook_client::kubeconfig::Target;
use crate::webhook_client::retry::{Retries, Retry};
use crate::webhook_client::{CALL_MAX, Client};

/// How long the events that wait may be together. Upstream counts them only.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// How many batches are under way at a time. Upstream has no bound.
const BATCHES_MAX: u32 = 16;
/// How long what is left at the end of the server may take.
const LAST_MAX: Duration = Duration::from_secs(5);
const MODES: &str = "batch,blocking,blocking-strict";

/// The destination of events, and the manner of sending. Source: `--audit-webhook-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The target.
    pub target: Target,
    /// The mode: who waits for whom.
    pub mode: Mode,
    /// The wait before the first failed call is made again.
    pub initial_backoff: Duration,
    /// The bounds of a batch.
    pub batch: Batch,
    /// The sizes from which events are cut, if any are.
    pub truncate: Option<Truncate>,
}

/// The mode: who waits for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Events wait for each other.
    Batch,
    /// Requests wait until their events are sent.
    Blocking,
    /// And are refused if the first of these cannot be sent.
    BlockingStrict,
}

/// The bounds of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The number of events that may wait.
    pub buffer_size: usize,
    /// The number of events that are sent at a time.
    pub size_max: usize,
    /// The time that the first one waits for others.
    pub wait_max: Duration,
    /// The number of batches that are sent in a second, and at once; any number if absent.
    pub throttle: Option<(Rate, u32)>,
}

/// So many a second, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

impl Default for Batch {
    fn default() -> Self {
        let throttle = Some((Rate(10_000), 15));
        Self { buffer_size: 10_000, size_max: 400, wait_max: Duration::from_secs(30), throttle }
    }
}

/// The sizes from which events are cut, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// The size of all events that are sent together.
    pub batch_bytes_max: usize,
    /// One event. What was sent and answered is left out of a longer one, and if it is still longer, it is dropped.
    pub event_bytes_max: usize,
}

impl Default for Truncate {
    fn default() -> Self {
        Self { batch_bytes_max: 10 << 20, event_bytes_max: 100 << 10 }
    }
}

impl Mode {
    /// Reads `batch`, `blocking` or `blocking-strict`.
    ///
    /// # Errors
    /// That it is none of them.
    pub fn parse(text: &str) -> Result<Self, ConfigurationError> {
        match text {
            "batch" => Ok(Self::Batch),
            "blocking" => Ok(Self::Blocking),
            "blocking-strict" => Ok(Self::BlockingStrict),
            other => Err(ConfigurationError::rule(format!(
                "invalid audit webhook mode {other}, allowed modes are {MODES:?}"
            ))),
        }
    }
}

impl Config {
    /// Checks the numbers.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), ConfigurationError> {
        let Batch { buffer_size, size_max, throttle, .. } = self.batch;
        let positive = |name: &str, value: u64| match value {
            0 => Err(ConfigurationError::rule(format!("invalid audit {name} 0, must be a positive number"))),
            _ => Ok(()),
        };
        if self.mode == Mode::Batch {
            positive("batch webhook buffer size", buffer_size as u64)?;
            positive("batch webhook max batch size", size_max as u64)?;
            if let Some((Rate(rate), burst)) = throttle {
                positive("batch webhook throttle QPS", rate)?;
                positive("batch webhook throttle burst", burst.into())?;
            }
        }
        let Some(Truncate { batch_bytes_max, event_bytes_max }) = self.truncate else { return Ok(()) };
        positive("truncate webhook max event size", event_bytes_max as u64)?;
        if batch_bytes_max < event_bytes_max {
            return Err(ConfigurationError::rule(format!(
                "invalid audit truncate webhook max batch size {batch_bytes_max}, must be greater than max event size ({event_bytes_max})"
            )));
        }
        Ok(())
    }
}

/// An event on its way, and the room that it takes.
struct Waiting {
    text: String,
    _bytes: OwnedSemaphorePermit,
}

/// The near end.
pub(super) struct Webhook {
    sender: Arc<Sender>,
    queue: Option<mpsc::Sender<Waiting>>,
    bytes: Arc<Semaphore>,
}

/// What calls need.
struct Sender {
    config: Config,
    client: Arc<Client>,
    metrics: Arc<AuditMetrics>,
    clock: Clock,
    random: Random,
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotSent;

impl Webhook {
    /// Starts to send what [`Webhook::take`] gets.
    ///
    /// # Errors
    /// That there is no client.
    pub(super) fn start(
        config: Config,
        metrics: &Arc<AuditMetrics>,
        tasks: &Tasks,
        clock: Clock,
        random: Random,
    ) -> Result<Self, ConfigurationError> {
        // Where events wait, connections are there until the last ones are sent.
        let connections = match config.mode {
            Mode::Batch => tasks.outlasting(),
            Mode::Blocking | Mode::BlockingStrict => tasks.clone(),
        };
        let client = config.target.client(&connections)?;
        let sender = Arc::new(Sender { config, client, metrics: Arc::clone(metrics), clock, random });
        let queue = (sender.config.mode == Mode::Batch).then(|| {
            let (queue, waiting) = mpsc::channel(sender.config.batch.buffer_size);
            let batches = Batches {
                sender: Arc::clone(&sender),
                waiting,
                batch: Vec::new(),
                under_way: Arc::new(Semaphore::new(BATCHES_MAX as usize)),
                connections: connections.clone(),
            };
            let stopping = tasks.clone();
            tasks.spawn_to_end("audit-webhook", async move {
                batches.run(&stopping).await;
                connections.stop();
            });
            queue
        });
        Ok(Self { sender, queue, bytes: Arc::new(Semaphore::new(WAITING_BYTES_MAX)) })
    }

    /// Whether requests whose first event cannot be sent are refused.
    pub(super) fn is_strict(&self) -> bool {
        self.sender.config.mode == Mode::BlockingStrict
    }

    /// Takes an event: it will be sent, or has been.
    ///
    /// # Errors
    /// That it was not sent, if that is known already.
    pub(super) async fn take(&self, event: &Value, level: Level) -> Result<(), NotSent> {
        let Some(text) = self.sender.shown(event, level) else { return Err(NotSent) };
        match &self.queue {
            Some(queue) => self.wait(queue, text),
            None => self.sender.send(&[text]).await,
        }
    }

    fn wait(&self, queue: &mpsc::Sender<Waiting>, text: String) -> Result<(), NotSent> {
        let bytes =
            u32::try_from(text.len()).map(|length| Arc::clone(&self.bytes).try_acquire_many_owned(length));
        let taken = match bytes {
            Ok(Ok(bytes)) => queue.try_send(Waiting { text, _bytes: bytes }).is_ok(),
            _ => false,
        };
        if !taken {
            self.sender.metrics.failed("buffered", 1);
        }
        // Who does not wait is not told either.
        Ok(())
    }
}

impl Sender {
    /// An event as it is sent; `None` if it is too long.
    fn shown(&self, event: &Value, level: Level) -> Option<String> {
        let text = event.to_string();
        let Some(Truncate { event_bytes_max, .. }) = self.config.truncate else { return Some(text) };
        if text.len() <= event_bytes_max {
            return Some(text);
        }
        let shorter = (level >= Level::Request).then(|| truncated(event).to_string());
        let shorter = shorter.filter(|text| text.len() <= event_bytes_max);
        if shorter.is_none() {
            self.metrics.failed("truncate", 1);
        }
        shorter
    }

    /// Sends events, and again if that fails.
    async fn send(&self, events: &[String]) -> Result<(), NotSent> {
        let items = events.join(",");
        let list = format!(
            "{{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"metadata\":{{}},\"items\":[{items}]}}"
        );
        let body = Bytes::from(list);
        let mut retries = Retries::new(Retry::Always, self.config.initial_backoff);
        loop {
            let Err(failure) = self.client.deliver(body.clone(), Instant::now() + CALL_MAX).await else {
                return Ok(());
            };
            let Some(delay) = retries.next(&failure, &self.random) else {
                warn!(%failure, events = events.len(), "the audit webhook did not take events");
                self.metrics.failed("webhook", events.len() as u64);
                return Err(NotSent);
            };
            tokio::time::sleep(delay).await;
        }
    }
}

/// An event without what was sent and answered.
fn truncated(event: &Value) -> Value {
    let mut event = event.clone();
    if let Some(fields) = event.as_object_mut() {
        fields.remove("requestObject");
        fields.remove("responseObject");
        let annotations = fields.entry("annotations").or_insert_with(|| json!({}));
        annotations["audit.k8s.io/truncated"] = "true".into();
    }
    event
}

/// Makes batches of what waits.
struct Batches {
    sender: Arc<Sender>,
    waiting: mpsc::Receiver<Waiting>,
    /// What will be sent together: it is not lost when the server ends meanwhile.
    batch: Vec<Waiting>,
    under_way: Arc<Semaphore>,
    /// What ends after the last batch.
    connections: Tasks,
}

impl Batches {
    async fn run(mut self, stopping: &Tasks) {
        let mut throttle = self.sender.config.batch.throttle.map(bucket);
        loop {
            let batch = tokio::select! {
                batch = self.next() => batch,
                () = stopping.stopping() => break,
            };
            if batch.is_empty() {
                return;
            }
            let ready = async {
                while let Some((bucket, interval)) = &mut throttle
                    && !bucket.take(self.sender.clock.now())
                {
                    tokio::time::sleep(*interval).await;
                }
                Arc::clone(&self.under_way).acquire_owned().await
            };
            let place = tokio::select! {
                place = ready => place.ok(),
                () = stopping.stopping() => None,
            };
            let (sender, is_last) = (Arc::clone(&self.sender), place.is_none());
            let sending = async move {
                let _place = place;
                deliver(&sender, batch).await;
            };
            match is_last {
                true => return self.finish(sending).await,
                false => self.connections.spawn("audit batch", sending),
            }
        }
        self.finish(std::future::ready(())).await;
    }

    /// Sends what is left, as far as that can be done in a moment.
    async fn finish(&mut self, first: impl Future<Output = ()>) {
        let rest = async {
            first.await;
            let mut batch = std::mem::take(&mut self.batch);
            while let Ok(event) = self.waiting.try_recv() {
                batch.push(event);
                if batch.len() >= self.sender.config.batch.size_max {
                    deliver(&self.sender, std::mem::take(&mut batch)).await;
                }
            }
            if !batch.is_empty() {
                deliver(&self.sender, batch).await;
            }
            // All places are free when no batch is under way.
            drop(self.under_way.acquire_many(BATCHES_MAX).await);
        };
        if tokio::time::timeout(LAST_MAX, rest).await.is_err() {
            warn!("the audit webhook did not take the last events");
        }
    }

    /// The next batch; empty if there will be none.
    async fn next(&mut self) -> Vec<Waiting> {
        let Batch { size_max, wait_max, .. } = self.sender.config.batch;
        let Some(first) = self.waiting.recv().await else { return Vec::new() };
        self.batch.push(first);
        let end = Instant::now() + wait_max;
        while self.batch.len() < size_max {
            match tokio::time::timeout_at(end, self.waiting.recv()).await {
                Ok(Some(event)) => self.batch.push(event),
                Ok(None) | Err(_) => break,
            }
        }
        std::mem::take(&mut self.batch)
    }
}

fn bucket((Rate(rate), burst): (Rate, u32)) -> (Bucket, Duration) {
    let interval = Duration::from_nanos(1_000_000_000_000 / rate.max(1));
    let signed = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
    (Bucket::new(signed, burst), interval)
}

/// Sends a batch, in parts if it is too long.
async fn deliver(sender: &Sender, batch: Vec<Waiting>) {
    let bytes_max = sender.config.truncate.map_or(usize::MAX, |truncate| truncate.batch_bytes_max);
    let (mut part, mut bytes) = (Vec::new(), 0_usize);
    // Rooms are given back when all of it is sent.
    let (texts, _rooms): (Vec<String>, Vec<OwnedSemaphorePermit>) =
        batch.into_iter().map(|event| (event.text, event._bytes)).unzip();
    for text in texts {
        if !part.is_empty() && bytes + text.len() > bytes_max {
            // What could not be sent is counted.
            sender.send(&part).await.ok();
            part.clear();
            bytes = 0;
        }
        bytes += text.len();
        part.push(text);
    }
    sender.send(&part).await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_must_be_some() {
        let kubeconfig = "{current-context: c, contexts: [{name: c, context: {cluster: k}}], \
                          clusters: [{name: k, cluster: {server: 'https://audit.example'}}]}";
        let good = Config {
            target: Target::load("/f", |_| Ok(kubeconfig.to_owned())).unwrap(),
            mode: Mode::Batch,
            initial_backoff: Duration::from_secs(10),
            batch: Batch::default(),
            truncate: Some(Truncate::default()),
        };
        assert!(good.check().is_ok());
        let check = |spoil: fn(&mut Config), expect: &str| {
            let mut config = good.clone();
            spoil(&mut config);
            assert_eq!(config.check().unwrap_err().to_string(), expect);
            if expect.contains("batch webhook") {
                config.mode = Mode::Blocking;
                assert!(config.check().is_ok(), "it is not used: {expect}");
            }
        };
        let positive =
            |what: &str| format!("invalid audit batch webhook {what} 0, must be a positive number");
        check(|config| config.batch.buffer_size = 0, &positive("buffer size"));
        check(|config| config.batch.size_max = 0, &positive("max batch size"));
        check(|config| config.batch.throttle = Some((Rate(0), 1)), &positive("throttle QPS"));
        check(|config| config.batch.throttle = Some((Rate(1), 0)), &positive("throttle burst"));
        check(
            |config| config.truncate = Some(Truncate { batch_bytes_max: 1, event_bytes_max: 0 }),
            "invalid audit truncate webhook max event size 0, must be a positive number",
        );
        check(
            |config| config.truncate = Some(Truncate { batch_bytes_max: 1, event_bytes_max: 2 }),
            "invalid audit truncate webhook max batch size 1, must be greater than max event size (2)",
        );
        assert!(
            Mode::parse("block")
                .unwrap_err()
                .to_string()
                .starts_with("invalid audit webhook mode block, allowed modes are")
        );
    }

    #[test]
    fn what_is_too_long_loses_what_was_sent_and_answered() {
        let event = json!({"requestObject": {"a": 1}, "responseObject": {}, "verb": "get", "annotations": {"a": "b"}});
        let expect = json!({"verb": "get", "annotations": {"a": "b", "audit.k8s.io/truncated": "true"}});
        assert_eq!(truncated(&event), expect);
    }
}
