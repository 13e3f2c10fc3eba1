//! Sizes: of one ReplicaSet, and of several in proportion when a rollout is under way.

use std::cmp::Reverse;

use crate::deployment::revision::{DESIRED_REPLICAS, REPLICAS_MAX};
use crate::deployment::rollout::Rollout;
use crate::deployment::sets::{Set, total};

impl Rollout<'_> {
    /// Whether `spec.replicas` changed since the active ReplicaSets were last sized.
    pub(crate) fn is_scaling_event(&self) -> bool {
        let active = self.sets.iter().filter(|set| set.is_active());
        active.filter_map(|set| set.number(DESIRED_REPLICAS)).any(|desired| desired != self.bounds.replicas)
    }

    /// Brings the ReplicaSets to the Deployment's size without going on with a rollout.
    pub(crate) fn scale(&mut self) {
        if let Some(index) = self.only_active_or_latest() {
            self.resize(index, self.bounds.replicas);
            return;
        }
        if self.is_saturated() {
            for index in self.old() {
                if self.sets.get(index).is_some_and(Set::is_active) {
                    self.resize(index, 0);
                }
            }
            return;
        }
        if self.bounds.is_rolling {
            self.scale_in_proportion();
        }
    }

    /// Decides the size of the set at `index`; says so in an event when it changes. Returns whether it does.
    pub(crate) fn resize(&mut self, index: usize, replicas: i32) -> bool {
        let (desired, most) = (self.bounds.replicas.to_string(), self.bounds.replicas_max().to_string());
        let Some(set) = self.sets.get_mut(index) else { return false };
        let before = set.replicas;
        set.replicas = replicas;
        set.annotations.insert(DESIRED_REPLICAS.to_owned(), desired);
        set.annotations.insert(REPLICAS_MAX.to_owned(), most);
        if before == replicas {
            return false;
        }
        let direction = if before < replicas { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {} from {before} to {replicas}", set.name());
        self.inform("ScalingReplicaSet", message);
        true
    }

    /// The one ReplicaSet to size when there are not several active ones: the active one, else the newest.
    fn only_active_or_latest(&self) -> Option<usize> {
        let mut active =
            (0..self.sets.len()).filter(|index| self.sets.get(*index).is_some_and(Set::is_active));
        match (active.next(), active.next()) {
            (None, _) => self.new.or_else(|| self.old().last().copied()),
            (Some(only), None) => Some(only),
            _ => None,
        }
    }

    /// Whether the new ReplicaSet is all that is needed.
    fn is_saturated(&self) -> bool {
        self.new_set().is_some_and(|set| {
            set.replicas == self.bounds.replicas
                && set.number(DESIRED_REPLICAS) == Some(self.bounds.replicas)
                && set.available() == self.bounds.replicas
        })
    }

    /// Shares what is to be added or removed among the active ReplicaSets by their sizes, so that a scale in the
    /// middle of a rollout is as risky as the rollout already was; the rest goes to the first.
    fn scale_in_proportion(&mut self) {
        let mut active: Vec<usize> =
            (0..self.sets.len()).filter(|index| self.sets.get(*index).is_some_and(Set::is_active)).collect();
        let allowed = if self.bounds.replicas > 0 { self.bounds.replicas_max() } else { 0 };
        let to_add = allowed - total(self.sets.iter().filter(|set| set.is_active()), |set| set.replicas);
        // `sets` is oldest first. Growth favours large and new, shrinking large and old.
        let size = |index: &usize| Reverse(self.sets.get(*index).map_or(0, |set| set.replicas));
        if to_add > 0 {
            active.sort_by_key(|index| (size(index), Reverse(*index)));
        } else if to_add < 0 {
            active.sort_by_key(|index| (size(index), *index));
        }
        let mut added = 0;
        let mut sizes = Vec::with_capacity(active.len());
        for index in &active {
            let Some(set) = self.sets.get(*index) else { continue };
            let share = self.share(set, to_add, added);
            added += share;
            sizes.push((*index, set.replicas + share));
        }
        if let Some((_, first)) = sizes.first_mut() {
            *first = (*first + to_add - added).max(0);
        }
        for (index, replicas) in sizes {
            self.resize(index, replicas);
        }
    }

    fn share(&self, set: &Set, to_add: i32, added: i32) -> i32 {
        if set.replicas == 0 || to_add == added {
            return 0;
        }
        let (share, left) = (self.fraction(set), to_add - added);
        if to_add > 0 { share.min(left) } else { share.max(left) }
    }

    /// By how much `set` would change if it kept its share of the whole.
    fn fraction(&self, set: &Set) -> i32 {
        if self.bounds.replicas == 0 {
            return -set.replicas;
        }
        let recorded = set.number(REPLICAS_MAX).filter(|most| *most != 0);
        let before = recorded.or(self.old_status().replicas).unwrap_or(0);
        if before == 0 {
            return 0;
        }
        let scaled = i64::from(set.replicas) * i64::from(self.bounds.replicas_max());
        round_div(scaled, i64::from(before)) - set.replicas
    }
}

/// `a / b` rounded to the nearest, half away from zero.
fn round_div(a: i64, b: i64) -> i32 {
    let half = b.abs() / 2;
    let rounded = if (a < 0) == (b < 0) { (a.abs() + half) / b.abs() } else { -((a.abs() + half) / b.abs()) };
    i32::try_from(rounded).unwrap_or(i32::MAX)
}
