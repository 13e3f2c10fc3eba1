//! From a decision to a Pod on its Node: what its volumes are bound to is written, volumes waited for, devices reserved, and
//! the Pod bound.
//!
//! Writing is done in tasks of which there is a bounded number; a Pod that waits for its volumes has none. While nobody knows
//! whether a Pod was bound, its room is nobody else's.

mod confirmation;
mod steps;

use std::sync::Arc;

use controller::pod::Pod;
use controller::{Action, ActionExecutor, EventType, Patch, Undone, cause};
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::json;
use tokio::sync::mpsc;

use super::changes::POD_ADD;
use super::preempting::nominating;
use super::{BINDINGS_MAX, BURST_BINDINGS, Scheduler};
use crate::binding_error::BindingError;
use crate::decide::Choice;
use crate::devices::claim_key;
use crate::events::{Event, Turn};
use crate::pod::{names, uid};
use crate::preemption::{nominated, priority};
use crate::profile::{Point, event};
use crate::queue::History;
use crate::storage::PodVolumes;
use crate::timings::Code;
use crate::volumes::{self, Over, WAITING_MAX};
use crate::{claims, devices, extender, metrics};
pub(super) use steps::Steps;

/// The binding of one Pod.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) key: String,
    pub(super) pod: Arc<Pod>,
    pub(super) node: String,
    /// What the Pod's claims of devices are to have.
    pub(super) devices: Option<devices::PodClaims>,
    pub(super) revision: u64,
    /// When the attempt began.
    pub(super) start: Timestamp,
    /// How often the Pod was tried, and since when it waits.
    pub(super) history: Option<History>,
    /// Whether the Pod's status is told which Node it goes to.
    pub(super) is_nominated: bool,
    /// When nobody held it back any more: its volumes and claims are next. Source: `PreBind`.
    pre_bind: Option<Timestamp>,
}

impl Job {
    fn failed(&self, error: &BindingError) -> Action {
        event(&self.pod, &self.pod, EventType::Warning, "FailedScheduling", error.to_string())
    }

    pub(super) fn outcome(self, failure: Option<BindingError>) -> Outcome {
        self.outcome_with(failure, Vec::new())
    }

    fn outcome_with(self, failure: Option<BindingError>, claims: Vec<Arc<ResourceClaim>>) -> Outcome {
        let Self { key, pod, start, history, is_nominated, .. } = self;
        Outcome { key, pod, start, history, is_nominated, failure, claims }
    }

    /// What others are told of a Pod that is not bound at once: they count it on its Node. It never comes after the binding,
    /// which takes it back. Source: `bindingCycle`, KEP-5278; the gate `NominatedNodeNameForExpectation` is on by default.
    fn nominate(&mut self) -> Option<Action> {
        if std::mem::replace(&mut self.is_nominated, true) || nominated(&self.pod) == Some(&self.node) {
            return None;
        }
        let metadata = &self.pod.metadata;
        let patch = json!({
            "metadata": { "uid": metadata.uid, "resourceVersion": metadata.resource_version },
            "status": { "nominatedNodeName": self.node },
        });
        let (namespace, name) = names(&self.pod);
        Some(Action::patch_status::<Pod>(namespace, name, Patch::Strategic(patch)))
    }
}

/// What somebody at work has come to.
pub(super) enum Progress {
    /// What the Pod's volumes are bound to is written.
    VolumesWritten(Job, PodVolumes),
    /// The binding is over.
    Finished(Outcome),
    /// The victims of a preemption are told to go: key and uid of whoever they go for.
    Preempted(String, String, Result<(), Undone>),
    /// The Pod of this key was told why it has no Node.
    Said(String),
}

/// How an attempt has ended.
pub(super) struct Outcome {
    pub(super) key: String,
    pub(super) pod: Arc<Pod>,
    /// When the attempt began.
    pub(super) start: Timestamp,
    /// How often the Pod was tried, and since when it waits.
    pub(super) history: Option<History>,
    /// Whether the Pod's status was told which Node it goes to.
    is_nominated: bool,
    pub(super) failure: Option<BindingError>,
    /// Claims of devices as they have been written.
    pub(super) claims: Vec<Arc<ResourceClaim>>,
}

