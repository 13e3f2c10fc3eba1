//! One task per Pod: it owns the Pod's snapshot, asks the pure core what to do and has it carried out.
//!
//! It sleeps until something happens: the object changes, the runtime reports, a probe or a ConfigMap changes,
//! a job ends, a time comes that the core or the status asked for. Jobs run at the same time inside of the task
//! and change the snapshot only through their outcomes.

pub(crate) mod carry_out;
mod merge;
mod outcome;
mod report;
mod resize;
mod start;
mod startup;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::{EventType, cause};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use crate::inbox::{Inbox, Mail};
use crate::kubelet::Kubelet;
use crate::kubelet::probes::Probers;
use crate::metrics::{Measure, work};
use crate::pod::failure_reason::FailureReason;
use crate::pod::identity::{hash, mirrored_hash};
use crate::pod::job::JobKey;
use crate::pod::lifecycle::{is_finished, is_over, is_past_deadline};
use crate::pod::next_actions::{PodAction, next_actions};
use crate::pod::probe::ProbeKind;
use crate::pod::snapshot::{PodSnapshot, Step};
use crate::volumes::TokenKey;
use crate::volumes::objects::{PodObjects, Token};
pub(crate) use outcome::Outcome;
use report::Report;
use startup::Startup;

pub(crate) struct Worker {
    context: Arc<Kubelet>,
    inbox: Arc<Inbox>,
    tasks: base::Tasks,
    snapshot: PodSnapshot,
    objects: PodObjects,
    tokens: BTreeMap<TokenKey, Token>,
    /// Volumes are there, and something that they are made of has changed.
    is_volume_update_due: bool,
    jobs: FuturesUnordered<BoxFuture<'static, (JobKey, Outcome)>>,
    /// Ids of containers that run: who goes after others waits for them to go.
    running: watch::Sender<BTreeSet<String>>,
    /// By container name, the id of the one whose back-off was told last.
    backed_off: BTreeMap<String, String>,
    is_deadline_told: bool,
    /// Keys that stay busy until then, because the last try failed.
    retries: BTreeMap<JobKey, Timestamp>,
    /// Before the last try to bring volumes up to date, if the one before failed.
    volume_update_delay: Option<Duration>,
    probers: Probers,
    report: Report,
    startup: Startup,
    /// Since when something is under way, and what woke the worker for it.
    round: Option<(Instant, &'static str)>,
    /// The revision that woke the worker last.
    cause: u64,
}

impl Worker {
    /// A worker for `snapshot.pod`, which knows what the runtime already has.
    pub(crate) fn new(
        context: Arc<Kubelet>,
        inbox: Arc<Inbox>,
        mut snapshot: PodSnapshot,
        cause: u64,
    ) -> Self {
        let tasks = context.tasks.child();
        if !snapshot.containers.is_empty() {
            let (agreed, wanted) =
                crate::pod::resize::split(&snapshot.pod, &crate::pod::resize::recorded(&snapshot.pod));
            snapshot.pod = agreed.map_or(snapshot.pod, Arc::new);
            snapshot.resize =
                crate::pod::resize::Resize { wanted, ..crate::pod::resize::under_way(&snapshot.pod) };
        }
        if snapshot.ending.is_none() && !snapshot.removed_from_api {
            context.resources.allocations.add(
                &snapshot.pod,
                crate::pod::resize::requests(snapshot.spec()),
                &inbox,
            );
        }
        let mut objects = PodObjects::default();
        objects.follow(&context.volumes, &snapshot.pod, &tasks, &inbox);
        // After a restart everything is there; it is only brought up to date.
        let is_volume_update_due = snapshot.ready_sandbox().is_some();
        if is_volume_update_due {
            snapshot.volumes = Step::Ready(String::new());
        }
        snapshot.holds_claims = context.resources.dra.holds(snapshot.uid());
        if snapshot.holds_claims && is_volume_update_due {
            snapshot.claims = Step::Ready(String::new());
        }
        merge::seed_probes(&mut snapshot, &context.facts.runtime_name);
        merge::read_last_words(&context.config, &mut snapshot);
        let probers = Probers::new(context.context.clone(), tasks.clone(), inbox.clone());
        context.metrics.measure(Measure::ContainersPerPod, &[], snapshot.spec().containers.len());
        let is_new = snapshot.sandboxes.is_empty();
        let startup = if is_new { Startup::of_new() } else { Startup::default() };
        let round = is_new.then(|| (Instant::now(), "create"));
        Self {
            context,
            inbox,
            tasks,
            snapshot,
            objects,
            tokens: BTreeMap::new(),
            is_volume_update_due,
            jobs: FuturesUnordered::new(),
            running: watch::Sender::default(),
            backed_off: BTreeMap::new(),
            is_deadline_told: false,
            retries: BTreeMap::new(),
            volume_update_delay: None,
            probers,
            report: Report::default(),
            startup,
            round,
            cause,
        }
    }

