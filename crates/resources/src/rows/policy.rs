//! Budgets, priorities, leases and fair queueing: `policy`, `scheduling`, `coordination`, `flowcontrol`, `node`.

use machinery::features::Feature;

use crate::columns as c;
use crate::resource::{Resource, STATUS, Scope};
use crate::strategies as s;

const FLOW: (&str, &str) = ("flowcontrol.apiserver.k8s.io", "v1");

const fn cluster(
    api: (&'static str, &'static str),
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource::new(api, plural, singular, kind, Scope::Cluster)
}

const fn namespaced(
    api: (&'static str, &'static str),
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource::new(api, plural, singular, kind, Scope::Namespaced)
}

const fn candidate(version: &'static str) -> Resource {
    namespaced(("coordination.k8s.io", version), "leasecandidates", "leasecandidate", "LeaseCandidate")
        .stored_as("coordination.k8s.io/v1beta1", None)
        .relaxed()
        .strategy(&s::LEASE_CANDIDATE)
        .columns(c::LEASE_CANDIDATE)
        .off()
}

/// The rows of this file.
pub(super) const ROWS: &[Resource] = &[
    namespaced(("policy", "v1"), "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget")
        .short(&["pdb"])
        .sub(&[STATUS])
        .strategy(&s::POD_DISRUPTION_BUDGET)
        .columns(c::POD_DISRUPTION_BUDGET),
    cluster(("scheduling.k8s.io", "v1"), "priorityclasses", "priorityclass", "PriorityClass")
        .short(&["pc"])
        .strategy(&s::PRIORITY_CLASS)
        .columns(c::PRIORITY_CLASS),
    namespaced(("scheduling.k8s.io", "v1alpha1"), "workloads", "workload", "Workload")
        .strategy(&s::WORKLOAD)
        .gated(Feature::GenericWorkload),
    namespaced(("coordination.k8s.io", "v1"), "leases", "lease", "Lease")
        .relaxed()
        .strategy(&s::LEASE)
        .columns(c::LEASE),
    candidate("v1beta1"),
    candidate("v1alpha2"),
    cluster(FLOW, "flowschemas", "flowschema", "FlowSchema")
        .sub(&[STATUS])
        .strategy(&s::FLOW_SCHEMA)
        .columns(c::FLOW_SCHEMA),
    cluster(FLOW, "prioritylevelconfigurations", "prioritylevelconfiguration", "PriorityLevelConfiguration")
        .sub(&[STATUS])
        .strategy(&s::PRIORITY_LEVEL_CONFIGURATION)
        .columns(c::PRIORITY_LEVEL_CONFIGURATION),
    cluster(("node.k8s.io", "v1"), "runtimeclasses", "runtimeclass", "RuntimeClass")
        .strategy(&s::RUNTIME_CLASS)
        .columns(c::RUNTIME_CLASS),
];
