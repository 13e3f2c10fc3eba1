//! The strategies of the kinds that have rules of their own.

mod app_armor;
mod authn;
mod certificate;
mod claim;
mod daemon_set;
mod extension;
mod flow_control;
mod heartbeat;
mod label_keys;
mod networking;
mod partial;
mod prepare;
mod service;
mod storage;
mod volume;

pub use authn::*;
pub use certificate::{approve, validate_approval};
pub use extension::*;
pub use flow_control::*;
pub use networking::*;
pub use partial::{PartialStrategy, partial};
pub use storage::*;

use crate::gated;
use crate::strategy::{
    Deletion, FREE_STATUS_ONLY, GENERIC, Generation, NameRule, Propagation, SPEC, SPEC_AND_FREE_STATUS,
    StatusMetadata, Strategy, VIRTUAL,
};
use crate::validation as v;

/// Kinds without `spec` whose whole content counts for the generation.
pub const CONTENT: Strategy = Strategy { generation: Generation::Content, ..GENERIC };

/// ConfigMaps.
pub const CONFIG_MAP: Strategy = Strategy {
    validate_create: v::config::config_map,
    validate_update: v::config::config_map_update,
    ..GENERIC
};
/// Endpoints.
pub const ENDPOINTS: Strategy = Strategy {
    allow_create_on_update: true,
    validate_create: v::endpoints::check,
    validate_update: v::endpoints::update,
    warnings: v::warnings::endpoints,
    warnings_on_update: |new, _| v::warnings::endpoints(new),
    ..GENERIC
};
/// Bindings.
pub const BINDING: Strategy = Strategy { validate_create: v::pod::binding, ..VIRTUAL };
/// LimitRanges.
pub const LIMIT_RANGE: Strategy = Strategy {
    allow_create_on_update: true,
    validate_create: v::limits::limit_range,
    validate_update: v::limits::limit_range_update,
    ..GENERIC
};
/// ResourceQuotas.
pub const RESOURCE_QUOTA: Strategy = Strategy {
    validate_create: v::limits::resource_quota,
    validate_update: v::limits::resource_quota_update,
    validate_status_update: v::limits::resource_quota_status_update,
    ..FREE_STATUS_ONLY
};
/// PodDisruptionBudgets.
pub const POD_DISRUPTION_BUDGET: Strategy = Strategy {
    name_rule: NameRule::PathSegment,
    allow_unconditional_update: false,
    status_counts: &["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"],
    validate_create: v::disruption_budget::check,
    validate_update: v::disruption_budget::update,
    validate_status_update: v::disruption_budget::status_update,
    ..SPEC_AND_FREE_STATUS
};
/// HorizontalPodAutoscalers.
pub const HORIZONTAL_POD_AUTOSCALER: Strategy = Strategy {
    status_counts: &["currentReplicas", "desiredReplicas"],
    validate_create: v::autoscaler::check,
    validate_update: v::autoscaler::update,
    validate_status_update: v::autoscaler::status_update,
    ..FREE_STATUS_ONLY
};
/// PriorityClasses.
pub const PRIORITY_CLASS: Strategy = Strategy {
    generation: Generation::First,
    allow_create_on_update: true,
    validate_create: v::classes::priority_class,
    validate_update: v::classes::priority_class_update,
    ..GENERIC
};
/// RuntimeClasses.
pub const RUNTIME_CLASS: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::classes::runtime_class,
    validate_update: v::classes::runtime_class_update,
    warnings: v::warnings::runtime_class,
    warnings_on_update: |new, _| v::warnings::runtime_class(new),
    ..GENERIC
};
/// Workloads.
pub const WORKLOAD: Strategy =
    Strategy { validate_create: v::classes::workload, validate_update: v::classes::workload_update, ..SPEC };
