//! The Pods to make, remove and replace now. Source: upstream's `updateStatefulSet`, KEP-961 for maxUnavailable.

use std::ops::ControlFlow;
use std::sync::Arc;

use controller::metadata::{is_deleting, name, namespace, uid};
use controller::plan::FAILURE;
use controller::pod::Pod;
use controller::{Action, EventType, Plan, Propagation};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::Pod as WholePod;
use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::int_or_percent::{Rounding, resolve};
use crate::pod::{Availability, is_finished, phase};
use crate::stateful_set::claims::{Blocked, PodClaims};
use crate::stateful_set::identity::{correction, ordinal, pod, pod_name, revision, start};
use crate::stateful_set::status::running;

/// Pods created in one step, once the first steps went well.
const STEP_PODS_MAX: usize = 500;

/// A template and the revision that holds it.
pub(super) struct Template<'a> {
    pub(super) revision: &'a str,
    pub(super) template: &'a PodTemplateSpec,
}

/// A StatefulSet and all that bears on its Pods.
pub(super) struct Rollout<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) spec: &'a StatefulSetSpec,
    pub(super) claims: PodClaims<'a>,
    pub(super) current: Template<'a>,
    pub(super) update: Template<'a>,
    /// By ordinal.
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) now: Timestamp,
}

/// What is to be done, in this order.
#[derive(Default)]
pub(super) struct Work {
    claims: Vec<Action>,
    updates: Vec<Action>,
    deletes: Vec<Arc<Pod>>,
    creates: Vec<WholePod>,
    told: Vec<Action>,
}

impl Rollout<'_> {
    /// Decides about every Pod.
    pub(super) fn decide(&self) -> Work {
        let mut work = Work::default();
        for ordinal in self.wanted() {
            let went = match self.pod(ordinal) {
                Some(pod) => self.keep(ordinal, pod, &mut work),
                None => self.make(ordinal, &mut work),
            };
            if went.is_break() && self.is_ordered() {
                return work;
            }
        }
        for (ordinal, pod) in self.condemned() {
            work.updates.extend(self.claims.retain(ordinal, pod, true));
        }
        for (ordinal, pod) in self.condemned().rev() {
            if self.retire(ordinal, pod, &mut work).is_break() && self.is_ordered() {
                return work;
            }
        }
        self.replace(&mut work);
        work
    }

    fn make(&self, ordinal: i32, work: &mut Work) -> ControlFlow<()> {
        match self.claims.blocked(ordinal) {
            Some(Blocked::Stale) => return ControlFlow::Break(()),
            Some(Blocked::Deleting(claim)) => {
                let (pod, set) = (pod_name(self.set, ordinal), name(&self.set.metadata));
                let message = format!(
                    "create Pod {pod} in StatefulSet {set} failed error: pvc {claim} is being deleted"
                );
                work.told.push(Action::event(self.set, EventType::Warning, "FailedCreate", message));
                return ControlFlow::Break(());
            }
            None => {}
        }
        self.create_claims(ordinal, work);
        let from = if ordinal < start(self.spec).saturating_add(self.partition()) {
            &self.current
        } else {
            &self.update
        };
        work.creates.push(pod(self.set, self.spec, from.template, from.revision, ordinal));
        ControlFlow::Break(())
    }

    fn keep(&self, ordinal: i32, pod: &Arc<Pod>, work: &mut Work) -> ControlFlow<()> {
        if is_finished(pod) {
            if !is_deleting(&pod.metadata) {
                work.told.push(self.recreating(pod));
                work.deletes.push(Arc::clone(pod));
            }
            return ControlFlow::Break(());
        }
        if phase(pod) == "Pending" && !is_deleting(&pod.metadata) {
            self.create_claims(ordinal, work);
        }
        if self.is_ordered() && self.is_unavailable(pod) {
            return ControlFlow::Break(());
        }
        work.updates.extend(self.claims.retain(ordinal, pod, false));
        if !is_deleting(&pod.metadata) {
            work.updates.extend(correction(self.set, self.spec, pod, ordinal));
        }
        ControlFlow::Continue(())
    }

    fn retire(&self, ordinal: i32, pod: &Arc<Pod>, work: &mut Work) -> ControlFlow<()> {
        if is_deleting(&pod.metadata) {
            return ControlFlow::Break(());
        }
        let is_first_unavailable = || self.first_unavailable() == Some(ordinal);
        if self.is_ordered() && self.is_unavailable(pod) && !is_first_unavailable() {
            return ControlFlow::Break(());
        }
        work.deletes.push(Arc::clone(pod));
        ControlFlow::Break(())
    }

    /// Deletes Pods of older revisions, from the last ordinal down, as long as enough others are available. In
    /// parallel, those that are unavailable anyway go first, and cost nothing.
    fn replace(&self, work: &mut Work) {
        let strategy = self.spec.update_strategy.clone().unwrap_or_default();
        if strategy.type_.as_deref() == Some("OnDelete") {
            return;
        }
        let replicas = self.spec.replicas.unwrap_or(1);
        let max_unavailable = strategy.rolling_update.and_then(|rolling| rolling.max_unavailable);
        let max_unavailable =
            max_unavailable.map_or(1, |share| resolve(&share, replicas, Rounding::Down)).max(1);
        let unavailable =
            self.wanted().filter(|ordinal| self.pod(*ordinal).is_none_or(|pod| self.is_unavailable(pod)));
        let mut left = max_unavailable.saturating_sub(i32::try_from(unavailable.count()).unwrap_or(i32::MAX));
        let first = start(self.spec).saturating_add(self.partition());
        let old =
            self.wanted().rev().filter(|ordinal| *ordinal >= first).filter_map(|ordinal| self.pod(ordinal));
        let old = old.filter(|pod| revision(pod) != self.update.revision && !is_deleting(&pod.metadata));
        for pod in old {
            let is_free = !self.is_ordered() && self.is_unavailable(pod);
            let is_chosen = work.deletes.iter().any(|chosen| uid(&chosen.metadata) == uid(&pod.metadata));
            if is_chosen || !(is_free || left > 0) {
                continue;
            }
            left -= i32::from(!is_free);
            work.deletes.push(Arc::clone(pod));
        }
    }

    fn create_claims(&self, ordinal: i32, work: &mut Work) {
        let (creates, told) = self.claims.create_missing(ordinal);
        work.claims.extend(creates);
        work.told.extend(told);
    }

    fn recreating(&self, pod: &Pod) -> Action {
        let (space, set) = (namespace(&self.set.metadata), name(&self.set.metadata));
        let (event_type, reason, what) = match phase(pod) {
            "Failed" => (EventType::Warning, "RecreatingFailedPod", "failed"),
            _ => (EventType::Normal, "RecreatingTerminatedPod", "terminated"),
        };
        let pod = name(&pod.metadata);
        Action::event(
            self.set,
            event_type,
            reason,
            format!("StatefulSet {space}/{set} is recreating {what} Pod {pod}"),
        )
    }

    fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    fn partition(&self) -> i32 {
        let rolling =
            self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        rolling.and_then(|rolling| rolling.partition).unwrap_or(0)
    }

    /// The ordinals that are to have a Pod.
    fn wanted(&self) -> std::ops::Range<i32> {
        let start = start(self.spec);
        start..start.saturating_add(self.spec.replicas.unwrap_or(1))
    }

    fn pod(&self, wanted: i32) -> Option<&Arc<Pod>> {
        let at = self.pods.binary_search_by_key(&Some(wanted), |pod| ordinal(self.set, pod)).ok()?;
        self.pods.get(at)
    }

    fn condemned(&self) -> impl DoubleEndedIterator<Item = (i32, &Arc<Pod>)> {
        let wanted = self.wanted();
        let numbered = self.pods.iter().filter_map(|pod| Some((ordinal(self.set, pod)?, pod)));
        numbered.filter(move |(ordinal, _)| !wanted.contains(ordinal))
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        let min_ready_seconds = self.spec.min_ready_seconds.unwrap_or(0);
        is_deleting(&pod.metadata) || running(pod, min_ready_seconds, self.now) != Availability::Available
    }

    /// The lowest ordinal without an available Pod.
    fn first_unavailable(&self) -> Option<i32> {
        let condemned =
            self.condemned().filter(|(_, pod)| self.is_unavailable(pod)).map(|(ordinal, _)| ordinal);
        let wanted =
            self.wanted().filter(|ordinal| self.pod(*ordinal).is_none_or(|pod| self.is_unavailable(pod)));
        wanted.chain(condemned).min()
    }
}

