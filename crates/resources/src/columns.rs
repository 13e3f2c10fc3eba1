//! What `kubectl get` shows: the columns of a Table, per kind.
//!
//! Names, order, formats and priorities are upstream's.
//! Source: `k8s.io/kubernetes/pkg/printers/internalversion`.

use jiff::Timestamp;
use machinery::duration;
use machinery::metadata::Metadata;
use serde_json::Value;

/// One column of a Table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// OpenAPI type of the cells: `string`, `integer`, `number`, `boolean`, `date`.
    pub r#type: &'static str,
    /// OpenAPI format; `name` for the column that names the object.
    pub format: &'static str,
    /// 0 for always, 1 for `-o wide` only.
    pub priority: i32,
    /// What the column tells.
    pub description: &'static str,
    /// The cell of an object.
    pub cell: fn(&Value, Timestamp) -> Value,
}

const fn column(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, r#type: "string", format: "", priority: 0, description: "", cell }
}

const NAME: Column = Column { format: "name", ..column("Name", name) };
const AGE: Column = column("Age", age);

fn name(object: &Value, _: Timestamp) -> Value {
    Metadata::of(object).name().into()
}

fn age(object: &Value, now: Timestamp) -> Value {
    duration::age(Metadata::of(object).creation_timestamp(), now).into()
}

/// Kinds without columns of their own.
pub const GENERIC: &[Column] = &[NAME, AGE];
/// Columns of the kind.
pub const COMPONENT_STATUS: &[Column] = GENERIC;
/// Columns of the kind.
pub const CONFIG_MAP: &[Column] = GENERIC;
/// Columns of the kind.
pub const ENDPOINTS: &[Column] = GENERIC;
/// Columns of the kind.
pub const EVENT: &[Column] = GENERIC;
/// Columns of the kind.
pub const CREATED_AT: &[Column] = GENERIC;
/// Columns of the kind.
pub const NAMESPACE: &[Column] = GENERIC;
/// Columns of the kind.
pub const NODE: &[Column] = GENERIC;
/// Columns of the kind.
pub const PERSISTENT_VOLUME_CLAIM: &[Column] = GENERIC;
/// Columns of the kind.
pub const PERSISTENT_VOLUME: &[Column] = GENERIC;
/// Columns of the kind.
pub const POD: &[Column] = GENERIC;
/// Columns of the kind.
pub const POD_TEMPLATE: &[Column] = GENERIC;
/// Columns of the kind.
pub const REPLICATION_CONTROLLER: &[Column] = GENERIC;
/// Columns of the kind.
pub const RESOURCE_QUOTA: &[Column] = GENERIC;
/// Columns of the kind.
pub const SECRET: &[Column] = GENERIC;
/// Columns of the kind.
pub const SERVICE_ACCOUNT: &[Column] = GENERIC;
/// Columns of the kind.
pub const SERVICE: &[Column] = GENERIC;
/// Columns of the kind.
pub const HORIZONTAL_POD_AUTOSCALER: &[Column] = GENERIC;
/// Columns of the kind.
pub const CONTROLLER_REVISION: &[Column] = GENERIC;
/// Columns of the kind.
pub const DAEMON_SET: &[Column] = GENERIC;
/// Columns of the kind.
pub const DEPLOYMENT: &[Column] = GENERIC;
/// Columns of the kind.
pub const REPLICA_SET: &[Column] = GENERIC;
/// Columns of the kind.
pub const STATEFUL_SET: &[Column] = GENERIC;
/// Columns of the kind.
pub const CRON_JOB: &[Column] = GENERIC;
/// Columns of the kind.
pub const JOB: &[Column] = GENERIC;
/// Columns of the kind.
pub const CERTIFICATE_SIGNING_REQUEST: &[Column] = GENERIC;
/// Columns of the kind.
pub const ROLE_BINDING: &[Column] = GENERIC;
/// Columns of the kind.
pub const ADMISSION_POLICY: &[Column] = GENERIC;
/// Columns of the kind.
pub const ADMISSION_POLICY_BINDING: &[Column] = GENERIC;
/// Columns of the kind.
pub const VALIDATING_ADMISSION_POLICY: &[Column] = GENERIC;
/// Columns of the kind.
pub const API_SERVICE: &[Column] = GENERIC;
/// Columns of the kind.
pub const WEBHOOK_CONFIGURATION: &[Column] = GENERIC;
/// Columns of the kind.
pub const POD_DISRUPTION_BUDGET: &[Column] = GENERIC;
/// Columns of the kind.
pub const PRIORITY_CLASS: &[Column] = GENERIC;
/// Columns of the kind.
pub const LEASE: &[Column] = GENERIC;
/// Columns of the kind.
pub const FLOW_SCHEMA: &[Column] = GENERIC;
/// Columns of the kind.
pub const PRIORITY_LEVEL_CONFIGURATION: &[Column] = GENERIC;
/// Columns of the kind.
pub const RUNTIME_CLASS: &[Column] = GENERIC;
/// Columns of the kind.
pub const IP_ADDRESS: &[Column] = GENERIC;
/// Columns of the kind.
pub const SERVICE_CIDR: &[Column] = GENERIC;
/// Columns of the kind.
pub const ENDPOINT_SLICE: &[Column] = GENERIC;
/// Columns of the kind.
pub const INGRESS_CLASS: &[Column] = GENERIC;
/// Columns of the kind.
pub const INGRESS: &[Column] = GENERIC;
/// Columns of the kind.
pub const NETWORK_POLICY: &[Column] = GENERIC;
/// Columns of the kind.
pub const VOLUME_ATTRIBUTES_CLASS: &[Column] = GENERIC;
/// Columns of the kind.
pub const RESOURCE_CLAIM: &[Column] = GENERIC;
/// Columns of the kind.
pub const RESOURCE_SLICE: &[Column] = GENERIC;
/// Columns of the kind.
pub const CSI_DRIVER: &[Column] = GENERIC;
/// Columns of the kind.
pub const CSI_NODE: &[Column] = GENERIC;
/// Columns of the kind.
pub const CSI_STORAGE_CAPACITY: &[Column] = GENERIC;
/// Columns of the kind.
pub const STORAGE_CLASS: &[Column] = GENERIC;
/// Columns of the kind.
pub const VOLUME_ATTACHMENT: &[Column] = GENERIC;
