//! Pods of gangs: those that are not tried before there are enough of them, and those that have found a Node and wait for the
//! others before they are bound.
//!
//! Nobody is at work for either: each is an entry here, which is looked at when a Pod of the gang or its Workload comes, when
//! another of the gang finds a Node, or when the time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controller::informer::{Change, Changes};
use controller::pod::Pod;
use controller::trace::Span;
use jiff::Timestamp;
use k8s_openapi::api::scheduling::v1alpha1::Workload;
use machinery::duration;

use super::binding::{Job, Steps};
use super::explaining::Explanation;
use super::{BINDINGS_MAX, Scheduler, span};
use crate::decide::available;
use crate::events::{Event, Turn};
use crate::gangs::GangKey;
use crate::metrics;
use crate::plugins::gang_scheduling::{self, NAME, Permit};
use crate::pod::uid;
use crate::preemption::{nominated, priority};
use crate::profile::Point;
use crate::queue::Rejectors;
use crate::storage::PodVolumes;
use crate::timings::Code;

/// Whose victims may still wait for others.
const PREEMPTION: &str = "DefaultPreemption";
/// What a Pod that waits does, as spans have it.
const WAIT: &str = "wait";

/// The Pods that have found a Node and wait for others of their gang: no more than there is room for on Nodes.
#[derive(Default)]
pub(super) struct Permits {
    pods: BTreeMap<String, Waiting>,
    due: BTreeSet<(Timestamp, String)>,
}

struct Waiting {
    job: Job,
    /// What its volumes are to be.
    pod_volumes: Option<PodVolumes>,
    since: Timestamp,
    until: Timestamp,
}

impl Permits {
    fn add(&mut self, waiting: Waiting) {
        self.due.insert((waiting.until, waiting.job.key.clone()));
        self.pods.insert(waiting.job.key.clone(), waiting);
    }

    fn remove(&mut self, key: &str) -> Option<Waiting> {
        let waiting = self.pods.remove(key)?;
        self.due.remove(&(waiting.until, key.to_owned()));
        Some(waiting)
    }

    /// Whether the Pod waits.
    pub(super) fn has(&self, key: &str) -> bool {
        self.pods.contains_key(key)
    }

    /// The Pod waits no longer: it is gone.
    pub(super) fn end(&mut self, key: &str) -> Option<Job> {
        self.remove(key).map(|waiting| waiting.job)
    }

    /// When the next has waited for too long.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(until, _)| *until)
    }

    fn late(&mut self, now: Timestamp) -> Option<Waiting> {
        let (_, key) = self.due.first().filter(|(until, _)| *until <= now).cloned()?;
        self.remove(&key)
    }
}

/// The next changes of Workloads, if they are followed.
pub(super) async fn next(changes: &mut Option<Changes<Workload>>) -> Vec<Change<Workload>> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

impl Scheduler {
    /// A Pod without a Node is seen. Whoever it completes a gang for is tried.
    pub(super) fn joins(&mut self, key: &str, pod: &Arc<Pod>) {
        let Some(gang) = GangKey::of(pod) else { return };
        if self.snapshot.gangs.wants(&gang, key, pod) {
            let event = Event::Newcomer(pod.clone());
            self.grown(&gang, event.label());
            self.happened(&[event]);
        }
    }

    pub(super) fn workloads_changed(&mut self, changes: Vec<Change<Workload>>) {
        for change in changes {
            let turn = Turn::from(&change);
            self.snapshot.gangs.set_workload(&change.key, change.new);
            let Some(workload) = turn.now() else { continue };
            let concerned: Vec<_> =
                self.incomplete.keys().filter(|gang| gang.is_of(workload)).cloned().collect();
            let is_new = turn.is_new();
            let event = Event::Workload(turn);
            concerned.iter().for_each(|gang| self.grown(gang, event.label()));
            if is_new {
                self.happened(&[event]);
            }
        }
    }

    /// Tries those of a gang that were held back, if they need not be any more.
    fn grown(&mut self, gang: &GangKey, event: &'static str) {
        if !self.incomplete.contains_key(gang)
            || gang_scheduling::refusal(gang, &self.snapshot.gangs).is_some()
        {
            return;
        }
        let now = self.clock.now();
        for key in self.incomplete.remove(gang).into_iter().flatten() {
            if let Some((pod, _)) = self.pods.get(&key) {
                self.queue.add(&key, priority(pod), (event, now));
            }
        }
    }

    /// Holds a Pod back that may not be tried yet, and says whether it does.
    pub(super) fn holds_back(&mut self, key: &str, pod: &Pod, revision: u64) -> bool {
        let Some(gang) = GangKey::of(pod) else { return false };
        if !self.snapshot.profiles.of(pod).asks(NAME, Point::PreEnqueue) {
            return false;
        }
        let Some(why) = gang_scheduling::refusal(&gang, &self.snapshot.gangs) else { return false };
        self.queue.remove(key);
        if self.incomplete.entry(gang).or_default().insert(key.to_owned()) {
            self.tell(WAIT, (key, revision), &why);
        }
        true
    }

    /// The Pod is not held back any more: it is gone.
    pub(super) fn leaves_gang(&mut self, key: &str, pod: &Pod) {
        let Some(gang) = GangKey::of(pod) else { return };
        if let Some(keys) = self.incomplete.get_mut(&gang) {
            keys.remove(key);
            if keys.is_empty() {
                self.incomplete.remove(&gang);
            }
        }
    }

