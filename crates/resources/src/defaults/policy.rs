//! Priorities and fair queueing: `scheduling` and `flowcontrol`.

use serde_json::{Map, Value};

use super::{Row, absent, object, unset};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("io.k8s.api.scheduling.v1.PriorityClass", |m| absent(m, "preemptionPolicy", "PreemptLowerPriority")),
    ("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", |m| unset(m, "matchingPrecedence", 1000)),
    ("io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration", limited_priority_level),
    ("io.k8s.api.flowcontrol.v1.ExemptPriorityLevelConfiguration", exempt_priority_level),
    ("io.k8s.api.flowcontrol.v1.QueuingConfiguration", queuing),
];

fn limited_priority_level(level: &mut Map<String, Value>) {
    absent(level, "nominalConcurrencyShares", 30);
    absent(level, "lendablePercent", 0);
    if let Some(response) = object(level, "limitResponse") {
        unset(response, "type", "Reject");
    }
}

fn exempt_priority_level(level: &mut Map<String, Value>) {
    absent(level, "nominalConcurrencyShares", 0);
    absent(level, "lendablePercent", 0);
}

fn queuing(queuing: &mut Map<String, Value>) {
    unset(queuing, "queues", 64);
    unset(queuing, "handSize", 8);
    unset(queuing, "queueLengthLimit", 50);
}
