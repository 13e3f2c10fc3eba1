//! Carries plans out: sends the requests of a step concurrently, stops at the first step that fails.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream;
use futures::{FutureExt, StreamExt};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::client::Body;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::cause;
use crate::discovery::Watcher;
use crate::informer::{Informers, PartialObject};
use crate::plan::{Action, Failed, Operation, Outcome, Plan};
use crate::question::{self, Answers, Question};
use crate::record::Recorder;
use crate::request::{ApiRequest, Verb};
use crate::request_metrics::{RequestMetric, RequestMetrics};
use crate::resource_ref::{ResourceRef, key_of};
use crate::sender::Sender;

/// Requests of one plan that are under way at once.
const CONCURRENT_REQUESTS_MAX: usize = 64;
/// Actions of a step that are worth a task.
const TASK_ACTIONS_MIN: usize = 16;
/// Tasks of a step.
const TASKS_MAX: usize = 8;
/// Actions of a plan that are very many.
const BURST_ACTIONS: usize = 1_000;

#[derive(Clone)]
pub(super) struct PlanExecutor {
    informers: Informers,
    sender: Sender,
    recorder: Recorder,
    request_metrics: Option<(&'static str, RequestMetrics)>,
}

/// What a run wrote, and why it stopped if it did.
#[derive(Default)]
pub(super) struct Done {
    pub(super) writes: Vec<OwnWrite>,
    pub(super) failure: Option<Failure>,
    /// When to look again, if what followed from an operation says so.
    pub(super) requeue_after: Option<Duration>,
}

impl Done {
    /// Takes what one action has come to.
    fn take(&mut self, other: Self) -> Option<Failure> {
        self.writes.extend(other.writes);
        self.requeue_after = sooner(self.requeue_after, other.requeue_after);
        other.failure
    }
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// A write that the informers will show.
pub(super) struct OwnWrite {
    resource: ResourceRef,
    seen: Seen,
}

/// Why a request was not done.
pub(super) struct Failure {
    request: String,
    /// What the server said.
    refusal: Status,
    /// Somebody else wrote first: the next run decides anew, and nobody need hear of it.
    pub(super) is_conflict: bool,
    /// An update of what has changed meanwhile, or a creation in a namespace that is going: nothing is wrong that anybody
    /// should be told of.
    is_overtaken: bool,
    /// It may have been done all the same: there was no answer, or one of a server in trouble.
    pub(super) is_open: bool,
    /// When to try again, if whoever was asked has said so.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    fn of_operation(operation: &Operation, failed: Failed) -> Self {
        Self {
            request: operation.what().to_owned(),
            refusal: told(failed.message),
            is_conflict: false,
            is_overtaken: false,
            is_open: false,
            retry_after: failed.retry_after,
        }
    }

    pub(super) fn text(&self) -> String {
        format!("{}: {}", self.request, self.refusal.message.as_deref().unwrap_or_default())
    }
}

/// A refusal that is nothing but a text.
fn told(message: String) -> Status {
    Status { message: Some(message), ..Status::default() }
}

/// All that counts of an answer.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    metadata: WrittenMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata<'a> {
    resource_version: &'a str,
}

enum Seen {
    AtRevision(u64),
    Going { key: String, uid: Option<String> },
}

/// A setting: what this process does when a plan of very many actions has been carried out. Its objects were many times what
/// is kept of them.
pub struct AfterBurst(pub fn());

/// In how many tasks a step of so many actions is carried out, in a runtime of so many threads.
fn tasks_of(actions: usize, threads: usize) -> usize {
    (actions / TASK_ACTIONS_MIN).min(threads).clamp(1, TASKS_MAX)
}

