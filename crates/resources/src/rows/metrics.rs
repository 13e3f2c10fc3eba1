//! What Nodes and Pods use: read-only, and never stored. Source: `k8s.io/metrics`, metrics-server.

use crate::columns as c;
use crate::resource::{Resource, Scope};
use crate::strategy::VIRTUAL;

const METRICS: (&str, &str) = ("metrics.k8s.io", "v1beta1");

const READ: &[&str] = &["get", "list"];

/// The rows of this file.
pub(super) const ROWS: &[Resource] = &[
    Resource::new(METRICS, "nodes", "", "NodeMetrics", Scope::Cluster)
        .verbs(READ)
        .strategy(&VIRTUAL)
        .columns(c::NODE_METRICS),
    Resource::new(METRICS, "pods", "", "PodMetrics", Scope::Namespaced)
        .verbs(READ)
        .strategy(&VIRTUAL)
        .columns(c::POD_METRICS),
];