    /// How many are held back.
    pub(super) fn held_back(&self) -> usize {
        self.incomplete.values().map(BTreeSet::len).sum()
    }

    /// A Pod that found a Node, which is reserved since `reserving`, goes on to it, or waits there for others of its gang.
    pub(super) fn permit(&mut self, mut job: Job, pod_volumes: Option<PodVolumes>, reserving: Timestamp) {
        let profile = self.snapshot.profiles.of(&job.pod).clone();
        if let Some(gang) = GangKey::of(&job.pod).filter(|_| profile.asks(NAME, Point::Reserve)) {
            self.snapshot.gangs.assume(&gang, &job.key, &job.pod);
        }
        let mut steps = Steps::new(&self.metrics, &self.clock, &job.pod, reserving);
        steps.over(Point::Reserve, Code::Success);
        let now = self.clock.now();
        let permit = match profile.asks(NAME, Point::Permit) {
            true => gang_scheduling::permit(&job.pod, &mut self.snapshot.gangs, now),
            false => Ok(None),
        };
        steps.over(
            Point::Permit,
            match &permit {
                Ok(Some(Permit::Wait { .. })) => Code::Wait,
                Ok(_) => Code::Success,
                Err(_) => Code::Error,
            },
        );
        match permit {
            Ok(None) => self.go_on(job, pod_volumes),
            Ok(Some(Permit::Go { with })) => {
                self.go_on(job, pod_volumes);
                for waiting in with.iter().filter_map(|key| self.permits.remove(key)) {
                    self.metrics.permitted("Success", waiting.since, now);
                    self.ready.push_back((waiting.job, waiting.pod_volumes));
                }
                self.bind_ready();
            }
            Ok(Some(Permit::Wait { until, count: (placed, needed) })) => {
                self.try_others(&job.pod);
                let why = format!(
                    "waiting for minCount pods from a gang to be waiting on permit: {placed} of {needed}; it keeps its room on \
                     {} until {until:.0}",
                    job.node
                );
                self.tell(WAIT, (&job.key, job.revision), &why);
                self.say_node(&mut job);
                self.permits.add(Waiting { job, pod_volumes, since: now, until });
            }
            Err(error) => self.fail(job, error.into()),
        }
    }

    /// Those of the Pod's gang that want a Node are tried now, so that it does not wait for their backoff.
    fn try_others(&mut self, pod: &Pod) {
        let depths = self.queue.depths();
        if depths.backoff + depths.unschedulable == 0 {
            return;
        }
        let Some(gang) = GangKey::of(pod) else { return };
        for key in self.snapshot.gangs.unscheduled(&gang) {
            self.queue.activate_now(&key);
        }
    }

    /// Those that have waited for the others for too long give their room back.
    pub(super) fn gangs_waited_too_long(&mut self) {
        let now = self.clock.now();
        while self.at_work < BINDINGS_MAX
            && let Some(waiting) = self.permits.late(now)
        {
            let waited = waiting.until.duration_since(waiting.since).as_nanos();
            let waited = duration::format(i64::try_from(waited).unwrap_or(i64::MAX));
            let why = format!("rejected due to timeout after waiting {waited} at plugin {NAME}");
            self.rejected(waiting, NAME, &why);
        }
    }

    /// A Pod that waits for others of its gang makes way for one that is more important: it was nowhere yet.
    pub(super) fn reject_for_preemption(&mut self, key: &str) {
        if let Some(waiting) = self.permits.remove(key) {
            self.rejected(waiting, PREEMPTION, "preempted");
        }
    }

    /// Source: `handleBindingCycleError` of a Pod that is rejected at Permit.
    fn rejected(&mut self, waiting: Waiting, plugin: &'static str, why: &str) {
        let Waiting { job, since, .. } = waiting;
        let (of, now) = (uid(&job.pod), self.clock.now());
        self.metrics.permitted("Unschedulable", since, now);
        self.metrics.attempted(&job.pod, metrics::Outcome::unschedulable, job.start, now);
        self.binding.remove(&job.key);
        self.snapshot.storage.settle(of);
        self.snapshot.devices.settle(of);
        self.snapshot.gangs.forget(&job.pod);
        self.snapshot.remove(of);
        let Some((pod, revision)) = self.pods.get(&job.key).filter(|(pod, _)| uid(pod) == of).cloned() else {
            return;
        };
        self.tell("decide", (&job.key, revision), why);
        self.queue.unschedulable(&job.key, Rejectors::from([plugin]), now);
        let nomination = (job.is_nominated || nominated(&pod).is_some()).then_some(None);
        let text = available(1, &format!("1 {why}"));
        let told = pod.clone();
        self.say_why(Explanation { pod: told, revision, why: ("Unschedulable", text), node: nomination });
        // The room that it was to have is free.
        self.happened(&[Event::Pod(Turn { old: Some(pod), new: None })]);
    }

    /// Tells what becomes of a Pod, for `knarr why` and `knarr trace`.
    fn tell(&self, what: &str, (key, revision): (&str, u64), why: &str) {
        let (now_us, detail) = (self.clock.now().as_microsecond(), format!("{NAME}: {why}"));
        self.reporter.span(Span { start_us: now_us, end_us: now_us, detail, ..span(what, key, revision) });
    }
}