impl PlanExecutor {
    pub(super) fn new(
        informers: Informers,
        client: kube::Client,
        recorder: Recorder,
        request_metrics: Option<(&'static str, RequestMetrics)>,
    ) -> Self {
        let sender = Sender::new(client, informers.metrics().clone());
        Self { informers, sender, recorder, request_metrics }
    }

    pub(super) async fn carry_out(&self, mut plan: Plan) -> Done {
        let is_burst = plan.actions().count() >= BURST_ACTIONS;
        let mut done = Done::default();
        for (number, step) in std::mem::take(&mut plan.steps).into_iter().enumerate() {
            let Err(failure) = self.carry_out_step(step, &mut done).await else { continue };
            if failure.is_overtaken {
                done.failure = Some(failure);
                break;
            }
            let told = plan.about_failure(number, &failure.refusal);
            // The first failure is the one to report; that it could not be told is in the log.
            if let Err(second) = self.carry_out_step(told, &mut done).await {
                tracing::info!(error = %second.text(), "telling of a failure failed");
            }
            done.failure = Some(failure);
            break;
        }
        if let Some(after) = self.informers.setting::<AfterBurst>().filter(|_| is_burst) {
            (after.0)();
        }
        done
    }

    async fn carry_out_step(&self, step: Vec<Action>, done: &mut Done) -> Result<(), Failure> {
        let tasks = tasks_of(step.len(), Handle::current().metrics().num_workers());
        let results = match tasks {
            1 => self.carry_out_actions(step, CONCURRENT_REQUESTS_MAX).await,
            many => self.carry_out_in_tasks(step, many).await,
        };
        let mut failure = None;
        for one in results {
            failure = failure.or(done.take(one));
        }
        failure.map_or(Ok(()), Err)
    }

    /// In so many tasks: an API server in this process does its work in the task that asks it. All of them end with this one.
    async fn carry_out_in_tasks(&self, step: Vec<Action>, tasks: usize) -> Vec<Done> {
        let share = step.len().div_ceil(tasks).max(1);
        let (revision, mut running) = (cause::current().unwrap_or(0), JoinSet::new());
        let mut rest = step.into_iter().peekable();
        while rest.peek().is_some() {
            let (place, executor) = (running.len(), self.clone());
            let actions = rest.by_ref().take(share).collect();
            let work =
                async move { executor.carry_out_actions(actions, CONCURRENT_REQUESTS_MAX / tasks).await };
            let work = cause::with(revision, work).in_current_span();
            running.spawn(async move { (place, work.await) });
        }
        let mut ended = running.join_all().await;
        // In the order of the step, so that the first failure is the first action's that failed.
        ended.sort_unstable_by_key(|(place, _)| *place);
        ended.into_iter().flat_map(|(_, results)| results).collect()
    }

    async fn carry_out_actions(&self, actions: Vec<Action>, at_once: usize) -> Vec<Done> {
        stream::iter(actions).map(|action| self.act(action)).buffered(at_once).collect().await
    }

    /// Waits until every informer that holds a written object shows it as written.
    pub(super) async fn own_writes_seen(&self, writes: &[OwnWrite]) {
        for write in writes {
            for informer in self.informers.progress_of(&write.resource) {
                let mut revisions = informer.revisions();
                match &write.seen {
                    Seen::AtRevision(revision) => {
                        while *revisions.borrow_and_update() < *revision && revisions.changed().await.is_ok()
                        {
                        }
                    }
                    Seen::Going { key, uid } => {
                        while !informer.is_going(key, uid.as_deref()) && revisions.changed().await.is_ok() {}
                    }
                }
            }
        }
    }

    /// Asks the server and keeps what it answers.
    pub(super) async fn ask(&self, questions: Vec<Question>) {
        if questions.is_empty() {
            return;
        }
        let (answers, watcher) = (Answers::of(&self.informers), Watcher::of(&self.informers));
        let ask = |question: Question| async {
            let asked = self.informers.clock().now();
            let answer = question::ask(&self.sender, &watcher, &question).await;
            (question, asked, answer)
        };
        let mut told = stream::iter(questions).map(ask).buffer_unordered(CONCURRENT_REQUESTS_MAX);
        while let Some((question, asked, answer)) = told.next().await {
            if let Err(error) = &answer {
                tracing::info!(?question, %error, "a question was not answered");
            }
            answers.put(question, asked, answer);
        }
    }

    async fn act(&self, action: Action) -> Done {
        let sent = match action {
            Action::Event(event) => {
                self.recorder.record(event);
                Ok(None)
            }
            Action::Count(increment) => {
                self.informers.metrics().count(&increment);
                Ok(None)
            }
            Action::Operation(operation) => return self.operate(operation).await,
            Action::Request(request) => {
                let sent = self.send(&request).await;
                if let Some((controller, of_request)) = self.request_metrics {
                    let (metrics, now) = (self.informers.metrics(), self.informers.clock().now());
                    for metric in of_request(controller, &request, sent.is_ok(), now) {
                        match metric {
                            RequestMetric::Count(increment) => metrics.count(&increment),
                            RequestMetric::Seconds(seconds, took) => {
                                metrics.observe(seconds, &Vec::new(), took)
                            }
                        }
                    }
                }
                sent
            }
        };
        match sent {
            Ok(write) => Done { writes: write.into_iter().collect(), ..Done::default() },
            Err(failure) => Done { failure: Some(failure), ..Done::default() },
        }
    }

    /// Runs an operation, and does what follows from it; that it was not done is told after that.
    fn operate(&self, operation: Operation) -> BoxFuture<'_, Done> {
        async move {
            let Outcome { plan, failure } = operation.run(self.informers.clone()).await;
            let requeue_after = plan.requeue_after;
            let mut done = self.carry_out(plan).await;
            done.requeue_after = sooner(done.requeue_after, requeue_after);
            let undone = failure.map(|failed| Failure::of_operation(&operation, failed));
            done.failure = undone.or(done.failure);
            done
        }
        .boxed()
    }