impl Work {
    /// Whether there is nothing to do but tell.
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
            && self.updates.is_empty()
            && self.deletes.is_empty()
            && self.creates.is_empty()
    }

    /// Claims before Pods; Pods in steps of 1, 2, 4, ..., so that no flood follows where the first is refused.
    pub(super) fn append_to(self, plan: &mut Plan, set: &StatefulSet) {
        plan.on_failure = self.failure(set);
        plan.push_step(self.claims);
        plan.push_step(self.updates);
        let mut told = self.told;
        plan.push_step(
            self.deletes
                .iter()
                .map(|pod| {
                    let meta = &pod.metadata;
                    told.push(succeeded(set, "SuccessfulDelete", "delete", name(meta)));
                    let (space, name, uid) = (namespace(meta), name(meta), uid(meta));
                    Action::delete::<Pod>(space, name, Some(uid), Propagation::Background, None)
                })
                .collect(),
        );
        let mut rest = self.creates.as_slice();
        let mut batch = 1;
        while !rest.is_empty() {
            let (chosen, after) = rest.split_at(batch.min(rest.len()));
            plan.push_step(chosen.iter().map(Action::create).collect());
            told.extend(
                chosen.iter().map(|pod| succeeded(set, "SuccessfulCreate", "create", name(&pod.metadata))),
            );
            rest = after;
            batch = (batch * 2).min(STEP_PODS_MAX);
        }
        plan.push_step(told);
    }

    fn failure(&self, set: &StatefulSet) -> Vec<Action> {
        let first = |verb: &str, reason: &str, pod: &str| {
            let set_name = name(&set.metadata);
            let message = format!("{verb} Pod {pod} in StatefulSet {set_name} failed error: {FAILURE}");
            vec![Action::event(set, EventType::Warning, reason, message)]
        };
        if let Some(pod) = self.deletes.first() {
            return first("delete", "FailedDelete", name(&pod.metadata));
        }
        match self.creates.first() {
            Some(pod) => first("create", "FailedCreate", name(&pod.metadata)),
            None => Vec::new(),
        }
    }
}

fn succeeded(set: &StatefulSet, reason: &str, verb: &str, pod: &str) -> Action {
    let set_name = name(&set.metadata);
    let message = format!("{verb} Pod {pod} in StatefulSet {set_name} successful");
    Action::event(set, EventType::Normal, reason, message)
}
