//! The two strategies: RollingUpdate and Recreate.

use std::sync::Arc;

use controller::metadata::{controller_of, uid};
use controller::pod::Pod;

use crate::deployment::rollout::Rollout;
use crate::deployment::sets::{Set, total};
use crate::pod::is_finished;

impl Rollout<'_> {
    /// One step of a rolling update: first the new ReplicaSet grows as far as maxSurge allows, then the old ones
    /// shrink as far as maxUnavailable allows.
    pub(crate) fn roll(&mut self) {
        self.adopt_or_create();
        let Some(new) = self.new else { return };
        if self.grow(new) || self.shrink_old(new) {
            return;
        }
        self.clean_up_if_complete();
    }

    /// All old Pods go before the first new one comes.
    pub(crate) fn recreate(&mut self, pods: &[Arc<Pod>]) {
        self.adopt_revision();
        let mut is_shrinking = false;
        for index in self.old() {
            is_shrinking |= self.sets.get(index).is_some_and(Set::is_active) && self.resize(index, 0);
        }
        if is_shrinking || self.has_old_pods(pods) {
            return;
        }
        self.adopt_or_create();
        let Some(new) = self.new else { return };
        self.resize(new, self.bounds.replicas);
        self.clean_up_if_complete();
    }

    fn has_old_pods(&self, pods: &[Arc<Pod>]) -> bool {
        let old = self.old();
        if total(old.iter().filter_map(|index| self.sets.get(*index)), Set::actual) > 0 {
            return true;
        }
        let is_old = |pod: &Pod| {
            let owner = controller_of(&pod.metadata).map(|owner| owner.uid.as_str());
            old.iter()
                .filter_map(|index| self.sets.get(*index))
                .any(|set| owner == Some(uid(&set.object.metadata)))
        };
        pods.iter().any(|pod| !is_finished(pod) && is_old(pod))
    }

    fn clean_up_if_complete(&mut self) {
        if self.is_complete(&self.old_status()) {
            self.clean_up_history();
        }
    }

    fn grow(&mut self, new: usize) -> bool {
        let (replicas, bounds) = (self.sets.get(new).map_or(0, |set| set.replicas), self.bounds);
        if replicas == bounds.replicas {
            return false;
        }
        if replicas > bounds.replicas {
            return self.resize(new, bounds.replicas);
        }
        let headroom = bounds.replicas_max() - total(&self.sets, |set| set.replicas);
        self.resize(new, replicas + headroom.clamp(0, bounds.replicas - replicas))
    }

    fn shrink_old(&mut self, new: usize) -> bool {
        let old: Vec<usize> = self
            .old()
            .into_iter()
            .filter(|index| self.sets.get(*index).is_some_and(Set::is_active))
            .collect();
        if old.is_empty() {
            return false;
        }
        let unavailable_new = self.sets.get(new).map_or(0, |set| set.replicas - set.available());
        let all = self.replicas_of(&old) + self.replicas_of(&[new]);
        let most = all - self.bounds.available_min() - unavailable_new;
        if most <= 0 {
            return false;
        }
        // Pods that serve nobody go first, so that they do not block the update.
        let unhealthy = self.shrink(&old, most, |set| set.replicas - set.available());
        let available =
            total(old.iter().chain([&new]).filter_map(|index| self.sets.get(*index)), Set::available);
        let spare = available - self.bounds.available_min();
        let healthy = self.shrink(&old, spare, |set| set.replicas);
        unhealthy + healthy > 0
    }

    /// Takes at most `most` Pods away from the sets at `indices`, and from each at most what `removable` says.
    fn shrink(&mut self, indices: &[usize], most: i32, removable: fn(&Set) -> i32) -> i32 {
        let mut removed = 0;
        for index in indices {
            let Some(set) = self.sets.get(*index) else { continue };
            let count = removable(set).min(most - removed).max(0);
            let replicas = set.replicas - count;
            if count > 0 && self.resize(*index, replicas) {
                removed += count;
            }
        }
        removed
    }
}
