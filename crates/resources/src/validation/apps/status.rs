//! The status of a workload: numbers that fit together.

use machinery::field::{FieldError, FieldErrors};
use serde_json::Value;

use crate::validation::At;

const TOO_MANY: &str = "cannot be greater than status.replicas";

/// Which numbers a status has, and which of them are parts of others.
struct Numbers {
    /// Must not be negative.
    all: &'static [&'static str],
    /// Must not be above `replicas`.
    parts: &'static [&'static str],
    /// What is said when more are available than ready.
    available: &'static str,
}

const DEPLOYMENT: Numbers = Numbers {
    all: &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ],
    parts: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    available: "cannot be greater than readyReplicas",
};
const REPLICA_SET: Numbers = Numbers {
    all: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "terminatingReplicas",
        "observedGeneration",
    ],
    parts: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    available: "cannot be greater than readyReplicas",
};
const REPLICATION_CONTROLLER: Numbers = Numbers {
    all: &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"],
    ..REPLICA_SET
};
const STATEFUL_SET: Numbers = Numbers {
    all: &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ],
    parts: &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    available: "cannot be greater than status.readyReplicas",
};
const DAEMON_SET: &[&str] = &[
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
];

impl Numbers {
    fn check(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let status = At::root(object).get("status");
        let count = |field: &str| status.get(field).number().unwrap_or_default();
        for field in self.all {
            status.get(field).not_negative(&mut errors);
        }
        for field in self.parts {
            if count(field) > count("replicas") {
                errors.push(status.get(field).invalid(TOO_MANY));
            }
        }
        if count("availableReplicas") > count("readyReplicas") {
            errors.push(status.get("availableReplicas").invalid(self.available));
        }
        errors
    }
}

/// The count of collisions only rises: names are made from it.
fn collisions(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let count = |object| At::root(object).get("status").get("collisionCount");
    let (new, old) = (count(new), count(old));
    if old.number().is_some_and(|old| new.number().is_none_or(|new| new < old)) {
        let shown = new.number().unwrap_or_default();
        errors.push(FieldError::invalid(&new.path, shown, "cannot be decremented"));
    }
}

/// A write to the `/status` of a Deployment.
pub(crate) fn deployment_status(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = DEPLOYMENT.check(new);
    collisions(new, old, &mut errors);
    errors
}

/// A write to the `/status` of a ReplicaSet.
pub(crate) fn replica_set_status(new: &Value, _: &Value) -> FieldErrors {
    REPLICA_SET.check(new)
}

/// A write to the `/status` of a ReplicationController.
pub(crate) fn replication_controller_status(new: &Value, _: &Value) -> FieldErrors {
    REPLICATION_CONTROLLER.check(new)
}

/// A write to the `/status` of a StatefulSet.
pub(crate) fn stateful_set_status(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = STATEFUL_SET.check(new);
    collisions(new, old, &mut errors);
    errors
}

/// A write to the `/status` of a DaemonSet.
pub(crate) fn daemon_set_status(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let status = At::root(new).get("status");
    DAEMON_SET.iter().for_each(|field| status.get(field).not_negative(&mut errors));
    collisions(new, old, &mut errors);
    errors
}