    async fn send(&self, request: &ApiRequest) -> Result<Option<OwnWrite>, Failure> {
        let describe = |what: &dyn std::fmt::Display| Failure {
            request: format!("{:?} {} {}", request.verb, request.resource.plural, request.key()),
            refusal: told(what.to_string()),
            is_conflict: false,
            is_overtaken: false,
            is_open: false,
            retry_after: None,
        };
        let unheard = |what: &dyn std::fmt::Display| Failure { is_open: true, ..describe(what) };
        if request.verb == Verb::Update && self.informers.knows_in_part(&request.resource) {
            return Err(describe(&"it is known in part only, and would lose the rest"));
        }
        let http = request.to_http().map_err(|error| describe(&error))?;
        let response = self.sender.send(http.map(Body::from)).await.map_err(|error| unheard(&error))?;
        let status = response.status();
        let body = body_of(response).await.map_err(|error| unheard(&error))?;
        if status.is_success() && request.verb == Verb::RequireAbsent {
            let found: PartialObject = serde_json::from_slice(&body).unwrap_or_default();
            let is_same = expected_uid(request)
                .is_none_or(|uid| uid.is_empty() || found.metadata.uid.as_deref() == Some(uid));
            return if is_same { Err(describe(&"it is still there")) } else { Ok(None) };
        }
        if status.is_success() && request.verb == Verb::RequireAllowed {
            let review: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            let is_allowed = review.pointer("/status/allowed").and_then(serde_json::Value::as_bool);
            let refused = || describe(&"the subject access review was not approved");
            return if is_allowed == Some(true) { Ok(None) } else { Err(refused()) };
        }
        if status.is_success() {
            return Ok(own_write(request, &body));
        }
        if is_harmless(request, status, &body) {
            return Ok(None);
        }
        let refusal: Status = serde_json::from_slice(&body).unwrap_or_default();
        let is_conflict = status == StatusCode::CONFLICT;
        let is_overtaken = match request.verb {
            Verb::Update => is_conflict,
            Verb::Create => is_of_terminating_namespace(&refusal),
            _ => false,
        };
        let message = refusal.message.or_else(|| Some(status.to_string()));
        let refusal = Status { message, ..refusal };
        let (is_conflict, is_open) = (is_conflict || is_overtaken, status.is_server_error());
        Err(Failure { refusal, is_conflict, is_overtaken, is_open, ..describe(&"") })
    }
}