/// EndpointSlices.
pub const ENDPOINT_SLICE: Strategy = Strategy {
    validate_create: v::endpoint_slice::check,
    validate_update: v::endpoint_slice::update,
    warnings: v::warnings::endpoint_slice,
    warnings_on_update: |new, _| v::warnings::endpoint_slice_update(new),
    generation: Generation::ContentAndLabels,
    ..GENERIC
};
/// Events of the core group; a PUT creates, since the old one may have expired.
pub const EVENT: Strategy = Strategy {
    name_rule: NameRule::PathSegment,
    allow_create_on_update: true,
    validate_create: v::event::core,
    validate_update: v::event::core_update,
    ..GENERIC
};
/// Events of `events.k8s.io`.
pub const EVENT_V1: Strategy = Strategy {
    name_rule: NameRule::Subdomain,
    validate_create: v::event::check,
    validate_update: v::event::update,
    ..EVENT
};
/// LeaseCandidates.
pub const LEASE_CANDIDATE: Strategy = Strategy {
    name_rule: NameRule::ConfigKey,
    allow_create_on_update: true,
    allow_unconditional_update: false,
    validate_create: v::lease::candidate,
    validate_update: v::lease::candidate_update,
    ..GENERIC
};
/// Leases.
pub const LEASE: Strategy = Strategy {
    gated: gated::LEASE,
    validate_create: v::lease::check,
    validate_update: v::lease::update,
    allow_create_on_update: true,
    allow_unconditional_update: false,
    ..GENERIC
};
/// Namespaces.
pub const NAMESPACE: Strategy = Strategy {
    validate_create: v::namespace::check,
    validate_status_update: v::namespace::status_update,
    name_rule: NameRule::Label,
    deletion: Deletion::Namespace,
    prepare_for_create: prepare::namespace_create,
    prepare_for_update: prepare::namespace_update,
    ..FREE_STATUS_ONLY
};
/// Nodes.
pub const NODE: Strategy = Strategy {
    gated: gated::NODE,
    validate_create: v::node::check,
    validate_update: v::node::update,
    validate_status_update: v::node::update,
    warnings: v::warnings::node,
    warnings_on_update: |new, _| v::warnings::node(new),
    creates_with_status: true,
    is_heartbeat: heartbeat::node,
    ..FREE_STATUS_ONLY
};
/// Pods.
pub const POD: Strategy = Strategy {
    gated: gated::POD,
    pod_spec: "/spec",
    validate_create: v::pod::create,
    validate_update: v::pod_update::update,
    validate_status_update: v::pod_status::update,
    warnings: v::warnings::pod,
    deletion: Deletion::PodGrace,
    grace_period: pod_grace_period,
    prepare_for_create: prepare::pod_create,
    prepare_for_status_update: |new, old, _| prepare::pod_status_update(new, old),
    // Old kubelets corrupted them.
    status_metadata: StatusMetadata::FreeBut(&["deletionTimestamp", "ownerReferences"]),
    warnings_on_status_update: |new, _| v::warnings::pod_status(new),
    ..SPEC_AND_FREE_STATUS
};

/// What was asked for, or the Pod's own; 0 at once for a Pod that no node runs or that has ended.
fn pod_grace_period(pod: &serde_json::Value, asked: Option<i64>) -> i64 {
    let text = |pointer: &str| pod.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default();
    if text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Succeeded" | "Failed") {
        return 0;
    }
    let own = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(serde_json::Value::as_i64);
    match asked.or(own).unwrap_or(30) {
        // Negative values stand for "as fast as possible without forcing".
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}
/// PodTemplates.
pub const POD_TEMPLATE: Strategy = Strategy {
    pod_spec: "/template/spec",
    generation: Generation::Content,
    allow_create_on_update: false,
    validate_create: v::pod::pod_template,
    validate_update: v::pod::pod_template_update,
    warnings: v::warnings::pod_template,
    warnings_on_update: v::warnings::pod_template_update,
    ..GENERIC
};
/// ReplicationControllers.
pub const REPLICATION_CONTROLLER: Strategy = Strategy {
    pod_spec: "/spec/template/spec",
    status_counts: &["replicas"],
    validate_create: v::apps::replication_controller,
    validate_update: v::apps::replication_controller_update,
    validate_status_update: v::apps::replication_controller_status,
    warnings: v::warnings::named_and_templated,
    warnings_on_update: v::warnings::templated_update,
    default_propagation: Propagation::Orphan,
    ..SPEC_AND_FREE_STATUS
};
/// Secrets.
pub const SECRET: Strategy =
    Strategy { validate_create: v::secret::check, validate_update: v::secret::update, ..GENERIC };
/// ServiceAccounts.
pub const SERVICE_ACCOUNT: Strategy = Strategy {
    prepare_for_create: prepare::secret_names,
    prepare_for_update: |new, _| prepare::secret_names(new),
    warnings: |new| v::warnings::service_account(new, &serde_json::Value::Null),
    warnings_on_update: v::warnings::service_account,
    ..GENERIC
};
/// Services.
pub const SERVICE: Strategy = Strategy {
    allow_create_on_update: true,
    validate_create: v::service::check,
    validate_update: v::service::update,
    name_rule: NameRule::Label1035,
    validate_status_update: v::service::status_update,
    warnings_on_status_update: |new, _| v::warnings::load_balancer(new),
    warnings: v::warnings::service,
    warnings_on_update: |new, _| v::warnings::service(new),
    prepare_for_create: service::create,
    prepare_for_update: service::update,
    ..FREE_STATUS_ONLY
};

