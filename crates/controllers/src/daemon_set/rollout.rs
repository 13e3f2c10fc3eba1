//! The Pods to make and to remove now. Source: upstream's `podsShouldBeOnNode` and `rollingUpdate`; KEP-1591.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{created, is_deleting, label, name, namespace, uid};
use controller::plan::FAILURE;
use controller::pod::Pod;
use controller::{Action, EventType, Plan, Propagation};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::nodes::{Verdict, judge};
use super::{Snapshot, pod};
use crate::history::CONTROLLER_REVISION_HASH;
use crate::int_or_percent::{Rounding, resolve};
use crate::names::names;
use crate::pod::{Availability, availability, is_finished, is_ready, node_name, phase, since_until};

/// Pods made or removed by one plan. Source: upstream's `BurstReplicas`.
const BURST_PODS_MAX: usize = 250;
/// How long a Pod that failed stays, so that one that a Node refuses at once is not made again without end.
const FAILED_FOR_MIN: Duration = Duration::from_secs(1);

/// A DaemonSet and all that bears on its Pods.
pub(super) struct Rollout<'a> {
    pub(super) set: &'a DaemonSet,
    pub(super) spec: &'a DaemonSetSpec,
    pub(super) nodes: &'a [Arc<Node>],
    /// By Node, the oldest first.
    pub(super) pods: &'a BTreeMap<String, Vec<Arc<Pod>>>,
    /// Of the newest revision.
    pub(super) hash: &'a str,
    pub(super) now: Timestamp,
}

/// The new and the old Pod of a Node.
type Pair<'a> = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>);

/// What is to be done.
#[derive(Default)]
pub(super) struct Work {
    /// Nodes that are to get a Pod.
    creates: BTreeSet<String>,
    deletes: Vec<Arc<Pod>>,
    told: Vec<Action>,
    /// When a failed Pod is due to go.
    pub(super) look_again: Option<Duration>,
}

