//! Runs controllers: wakes keys, calls their pure `reconcile`, carries the plan out.
//!
//! A key's run ends only when the informers of this process have seen what the run wrote, so that the next run
//! of that key decides on its own writes and never acts twice on a stale picture.

mod execute;
mod following;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::informer::Informers;
use crate::plan::Plan;
use crate::record::{Recorder, component_of};
use crate::request_metrics::RequestMetrics;
pub use crate::workqueue::Retries;
use crate::workqueue::WorkQueue;
use crate::{cause, plan::Action};
pub use execute::AfterBurst;
use execute::PlanExecutor;
pub use following::Following;
pub use source::{Source, owner_key};

/// Runs of one controller at a time, unless somebody says. Source: upstream's `--concurrent-*-syncs` defaults are 5 to 20.
const WORKERS_PER_CONTROLLER: usize = 8;
/// How long a run waits for its informers to see what it wrote, before its key is decided on without: what it made is made once
/// more then. A watch that hangs for some seconds must not lead to that. Source: `ExpectationsTimeout`.
const OWN_WRITES_MAX: Duration = Duration::from_mins(5);

/// A controller as a row.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    /// Upstream's name, such as `deployment-controller`.
    pub name: &'static str,
    /// Upstream's name of its workqueue, as metrics have it.
    pub queue: &'static str,
    /// The sources that wake it.
    pub sources: fn(&Informers) -> Vec<Source>,
    /// The decision for a key: a pure function of what the informers hold and of `now`.
    pub reconcile: fn(&Informers, &str, Timestamp) -> Plan,
}

/// The engine that runs controllers over one set of informers.
pub struct Engine {
    informers: Informers,
    recorder: Recorder,
    workers: BTreeMap<&'static str, usize>,
    retries: BTreeMap<&'static str, Retries>,
    request_metrics: Option<RequestMetrics>,
}

impl Engine {
    /// An engine that writes through the informers' client; `component` is the source of its events
    /// that no controller records.
    pub fn new(informers: Informers, component: &'static str) -> Self {
        let recorder = informers.recorder(component);
        Self {
            informers,
            recorder,
            workers: BTreeMap::new(),
            retries: BTreeMap::new(),
            request_metrics: None,
        }
    }

    /// The same, with other numbers of runs at a time for the controllers of these names.
    #[must_use]
    pub fn with_workers(self, workers: BTreeMap<&'static str, usize>) -> Self {
        Self { workers, ..self }
    }

    /// The same, with other pauses after failures for the controllers of these names.
    #[must_use]
    pub fn with_retries(self, retries: BTreeMap<&'static str, Retries>) -> Self {
        Self { retries, ..self }
    }

    /// The same, which counts the requests of controllers by these metrics.
    #[must_use]
    pub fn with_request_metrics(self, request_metrics: RequestMetrics) -> Self {
        Self { request_metrics: Some(request_metrics), ..self }
    }

    /// Starts a controller that writes through the informers' client.
    pub fn start(&self, controller: Controller) {
        self.start_as(controller, self.informers.client().clone());
    }

    /// Starts a controller that writes through a client of its own, so that it has no more rights than it needs.
    /// It begins to decide when its sources have synced.
    pub fn start_as(&self, controller: Controller, client: kube::Client) {
        let queue = self.informers.metrics().queue(controller.queue);
        if let Some(retries) = self.retries.get(controller.name) {
            queue.retry(*retries);
        }
        let informers = self.informers.clone();
        let recorder = self.recorder.of(component_of(controller.name));
        let request_metrics = self.request_metrics.map(|of_request| (controller.name, of_request));
        let executor = PlanExecutor::new(informers.clone(), client, recorder, request_metrics);
        let tasks = informers.tasks().clone();
        let workers = self.workers.get(controller.name).copied().unwrap_or(WORKERS_PER_CONTROLLER);
        self.informers.tasks().spawn(controller.name, async move {
            let mut synced = Vec::new();
            for source in (controller.sources)(&informers) {
                (source.start)(informers.clone(), queue.clone());
                synced.push((source.synced)(informers.clone()));
            }
            futures::future::join_all(synced).await;
            for _ in 0..workers {
                let worker = Worker {
                    controller,
                    queue: queue.clone(),
                    informers: informers.clone(),
                    executor: executor.clone(),
                };
                tasks.spawn(controller.name, worker.run());
            }
        });
    }
}