async fn body_of(response: Response<Body>) -> Result<bytes::Bytes, kube::Error> {
    Ok(response.into_body().collect().await?.to_bytes())
}

/// Nothing comes into a namespace that is being deleted. Source: `NamespaceTerminatingCause`, core/v1.
fn is_of_terminating_namespace(refusal: &Status) -> bool {
    let causes = refusal.details.iter().flat_map(|details| details.causes.iter().flatten());
    causes.into_iter().any(|cause| cause.reason.as_deref() == Some("NamespaceTerminating"))
}

/// What was to be done is done, by someone else or by an earlier run.
fn is_harmless(request: &ApiRequest, status: StatusCode, body: &[u8]) -> bool {
    match request.verb {
        Verb::Delete => {
            let by_uid = request.body.get("preconditions").is_some();
            status == StatusCode::NOT_FOUND || (by_uid && status == StatusCode::CONFLICT)
        }
        // It was to be changed because it was there. A namesake is another object.
        Verb::Patch(_) => {
            let by_uid = request.body.pointer("/metadata/uid").is_some();
            by_uid && status == StatusCode::NOT_FOUND && question::names_missing(body, &request.name)
        }
        // Where nobody serves the resource, its objects may be there all the same.
        Verb::RequireAbsent => {
            status == StatusCode::NOT_FOUND && question::names_missing(body, &request.name)
        }
        _ => false,
    }
}

fn expected_uid(request: &ApiRequest) -> Option<&str> {
    request.body.pointer("/preconditions/uid").and_then(|uid| uid.as_str())
}

