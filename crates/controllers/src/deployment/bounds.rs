//! The numbers that bound a rollout: maxSurge, maxUnavailable, deadlines.

use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::int_or_percent::{Rounding, resolve};

/// What a rollout may do, in Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// `spec.replicas`.
    pub(crate) replicas: i32,
    /// How many Pods there may be beyond `replicas`; 0 unless rolling.
    pub(crate) max_surge: i32,
    /// How many of `replicas` may be unavailable; 0 unless rolling.
    pub(crate) max_unavailable: i32,
    /// Whether the strategy is RollingUpdate.
    pub(crate) is_rolling: bool,
}

impl Bounds {
    /// Reads them from `spec`. Source: `RollingUpdateDeployment`, apps/v1.
    pub(crate) fn of(spec: &DeploymentSpec) -> Self {
        let replicas = spec.replicas.unwrap_or(1);
        let strategy = spec.strategy.as_ref();
        let is_rolling = strategy.and_then(|s| s.type_.as_deref()) != Some("Recreate");
        if !is_rolling {
            return Self { replicas, max_surge: 0, max_unavailable: 0, is_rolling };
        }
        let rolling = strategy.and_then(|s| s.rolling_update.as_ref());
        let quarter = IntOrString::String("25%".to_owned());
        let surge = rolling.and_then(|r| r.max_surge.as_ref()).unwrap_or(&quarter);
        let unavailable = rolling.and_then(|r| r.max_unavailable.as_ref()).unwrap_or(&quarter);
        let max_surge = resolve(surge, replicas, Rounding::Up);
        let max_unavailable = match resolve(unavailable, replicas, Rounding::Down) {
            // Both zero would never move: upstream then allows one to be unavailable.
            0 if max_surge == 0 => 1,
            some => some,
        };
        Self { replicas, max_surge, max_unavailable: max_unavailable.min(replicas), is_rolling }
    }

    /// The most Pods that there may be, as the ReplicaSets' annotation says it.
    pub(crate) fn replicas_max(&self) -> i32 {
        self.replicas.saturating_add(self.max_surge)
    }

    /// The fewest available Pods.
    pub(crate) fn available_min(&self) -> i32 {
        self.replicas - self.max_unavailable
    }
}

/// A limit that upstream treats as none when it is the largest number there is.
pub(crate) fn limit(value: Option<i32>) -> Option<i32> {
    value.filter(|limit| *limit != i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::parse;

    fn check(spec: &str, expect: (i32, i32)) {
        let yaml = format!("{{selector: {{}}, template: {{}}, {spec}}}");
        let bounds = Bounds::of(&parse(&yaml));
        assert_eq!((bounds.max_surge, bounds.max_unavailable), expect, "{spec}");
    }

    #[test]
    fn surge_rounds_up_and_unavailable_rounds_down() {
        check("replicas: 3", (1, 0));
        check("replicas: 10", (3, 2));
        check("replicas: 0", (0, 0));
        check("replicas: 5, strategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 1}}", (2, 1));
        check("replicas: 5, strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}", (0, 1));
        check("replicas: 2, strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 9}}", (0, 2));
        check("replicas: 3, strategy: {rollingUpdate: {maxSurge: 100%, maxUnavailable: 100%}}", (3, 3));
        check("replicas: 3, strategy: {type: Recreate}", (0, 0));
    }
}