struct Worker {
    controller: Controller,
    queue: Arc<WorkQueue>,
    informers: Informers,
    executor: PlanExecutor,
}

impl Worker {
    async fn run(self) {
        loop {
            let (key, woken_by) = self.queue.next().await;
            cause::with(woken_by, self.run_key(&key, woken_by)).await;
            self.queue.done(&key);
        }
    }

    async fn run_key(&self, key: &str, woken_by: u64) {
        let began = tokio::time::Instant::now();
        let mut plan = (self.controller.reconcile)(&self.informers, key, self.informers.clock().now());
        let measured = plan.measured.take();
        let mut requeue_after = plan.requeue_after;
        let (questions, has_steps) = (plan.questions.clone(), !plan.steps.is_empty());
        let done = self.executor.carry_out(plan).await;
        requeue_after = requeue_after.into_iter().chain(done.requeue_after).min();
        if let Some(measured) = measured {
            self.informers.metrics().measure(measured, began.elapsed(), done.failure.is_none());
        }
        let seen = tokio::time::timeout(OWN_WRITES_MAX, self.executor.own_writes_seen(&done.writes)).await;
        if seen.is_err() {
            tracing::warn!(
                controller = self.controller.name,
                key,
                "the informers did not see a write in time"
            );
        }
        match done.failure {
            None if questions.is_empty() => self.queue.forget(key),
            None => {
                self.executor.ask(questions).await;
                if has_steps {
                    // What was done may have to be done again: not at full speed.
                    self.queue.add_rate_limited(key.to_owned(), woken_by, self.informers.random());
                } else {
                    self.queue.add(key.to_owned(), woken_by);
                }
            }
            Some(failure) => {
                let random = self.informers.random();
                let delay = match failure.retry_after {
                    Some(delay) => {
                        self.queue.add_after(key.to_owned(), woken_by, delay);
                        delay
                    }
                    None => self.queue.add_rate_limited(key.to_owned(), woken_by, random),
                };
                let (controller, error) = (self.controller.name, failure.text());
                if failure.is_conflict {
                    tracing::debug!(controller, key, ?delay, error, "plan was overtaken");
                } else {
                    tracing::info!(controller, key, ?delay, error, "plan failed");
                }
            }
        }
        if let Some(delay) = requeue_after {
            self.queue.add_after(key.to_owned(), woken_by, delay);
        }
    }
}

/// An executor of single actions, for those who decide outside of a controller row (the scheduler).
#[derive(Clone)]
pub struct ActionExecutor(PlanExecutor);

impl ActionExecutor {
    /// An executor that uses the informers' client.
    pub fn new(informers: Informers, recorder: Recorder) -> Self {
        let client = informers.client().clone();
        Self(PlanExecutor::new(informers, client, recorder, None))
    }

    /// Carries out one action.
    ///
    /// # Errors
    /// What the API server answered, or that nobody knows.
    pub async fn carry_out(&self, action: Action) -> Result<(), Undone> {
        let done = self.0.carry_out(Plan { steps: vec![vec![action]], ..Plan::default() }).await;
        let undone = |failure: execute::Failure| match failure.is_open {
            true => Undone::Open(failure.text()),
            false => Undone::Refused(failure.text()),
        };
        done.failure.map_or(Ok(()), |failure| Err(undone(failure)))
    }
}

/// The reason why an action is not done, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undone {
    /// The API server has refused it.
    #[error("{0}")]
    Refused(String),
    /// It may be done, or be done yet: there was no answer, or one that leaves it open.
    #[error("{0}")]
    Open(String),
}