fn own_write(request: &ApiRequest, body: &[u8]) -> Option<OwnWrite> {
    let resource = request.resource.clone();
    if request.verb == Verb::Delete {
        if request.name.is_empty() {
            return None;
        }
        let uid = expected_uid(request).map(str::to_owned);
        let key = key_of(Some(&request.namespace), &request.name);
        return Some(OwnWrite { resource, seen: Seen::Going { key, uid } });
    }
    let written: Written<'_> = serde_json::from_slice(body).ok()?;
    let revision = written.metadata.resource_version.parse().ok()?;
    Some(OwnWrite { resource, seen: Seen::AtRevision(revision) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;

    use super::*;
    use crate::fake::{Server, State};

    type Log = Arc<Mutex<Vec<&'static str>>>;

    /// An operation that notes its name, and comes to this.
    fn operation(log: &Log, name: &'static str, then: fn(&Log) -> Outcome) -> Action {
        let log = log.clone();
        Action::Operation(Operation::new(name.to_owned(), move |_| {
            let log = log.clone();
            async move {
                log.lock().push(name);
                then(&log)
            }
            .boxed()
        }))
    }

    fn plan(actions: Vec<Action>) -> Plan {
        Plan { steps: actions.into_iter().map(|action| vec![action]).collect(), ..Plan::default() }
    }

    async fn carry_out(plan: Plan) -> Done {
        let (_server, informers, _) = Server::start(State::default());
        let recorder = informers.recorder("tester");
        let client = informers.client().clone();
        PlanExecutor::new(informers, client, recorder, None).carry_out(plan).await
    }

    #[tokio::test]
    async fn what_follows_from_an_operation_comes_before_the_next_step() {
        let log = Log::default();
        let first = operation(&log, "first", |log| {
            let mut next = plan(vec![operation(log, "follows", |_| Outcome::default())]);
            next.requeue(Duration::from_secs(3));
            Outcome::done(next)
        });
        let done = carry_out(plan(vec![first, operation(&log, "second", |_| Outcome::default())])).await;
        assert_eq!(*log.lock(), ["first", "follows", "second"]);
        assert_eq!((done.requeue_after, done.failure.is_none()), (Some(Duration::from_secs(3)), true));
    }

    #[test]
    fn a_step_has_tasks_by_its_length_and_the_threads() {
        for (actions, threads, expect) in
            [(0, 8, 1), (1, 8, 1), (31, 8, 1), (32, 8, 2), (500, 1, 1), (500, 2, 2), (500, 64, 8)]
        {
            assert_eq!(tasks_of(actions, threads), expect, "{actions} actions, {threads} threads");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn a_long_step_is_carried_out_whole_by_several_tasks_and_the_first_failure_is_told() {
        let (_server, informers, _) = Server::start(State::default());
        let (recorder, client) = (informers.recorder("tester"), informers.client().clone());
        let executor = PlanExecutor::new(informers, client, recorder, None);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let one = |number: usize| {
            let seen = seen.clone();
            Action::Operation(Operation::new(number.to_string(), move |_| {
                let seen = seen.clone();
                async move {
                    seen.lock().push((number, cause::current()));
                    match number {
                        // The later one is sooner over.
                        40 => tokio::time::sleep(Duration::from_millis(20)).await,
                        41 => {}
                        _ => return Outcome::default(),
                    }
                    Outcome::failed(Plan::nothing(), Failed::default())
                }
                .boxed()
            }))
        };
        let step = Plan { steps: vec![(0..100).map(one).collect()], ..Plan::default() };
        let done = cause::with(7, executor.carry_out(step)).await;
        assert!(done.failure.is_some_and(|failure| failure.text() == "40: "));
        let mut seen = std::mem::take(&mut *seen.lock());
        seen.sort_unstable();
        assert_eq!(seen, (0..100).map(|number| (number, Some(7))).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_failed_operation_ends_its_plan_after_what_follows_and_says_when_to_try_again() {
        let log = Log::default();
        let fails = operation(&log, "fails", |log| {
            let failed = Failed { message: "away".to_owned(), retry_after: Some(Duration::from_secs(7)) };
            Outcome::failed(plan(vec![operation(log, "is told", |_| Outcome::default())]), failed)
        });
        let never = operation(&log, "never", |_| Outcome::default());
        let about = operation(&log, "on failure", |_| Outcome::default());
        let done = carry_out(Plan { on_failure: vec![about], ..plan(vec![fails, never]) }).await;
        assert_eq!(*log.lock(), ["fails", "is told", "on failure"]);
        let failure = done.failure.unwrap();
        assert_eq!(
            (failure.text().as_str(), failure.retry_after),
            ("fails: away", Some(Duration::from_secs(7)))
        );
    }

    #[tokio::test]
    async fn what_follows_and_cannot_be_done_fails_the_plan() {
        let log = Log::default();
        let first = operation(&log, "first", |log| {
            let fails = |_: &Log| Outcome::failed(Plan::nothing(), Failed::default());
            Outcome::done(plan(vec![operation(log, "follows", fails)]))
        });
        let done = carry_out(plan(vec![first, operation(&log, "never", |_| Outcome::default())])).await;
        assert_eq!(*log.lock(), ["first", "follows"]);
        assert!(done.failure.is_some_and(|failure| failure.text() == "follows: "));
    }

    #[tokio::test]
    async fn after_very_many_actions_something_is_done_once() {
        static DONE: AtomicUsize = AtomicUsize::new(0);
        let (_server, informers, _) = Server::start(State::default());
        informers.setting_or(|| AfterBurst(|| _ = DONE.fetch_add(1, Ordering::Relaxed)));
        let (recorder, client) = (informers.recorder("tester"), informers.client().clone());
        let executor = PlanExecutor::new(informers, client, recorder, None);
        for count in [BURST_ACTIONS - 1, BURST_ACTIONS] {
            let all = (0..count).map(|_| operation(&Log::default(), "one", |_| Outcome::default()));
            executor.carry_out(plan(all.collect())).await;
        }
        assert_eq!(DONE.load(Ordering::Relaxed), 1);
    }
}