    /// Works until the Pod is gone from the node and from the API.
    pub(crate) async fn run(mut self) {
        self.context.span(self.cause, "kubelet woke", &self.snapshot.pod, self.context.clock.now(), "");
        loop {
            let mail = self.inbox.take();
            let kind = if mail.pod.is_some() { "update" } else { "sync" };
            self.round.get_or_insert_with(|| (Instant::now(), kind));
            self.read(mail);
            let now = self.context.clock.now();
            let wake_at = self.step(now);
            self.end_round();
            if self.snapshot.removed_from_api && self.snapshot.is_cleaned && self.jobs.is_empty() {
                break;
            }
            let sleep = wake_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
            let inbox = self.inbox.clone();
            tokio::select! {
                () = inbox.news() => {}
                Some((key, outcome)) = self.jobs.next() => {
                    self.snapshot.busy.remove(&key);
                    self.apply(key, outcome);
                }
                () = tokio::time::sleep(sleep.unwrap_or_default()), if sleep.is_some() => {}
            }
        }
        self.context.resources.allocations.remove(self.snapshot.uid());
        self.inbox.set_released();
        self.tasks.stop();
    }

    /// Nothing is under way any more: measures how long that took since the worker was woken.
    fn end_round(&mut self) {
        if self.jobs.is_empty()
            && let Some((since, kind)) = self.round.take()
        {
            let kind = if self.snapshot.is_terminating() { "kill" } else { kind };
            self.context.metrics.measure(Measure::PodWorker, &[kind], since.elapsed());
        }
    }

    /// One round: decides, starts jobs, and says when to look again.
    fn step(&mut self, now: Timestamp) -> Option<Timestamp> {
        let due: Vec<_> =
            self.retries.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.retries.remove(&key);
            self.snapshot.busy.remove(&key);
        }
        self.try_resize(now);
        self.tell_running();
        let mut wake_at: Vec<Timestamp> = self.retries.values().copied().collect();
        let report = self.report.due(&self.context, &self.snapshot, now);
        self.snapshot.is_status_written = report.is_written;
        wake_at.extend(report.wake_at);
        for action in next_actions(&self.snapshot, now) {
            match action {
                PodAction::WakeAt(at) => wake_at.push(at),
                action => self.launch(action),
            }
        }
        if let Some(patch) = report.patch {
            self.launch_status(patch);
        }
        self.inbox.set_work(work::of_pod(&self.snapshot));
        if is_finished(&self.snapshot) && !self.snapshot.may_run() {
            self.inbox.set_stopped();
        }
        if self.snapshot.is_released {
            self.inbox.set_released();
        }
        self.tell_deadline(now);
        self.update_volumes(now, &mut wake_at);
        if is_over(&self.snapshot, now) {
            self.probers.stop_all_but(ProbeKind::Readiness, &self.snapshot);
        } else {
            self.probers.follow(&self.snapshot);
        }
        wake_at.into_iter().min().map(|at| at.max(now))
    }

    /// Tells those that are to go after others who runs.
    fn tell_running(&self) {
        let running = self.snapshot.containers.iter().filter(|container| container.is_running());
        let running: BTreeSet<String> = running.map(|container| container.id.clone()).collect();
        self.running.send_if_modified(|known| {
            let is_new = *known != running;
            *known = running;
            is_new
        });
    }

    /// Says once that the Pod has been active for too long.
    fn tell_deadline(&mut self, now: Timestamp) {
        let is_recorded = matches!(self.snapshot.recorded_phase(), "Succeeded" | "Failed");
        if self.is_deadline_told || is_recorded || !is_past_deadline(&self.snapshot, now) {
            return;
        }
        self.is_deadline_told = true;
        let (reason, message) = crate::pod::status::DEADLINE_EXCEEDED;
        self.context.event(&self.snapshot.pod, None, EventType::Normal, reason, message.to_owned());
    }