impl Scheduler {
    pub(super) fn bind(
        &mut self,
        key: &str,
        pod: &Arc<Pod>,
        revision: u64,
        choice: Choice,
        start: Timestamp,
    ) {
        let Choice { node, volumes: pod_volumes, devices } = choice;
        if pod_volumes.is_some() && self.waiting.len() >= WAITING_MAX {
            tracing::warn!(pod = key, "too many pods wait for their volumes; this one is tried again later");
            return self.queue.back_off(key, start);
        }
        let reserving = self.clock.now();
        self.nominations.settle(key);
        self.snapshot.place(pod, &node);
        self.binding.insert(key.to_owned(), uid(pod).to_owned());
        if let Some(devices) = &devices {
            self.snapshot.devices.assume(uid(pod), devices.clone());
        }
        let history = self.queue.history(key);
        let (key, pod) = (key.to_owned(), pod.clone());
        let job =
            Job { key, pod, node, devices, revision, start, history, is_nominated: false, pre_bind: None };
        if let Some(pod_volumes) = &pod_volumes {
            self.snapshot.storage.assume(uid(&job.pod), pod_volumes.clone());
        }
        self.permit(job, pod_volumes, reserving);
    }

    /// Has what the Pod's volumes are bound to written, or, if they are settled, the Pod bound.
    pub(super) fn go_on(&mut self, job: Job, pod_volumes: Option<PodVolumes>) {
        let key = job.key.clone();
        let Some((mut job, pod_volumes)) = self.explaining.bind(&key, (job, pod_volumes)) else { return };
        job.pre_bind.get_or_insert_with(|| self.clock.now());
        match pod_volumes {
            Some(pod_volumes) => self.write_volumes(job, pod_volumes),
            None => self.write_binding(job),
        }
    }

    /// Says what the Pod's volumes are to be.
    fn write_volumes(&mut self, mut job: Job, pod_volumes: PodVolumes) {
        self.at_work += 1;
        let (client, executor, finished) =
            (self.client.clone(), self.executor.clone(), self.finished.clone());
        let nomination = job.nominate();
        self.tasks.spawn("volumes", async move {
            tell_all(&executor, job.revision, nomination).await;
            let written = cause::with(job.revision, volumes::write(&client, &pod_volumes));
            let progress = match written.await {
                Ok(()) => Progress::VolumesWritten(job, pod_volumes),
                Err(error) => {
                    let error = BindingError::Volumes(error);
                    tell_all(&executor, job.revision, [job.failed(&error)]).await;
                    Progress::Finished(job.outcome(Some(error)))
                }
            };
            report(&finished, progress).await;
        });
    }

    /// Reserves the Pod's devices and binds it.
    fn write_binding(&mut self, mut job: Job) {
        self.at_work += 1;
        let (client, executor, finished) =
            (self.client.clone(), self.executor.clone(), self.finished.clone());
        let extenders = self.extenders.clone();
        let mut steps = Steps::new(&self.metrics, &self.clock, &job.pod, job.pre_bind.unwrap_or(job.start));
        let event = scheduled_event(&job.pod, &job.key, &job.node);
        let nomination = if job.devices.is_some() { job.nominate() } else { None };
        self.tasks.spawn("bind", async move {
            tell_all(&executor, job.revision, nomination).await;
            let mut written = Vec::new();
            let bound = async {
                let reserved = match &job.devices {
                    Some(devices) => {
                        claims::reserve(&client, &executor, (&job.pod, devices), &mut written).await
                    }
                    None => Ok(()),
                };
                steps.over(Point::PreBind, Code::of(&reserved));
                reserved?;
                let bound = match extender::asking::bind(&extenders, &job.pod, &job.node).await {
                    Ok(true) => Ok(()),
                    Ok(false) => {
                        let bound = confirmation::bind(&client, &executor, &job.pod, &job.node).await;
                        bound.map_err(BindingError::from)
                    }
                    Err(unheard) => Err(unheard.into()),
                };
                steps.over(Point::Bind, Code::of(&bound));
                bound
            };
            let failure = cause::with(job.revision, bound).await.err();
            match &failure {
                None => tell_all(&executor, job.revision, [event]).await,
                Some(_) => cause::with(job.revision, claims::unreserve(&executor, &job.pod, &written)).await,
            }
            report(&finished, Progress::Finished(job.outcome_with(failure, written))).await;
        });
    }

    pub(super) fn went_on(&mut self, progress: Progress) {
        self.at_work -= 1;
        self.ended += 1;
        match progress {
            Progress::Said(key) => self.said(key),
            Progress::Preempted(key, uid, done) => self.preempted(&key, &uid, done),
            Progress::Finished(outcome) => self.bound(outcome),
            Progress::VolumesWritten(job, pod_volumes) => self.wait_for_volumes(job, pod_volumes),
        }
        self.bind_ready();
        if self.at_work == 0
            && std::mem::take(&mut self.ended) >= BURST_BINDINGS
            && let Some(after) = &self.after_burst
        {
            (after.0)();
        }
    }