/// DaemonSets.
pub const DAEMON_SET: Strategy = Strategy {
    pod_spec: "/spec/template/spec",
    status_counts: &["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"],
    prepare_for_create: daemon_set::create,
    prepare_for_update: daemon_set::update,
    validate_create: v::apps::daemon_set,
    validate_update: v::apps::daemon_set_update,
    validate_status_update: v::apps::daemon_set_status,
    warnings: v::warnings::templated,
    warnings_on_update: v::warnings::templated_update,
    ..SPEC_AND_FREE_STATUS
};
/// Deployments.
pub const DEPLOYMENT: Strategy = Strategy {
    generation: Generation::SpecAndAnnotations,
    pod_spec: "/spec/template/spec",
    validate_create: v::apps::deployment,
    validate_update: v::apps::deployment_update,
    validate_status_update: v::apps::deployment_status,
    status_metadata: StatusMetadata::FreeBut(&["labels"]),
    warnings: v::warnings::named_and_templated,
    warnings_on_update: v::warnings::templated_update,
    ..SPEC_AND_FREE_STATUS
};
/// ReplicaSets.
pub const REPLICA_SET: Strategy = Strategy {
    pod_spec: "/spec/template/spec",
    status_counts: &["replicas"],
    validate_create: v::apps::replica_set,
    validate_update: v::apps::replica_set_update,
    validate_status_update: v::apps::replica_set_status,
    warnings: v::warnings::named_and_templated,
    warnings_on_update: v::warnings::templated_update,
    ..SPEC_AND_FREE_STATUS
};
/// StatefulSets.
pub const STATEFUL_SET: Strategy = Strategy {
    pod_spec: "/spec/template/spec",
    prepare_for_create: gated::stateful_set_create,
    prepare_for_update: gated::stateful_set_update,
    status_counts: &["availableReplicas", "replicas"],
    name_rule: NameRule::Label,
    validate_create: v::apps::stateful_set,
    validate_update: v::apps::stateful_set_update,
    validate_status_update: v::apps::stateful_set_status,
    warnings: v::warnings::stateful_set,
    warnings_on_update: v::warnings::stateful_set_update,
    ..SPEC_AND_FREE_STATUS
};
/// ControllerRevisions.
pub const CONTROLLER_REVISION: Strategy = Strategy {
    validate_create: v::apps::controller_revision,
    validate_update: v::apps::controller_revision_update,
    ..GENERIC
};
/// CronJobs.
pub const CRON_JOB: Strategy = Strategy {
    pod_spec: "/spec/jobTemplate/spec/template/spec",
    validate_create: v::batch::cron_job,
    validate_update: v::batch::cron_job_update,
    warnings: v::warnings::cron_job,
    warnings_on_update: v::warnings::cron_job_update,
    ..SPEC_AND_FREE_STATUS
};
/// Jobs.
pub const JOB: Strategy = Strategy {
    pod_spec: "/spec/template/spec",
    validate_create: v::batch::job,
    validate_update: v::batch::job_update,
    validate_status_update: v::batch::job_status_update,
    warnings: v::warnings::job,
    warnings_on_update: v::warnings::job_update,
    default_propagation: Propagation::Orphan,
    warning_on_delete: "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                        remove them or set propagationPolicy=Orphan to suppress this warning",
    prepare_for_create: prepare::job_create,
    ..SPEC_AND_FREE_STATUS
};

/// Roles.
pub const ROLE: Strategy = Strategy {
    name_rule: NameRule::PathSegment,
    allow_create_on_update: true,
    validate_create: v::rbac::role,
    validate_update: v::rbac::role_update,
    ..GENERIC
};
/// ClusterRoles.
pub const CLUSTER_ROLE: Strategy = Strategy {
    validate_create: v::rbac::cluster_role,
    validate_update: v::rbac::cluster_role_update,
    ..ROLE
};
/// RoleBindings.
pub const ROLE_BINDING: Strategy = Strategy {
    validate_create: v::rbac::role_binding,
    validate_update: v::rbac::role_binding_update,
    ..ROLE
};
/// ClusterRoleBindings.
pub const CLUSTER_ROLE_BINDING: Strategy = Strategy {
    validate_create: v::rbac::cluster_role_binding,
    validate_update: v::rbac::cluster_role_binding_update,
    ..ROLE
};