    fn read(&mut self, mail: Mail) {
        if let Some((pod, revision)) = mail.pod {
            if merge::is_newer(&pod, &self.snapshot.pod) {
                // Labels and annotations may be shown in files.
                self.is_volume_update_due |= pod.metadata.labels != self.snapshot.pod.metadata.labels
                    || pod.metadata.annotations != self.snapshot.pod.metadata.annotations;
                merge::forget_changed(&mut self.snapshot, &pod);
                self.take_pod(pod);
            }
            self.cause = revision;
        }
        self.snapshot.removed_from_api |= mail.is_removed;
        if let (Some(why), Some(waits)) = (mail.room, &mut self.snapshot.resize.deferred_until) {
            *waits = why;
        }
        if let Some(mirror) = mail.mirror {
            self.take_mirror(mirror);
        }
        if let Some(ending) = mail.ending {
            self.end(ending);
        }
        if mail.sources_changed {
            self.is_volume_update_due = true;
            if self.retries.remove(&JobKey::VolumeUpdate).is_some() {
                self.snapshot.busy.remove(&JobKey::VolumeUpdate);
            }
            // What could not be made for want of an object is tried again at once.
            if self.snapshot.volumes.failure().is_some() {
                self.snapshot.volumes = Step::Missing;
            }
            self.snapshot
                .failures
                .retain(|_, failure| failure.reason != FailureReason::CreateContainerConfigError);
        }
        for sandbox in mail.sandboxes.into_values() {
            merge::sandbox(&mut self.snapshot, sandbox);
        }
        for (status, sandbox_id) in mail.containers.into_values() {
            merge::container(&mut self.snapshot, &status, &sandbox_id);
        }
        if mail.cpus_changed {
            self.update_cpus();
        }
        merge::read_last_words(&self.context.config, &mut self.snapshot);
        for ((container, kind), (id, is_success)) in mail.probes {
            merge::probe(&mut self.snapshot, container, kind, id, is_success);
        }
        if mail.refresh {
            self.launch_refresh();
        }
    }

    /// The Pod has failed; one that has ended already stays as it ended.
    fn end(&mut self, ending: crate::pod::snapshot::Ending) {
        let is_over = matches!(self.snapshot.recorded_phase(), "Succeeded" | "Failed");
        if self.snapshot.ending.is_none() && !is_over {
            crate::kubelet::termination_reasons::keep(&self.context.config, &self.snapshot, &ending);
            self.snapshot.ending = Some(ending);
        }
    }

    /// Takes a newer object that shows this static Pod; what it has for a status is what the API knows.
    fn take_mirror(&mut self, mirror: Option<Arc<Pod>>) {
        let is_same = |new: &Pod, old: &Pod| new.metadata.uid == old.metadata.uid;
        if let (Some(new), Some(old)) = (&mirror, &self.snapshot.mirror)
            && is_same(new, old)
            && !merge::is_newer(new, old)
        {
            return;
        }
        // One of an earlier content tells of other containers.
        let own = mirror.as_ref().filter(|mirror| mirrored_hash(mirror) == hash(&self.snapshot.pod));
        let status = own.and_then(|mirror| mirror.status.clone());
        if status.is_some() && status != self.snapshot.pod.status {
            let mut pod = (*self.snapshot.pod).clone();
            pod.status = status;
            self.snapshot.pod = Arc::new(pod);
        }
        if self.snapshot.mirror.as_ref().map(|m| &m.metadata.uid) != mirror.as_ref().map(|m| &m.metadata.uid)
        {
            self.report = Report::default();
        }
        self.snapshot.mirror = mirror;
    }

    /// Runs `job` under the Pod's cause; its key is busy meanwhile.
    fn spawn(&mut self, key: JobKey, job: impl Future<Output = Outcome> + Send + 'static) {
        if !self.snapshot.busy.insert(key.clone()) {
            return;
        }
        let revision = self.cause;
        self.jobs.push(Box::pin(async move { (key, cause::with(revision, job).await) }));
    }

    fn pod(&self) -> Arc<Pod> {
        self.snapshot.pod.clone()
    }
}