    /// Has the Pod wait for its volumes, at nobody's cost.
    fn wait_for_volumes(&mut self, job: Job, pod_volumes: PodVolumes) {
        if self.pods.get(&job.key).is_none_or(|(pod, _)| uid(pod) != uid(&job.pod)) {
            return self.bound(job.outcome(Some(BindingError::Gone)));
        }
        let key = job.key.clone();
        let timeout = self.snapshot.profiles.of(&job.pod).arguments.volumes.bind_timeout;
        self.waiting.add(&key, pod_volumes, self.clock.now() + timeout, job);
        if let Some(over) = self.waiting.over_of(&self.snapshot.storage, &key) {
            self.waited(over);
        }
    }

    pub(super) fn waited(&mut self, (_, job, ended): Over<Job>) {
        let Err(error) = ended else { return self.ready.push_back((job, None)) };
        self.fail(job, error.into());
    }

    /// A Pod that found a Node is not bound, which is said.
    pub(super) fn fail(&mut self, job: Job, error: BindingError) {
        self.tell_apart(job.revision, Some(job.failed(&error)));
        self.bound(job.outcome(Some(error)));
    }

    /// Says which Node a Pod goes to that waits for others first.
    pub(super) fn say_node(&self, job: &mut Job) {
        let nomination = job.nominate();
        self.tell_apart(job.revision, nomination);
    }

    fn tell_apart(&self, revision: u64, action: Option<Action>) {
        let Some(action) = action else { return };
        let executor = self.executor.clone();
        self.tasks.spawn("explain", async move { tell_all(&executor, revision, [action]).await });
    }

    pub(super) fn waited_too_long(&mut self) {
        for over in self.waiting.late(self.clock.now()) {
            self.waited(over);
        }
        self.gangs_waited_too_long();
    }

    /// Has those go on that need not wait any more, as many as may be at work.
    pub(super) fn bind_ready(&mut self) {
        while self.at_work < BINDINGS_MAX
            && let Some((job, pod_volumes)) = self.ready.pop_front()
        {
            self.go_on(job, pod_volumes);
        }
    }

    pub(super) fn bound(&mut self, outcome: Outcome) {
        self.binding.remove(&outcome.key);
        let of = uid(&outcome.pod);
        self.snapshot.storage.settle(of);
        let mut events = Vec::new();
        for claim in outcome.claims {
            let old = self.snapshot.devices.claim(&claim_key(&claim)).cloned();
            events.push(Event::DeviceClaim(Turn { old, new: Some(claim.clone()) }));
            self.snapshot.devices.assume_written(claim);
        }
        self.snapshot.devices.settle(of);
        let now = self.clock.now();
        let Some(failure) = outcome.failure else {
            self.metrics.attempted(&outcome.pod, metrics::Outcome::scheduled, outcome.start, now);
            self.happened(&events);
            if let Some(history) = outcome.history {
                self.metrics.scheduled(history, now);
            }
            return;
        };
        self.metrics.attempted(&outcome.pod, metrics::Outcome::error, outcome.start, now);
        tracing::info!(pod = outcome.key, error = %failure, "binding failed");
        self.snapshot.gangs.forget(&outcome.pod);
        let waiting = self.pods.get(&outcome.key).filter(|(pod, _)| uid(pod) == of);
        if let Some((pod, revision)) = waiting.cloned() {
            self.snapshot.remove(of);
            self.queue.back_off(&outcome.key, now);
            if outcome.is_nominated || nominated(&pod).is_some() {
                self.tell_apart(revision, Some(nominating(&pod, None)));
            }
            // The room that it was to have is free.
            events.push(Event::Pod(Turn { old: Some(pod), new: None }));
            return self.happened(&events);
        }
        self.happened(&events);
        // Another Pod has come under the name meanwhile.
        if let Some((pod, _)) = self.pods.get(&outcome.key)
            && !self.queue.contains(&outcome.key)
        {
            self.queue.add(&outcome.key, priority(pod), (POD_ADD, now));
        }
    }
}

/// Tells of a Pod what nothing hangs on.
async fn tell_all(executor: &ActionExecutor, revision: u64, actions: impl IntoIterator<Item = Action>) {
    for action in actions {
        if let Err(error) = cause::with(revision, executor.carry_out(action)).await {
            tracing::debug!(%error, "what the scheduler says of a pod was not recorded");
        }
    }
}

pub(super) async fn report(finished: &mpsc::Sender<Progress>, progress: Progress) {
    if finished.send(progress).await.is_err() {
        tracing::debug!("the scheduler stopped during a binding");
    }
}

fn scheduled_event(pod: &Pod, key: &str, node: &str) -> Action {
    event(pod, pod, EventType::Normal, "Scheduled", format!("Successfully assigned {key} to {node}"))
}
