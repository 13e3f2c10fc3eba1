//! The decision in the making: the ReplicaSets, the conditions and the events of one Deployment.

use controller::metadata::annotation;
use controller::{Action, EventType};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet,
};
use std::sync::Arc;
use std::time::Duration;

use crate::deployment::bounds::Bounds;
use crate::deployment::sets::{Set, total};
use crate::deployment::{REVISION, Snapshot};

/// One Deployment on its way from what is to what is decided.
pub(crate) struct Rollout<'a> {
    pub(crate) deployment: &'a Deployment,
    pub(crate) spec: &'a DeploymentSpec,
    pub(crate) namesake: Option<&'a ReplicaSet>,
    pub(crate) now: Timestamp,
    pub(crate) bounds: Bounds,
    /// Oldest first.
    pub(crate) sets: Vec<Set>,
    /// Which of `sets` has the Deployment's template.
    pub(crate) new: Option<usize>,
    /// The decided `deployment.kubernetes.io/revision`.
    pub(crate) revision: Option<String>,
    pub(crate) conditions: Vec<DeploymentCondition>,
    pub(crate) collision_count: Option<i32>,
    pub(crate) events: Vec<Action>,
    pub(crate) deletes: Vec<Action>,
    pub(crate) on_failure: Vec<Action>,
    pub(crate) requeue_after: Option<Duration>,
}

impl<'a> Rollout<'a> {
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        spec: &'a DeploymentSpec,
        owned: Vec<Arc<ReplicaSet>>,
        now: Timestamp,
    ) -> Self {
        let deployment = &*snapshot.deployment;
        let status = deployment.status.as_ref();
        let mut sets: Vec<Set> = owned.into_iter().map(Set::of).collect();
        sets.sort_by(|a, b| (a.created(), a.name()).cmp(&(b.created(), b.name())));
        Self {
            new: sets.iter().position(|set| set.has_template(&spec.template)),
            deployment,
            spec,
            namesake: snapshot.namesake.as_deref(),
            now,
            bounds: Bounds::of(spec),
            sets,
            revision: annotation(&deployment.metadata, REVISION).map(str::to_owned),
            conditions: status.and_then(|status| status.conditions.clone()).unwrap_or_default(),
            collision_count: status.and_then(|status| status.collision_count),
            events: Vec::new(),
            deletes: Vec::new(),
            on_failure: Vec::new(),
            requeue_after: None,
        }
    }

    /// The status before this decision.
    pub(crate) fn old_status(&self) -> DeploymentStatus {
        self.deployment.status.clone().unwrap_or_default()
    }

    pub(crate) fn new_set(&self) -> Option<&Set> {
        self.sets.get(self.new?)
    }

    /// Indices of the sets that do not have the Deployment's template, oldest first.
    pub(crate) fn old(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|index| Some(*index) != self.new).collect()
    }

    /// `spec.replicas` of the sets at `indices`, added up.
    pub(crate) fn replicas_of(&self, indices: &[usize]) -> i32 {
        total(indices.iter().filter_map(|index| self.sets.get(*index)), |set| set.replicas)
    }

    pub(crate) fn inform(&mut self, reason: &str, message: String) {
        self.events.push(Action::event(self.deployment, EventType::Normal, reason, message));
    }
}