impl Rollout<'_> {
    /// Decides about every Node; replaces old Pods only where nothing else is to be done.
    pub(super) fn decide(&self) -> Work {
        let mut work = Work::default();
        for node in self.nodes {
            self.tend(node, &mut work);
        }
        let known: BTreeSet<&str> = self.nodes.iter().map(|node| name(&node.metadata)).collect();
        for (node, pods) in self.pods {
            if !known.contains(node.as_str()) {
                work.deletes
                    .extend(pods.iter().filter(|pod| node_name(pod).is_empty() && stays(pod)).cloned());
            }
        }
        let strategy = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
        if work.is_empty() && strategy != Some("OnDelete") {
            let (max_surge, max_unavailable) = self.bounds();
            if max_surge > 0 {
                self.surge(max_surge, &mut work)
            } else {
                self.replace(max_unavailable, &mut work)
            }
        }
        work
    }

    /// What `node` lacks or has too much of.
    fn tend(&self, node: &Node, work: &mut Work) {
        let on_node = self.on(name(&node.metadata));
        let present: Vec<&Arc<Pod>> =
            on_node.iter().filter(|pod| !(is_finished(pod) && is_deleting(&pod.metadata))).collect();
        let staying = || present.iter().filter(|pod| stays(pod)).map(|pod| Arc::clone(pod));
        match judge(self.spec, node) {
            Verdict::Run if present.is_empty() => {
                work.creates.insert(name(&node.metadata).to_owned());
            }
            Verdict::Run | Verdict::Stay => {
                let (ended, running): (Vec<_>, Vec<_>) = staying().partition(|pod| is_finished(pod));
                for pod in ended {
                    self.bury(&pod, name(&node.metadata), work);
                }
                self.prune(running, work);
            }
            Verdict::Leave => work.deletes.extend(staying()),
        }
    }

    /// Removes a Pod that ended, so that another is made.
    fn bury(&self, pod: &Arc<Pod>, node: &str, work: &mut Work) {
        let age = since_until(created(&pod.metadata), self.now);
        if phase(pod) == "Failed" && age < FAILED_FOR_MIN {
            let left = FAILED_FOR_MIN.saturating_sub(age);
            work.look_again = Some(work.look_again.map_or(left, |earlier| earlier.min(left)));
            return;
        }
        let (event_type, reason, what, verb) = match phase(pod) {
            "Failed" => (EventType::Warning, "FailedDaemonPod", "failed", "kill"),
            _ => (EventType::Normal, "SucceededDaemonPod", "succeeded", "delete"),
        };
        let (space, pod_name) = (namespace(&pod.metadata), name(&pod.metadata));
        let message =
            format!("Found {what} daemon pod {space}/{pod_name} on node {node}, will try to {verb} it");
        work.told.push(Action::event(self.set, event_type, reason, message));
        work.deletes.push(Arc::clone(pod));
    }

    /// Keeps the oldest Pod; with a surge, also its successor, until that is available or the old one fails.
    fn prune(&self, running: Vec<Arc<Pod>>, work: &mut Work) {
        if running.len() <= 1 {
            return;
        }
        if self.bounds().0 == 0 {
            work.deletes.extend(running.into_iter().skip(1));
            return;
        }
        let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| self.is_new(pod));
        if let (Some(successor), Some(oldest)) = (new.first(), old.first())
            && (!is_ready(oldest) || self.is_available(successor))
        {
            work.deletes.push(Arc::clone(oldest));
        }
        work.deletes.extend(new.into_iter().skip(1).chain(old.into_iter().skip(1)));
    }

    /// Deletes old Pods: those that are unavailable, and others as long as enough are available.
    fn replace(&self, max_unavailable: i32, work: &mut Work) {
        let mut left = max_unavailable;
        let mut candidates = Vec::new();
        for pods in self.pods.values() {
            match self.pair(pods) {
                Some((Some(new), None)) => left -= i32::from(!self.is_available(new)),
                Some((None, Some(old))) if self.is_available(old) => candidates.push(Arc::clone(old)),
                Some((None, Some(old))) => work.deletes.push(Arc::clone(old)),
                _ => left -= 1,
            }
        }
        work.deletes.extend(candidates.into_iter().take(usize::try_from(left).unwrap_or(0)));
    }

    /// Makes successors beside old Pods: where the old one is unavailable, and elsewhere as many as the surge allows.
    fn surge(&self, max_surge: i32, work: &mut Work) {
        let mut left = max_surge;
        let mut candidates = Vec::new();
        for (node, pods) in self.pods {
            match self.pair(pods) {
                Some((None, Some(old))) if !self.is_wanted(node) => work.deletes.push(Arc::clone(old)),
                Some((None, Some(old))) if self.is_available(old) => candidates.push(node.clone()),
                Some((None, Some(_))) => {
                    work.creates.insert(node.clone());
                }
                Some((Some(new), Some(_))) if !self.is_available(new) => left -= 1,
                Some((Some(_), Some(old))) => work.deletes.push(Arc::clone(old)),
                Some((_, None)) => {}
                None => left -= 1,
            }
        }
        work.creates.extend(candidates.into_iter().take(usize::try_from(left).unwrap_or(0)));
    }

    /// The new and the old Pod of a Node; nothing if there are more, which [`Self::prune`] sees to.
    fn pair<'a>(&self, pods: &'a [Arc<Pod>]) -> Option<Pair<'a>> {
        let staying = pods.iter().filter(|pod| stays(pod));
        let (new, old): (Vec<_>, Vec<_>) = staying.partition(|pod| self.is_new(pod));
        (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
    }

    /// maxSurge and maxUnavailable, in Nodes.
    fn bounds(&self) -> (i32, i32) {
        let wanted = self.nodes.iter().filter(|node| judge(self.spec, node) == Verdict::Run).count();
        let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
        let rolling = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.clone());
        let (surge, unavailable) =
            rolling.map_or((None, None), |rolling| (rolling.max_surge, rolling.max_unavailable));
        let surge = surge.map_or(0, |share| resolve(&share, wanted, Rounding::Up));
        let unavailable = resolve(&unavailable.unwrap_or(IntOrString::Int(1)), wanted, Rounding::Up);
        // Both zero would never move.
        (surge, if surge == 0 { unavailable.max(1) } else { unavailable })
    }

    pub(super) fn on(&self, node: &str) -> &[Arc<Pod>] {
        self.pods.get(node).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_new(&self, pod: &Pod) -> bool {
        label(&pod.metadata, CONTROLLER_REVISION_HASH) == Some(self.hash)
    }

    pub(super) fn availability(&self, pod: &Pod) -> Availability {
        availability(pod, self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        self.availability(pod) == Availability::Available
    }

    fn is_wanted(&self, node: &str) -> bool {
        let mut known = self.nodes.iter().filter(|known| name(&known.metadata) == node);
        known.any(|known| judge(self.spec, known) == Verdict::Run)
    }
}

fn stays(pod: &Arc<Pod>) -> bool {
    !is_deleting(&pod.metadata)
}

impl Work {
    /// Whether no Pod comes or goes.
    pub(super) fn is_empty(&self) -> bool {
        self.creates.is_empty() && self.deletes.is_empty()
    }

    /// Deletes, then creates in steps of 1, 2, 4, ..., so that no flood follows where the first is refused.
    pub(super) fn append_to(self, plan: &mut Plan, snapshot: &Snapshot, spec: &DaemonSetSpec, hash: &str) {
        let set = &*snapshot.set;
        let (mut told, mut deletes) = (self.told, Vec::new());
        for pod in self.deletes.iter().take(BURST_PODS_MAX) {
            let meta = &pod.metadata;
            let (space, name, uid) = (namespace(meta), name(meta), uid(meta));
            deletes.push(Action::delete::<Pod>(space, name, Some(uid), Propagation::Background, None));
            let message = format!("Deleted pod: {name}");
            told.push(Action::event(set, EventType::Normal, "SuccessfulDelete", message));
        }
        plan.push_step(deletes);
        let taken = snapshot.pods.iter().map(|pod| name(&pod.metadata).to_owned()).collect();
        let names = names(&set.metadata, taken, snapshot.revision);
        let mut creates = self.creates.iter().take(BURST_PODS_MAX).zip(names);
        let mut batch = 1;
        loop {
            let chosen: Vec<(&String, String)> = creates.by_ref().take(batch).collect();
            if chosen.is_empty() {
                break;
            }
            let made = chosen.into_iter().map(|(node, name)| {
                let message = format!("Created pod: {name}");
                told.push(Action::event(set, EventType::Normal, "SuccessfulCreate", message));
                Action::create(&pod::pod(set, &spec.template, hash, node, name))
            });
            plan.push_step(made.collect());
            batch *= 2;
        }
        let (reason, what) = match self.creates.is_empty() {
            true => ("FailedDelete", "Error deleting"),
            false => ("FailedCreate", "Error creating"),
        };
        plan.on_failure = vec![Action::event(set, EventType::Warning, reason, format!("{what}: {FAILURE}"))];
        plan.push_step(told);
    }
}
