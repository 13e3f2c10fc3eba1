//! The strategies of the kinds that have rules of their own.

use crate::resource::{Deletion, Generation, NameRule, Propagation};
use crate::strategy::{GENERIC, SPEC_AND_STATUS, STATUS_ONLY, Strategy};

/// Kinds without `spec` whose whole content counts for the generation.
pub const CONTENT: Strategy = Strategy { generation: Generation::Content, ..GENERIC };

/// ConfigMaps.
pub const CONFIG_MAP: Strategy = GENERIC;
/// Endpoints.
pub const ENDPOINTS: Strategy = GENERIC;
/// EndpointSlices.
pub const ENDPOINT_SLICE: Strategy = Strategy { generation: Generation::Content, ..GENERIC };
/// Events; a PUT creates, since the old one may have expired.
pub const EVENT: Strategy = Strategy { allow_create_on_update: true, ..GENERIC };
/// Leases.
pub const LEASE: Strategy =
    Strategy { allow_create_on_update: true, allow_unconditional_update: false, ..GENERIC };
/// Namespaces.
pub const NAMESPACE: Strategy =
    Strategy { name_rule: NameRule::Label, deletion: Deletion::Namespace, ..STATUS_ONLY };
/// Nodes.
pub const NODE: Strategy = STATUS_ONLY;
/// PersistentVolumeClaims.
pub const PERSISTENT_VOLUME_CLAIM: Strategy = STATUS_ONLY;
/// PersistentVolumes.
pub const PERSISTENT_VOLUME: Strategy = STATUS_ONLY;
/// Pods.
pub const POD: Strategy = Strategy { deletion: Deletion::PodGrace, ..SPEC_AND_STATUS };
/// PodTemplates.
pub const POD_TEMPLATE: Strategy = Strategy { generation: Generation::Content, ..GENERIC };
/// ReplicationControllers.
pub const REPLICATION_CONTROLLER: Strategy =
    Strategy { default_propagation: Propagation::Orphan, ..SPEC_AND_STATUS };
/// Secrets.
pub const SECRET: Strategy = GENERIC;
/// ServiceAccounts.
pub const SERVICE_ACCOUNT: Strategy = GENERIC;
/// Services.
pub const SERVICE: Strategy = Strategy { name_rule: NameRule::Label1035, ..STATUS_ONLY };

/// DaemonSets.
pub const DAEMON_SET: Strategy = SPEC_AND_STATUS;
/// Deployments.
pub const DEPLOYMENT: Strategy = SPEC_AND_STATUS;
/// ReplicaSets.
pub const REPLICA_SET: Strategy = SPEC_AND_STATUS;
/// StatefulSets.
pub const STATEFUL_SET: Strategy = SPEC_AND_STATUS;
/// CronJobs.
pub const CRON_JOB: Strategy = SPEC_AND_STATUS;
/// Jobs.
pub const JOB: Strategy = Strategy { default_propagation: Propagation::Orphan, ..SPEC_AND_STATUS };

/// Roles.
pub const ROLE: Strategy =
    Strategy { name_rule: NameRule::PathSegment, allow_create_on_update: true, ..GENERIC };
/// ClusterRoles.
pub const CLUSTER_ROLE: Strategy = ROLE;
/// RoleBindings and ClusterRoleBindings.
pub const ROLE_BINDING: Strategy = ROLE;
