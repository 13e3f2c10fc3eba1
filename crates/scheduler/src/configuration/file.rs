//! A file's fields, as they are written, and how it is read: whatever nobody understands is told.
//!
//! Source: `KubeSchedulerConfiguration` and the plugins' `Args`, kubescheduler.config.k8s.io/v1.

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};
use machinery::{configuration, duration};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::{ArgumentsError, ConfigurationError, GROUP, KIND, VERSION};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct File {
    api_version: String,
    kind: String,
    pub(super) parallelism: Option<i32>,
    pub(super) leader_election: LeaderElection,
    pub(super) client_connection: ClientConnection,
    enable_profiling: Option<bool>,
    enable_contention_profiling: Option<bool>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) pod_initial_backoff_seconds: Option<i64>,
    pub(super) pod_max_backoff_seconds: Option<i64>,
    pub(super) profiles: Option<Vec<Profile>>,
    pub(super) extenders: Option<Vec<Extender>>,
    delay_cache_until_active: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LeaderElection {
    pub(super) leader_elect: Option<bool>,
    pub(super) lease_duration: Span,
    pub(super) renew_deadline: Span,
    pub(super) retry_period: Span,
    pub(super) resource_lock: String,
    pub(super) resource_name: String,
    pub(super) resource_namespace: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClientConnection {
    pub(super) kubeconfig: String,
    accept_content_types: String,
    content_type: String,
    qps: f32,
    pub(super) burst: i32,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Profile {
    pub(super) scheduler_name: Option<String>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) plugins: Option<Plugins>,
    pub(super) plugin_config: Option<Vec<PluginConfig>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Plugins {
    pub(super) pre_enqueue: PluginSet,
    pub(super) queue_sort: PluginSet,
    pub(super) pre_filter: PluginSet,
    pub(super) filter: PluginSet,
    pub(super) post_filter: PluginSet,
    pub(super) pre_score: PluginSet,
    pub(super) score: PluginSet,
    pub(super) reserve: PluginSet,
    pub(super) permit: PluginSet,
    pub(super) pre_bind: PluginSet,
    pub(super) bind: PluginSet,
    pub(super) post_bind: PluginSet,
    pub(super) multi_point: PluginSet,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PluginSet {
    pub(super) enabled: Option<Vec<Plugin>>,
    pub(super) disabled: Option<Vec<Plugin>>,
}

impl PluginSet {
    pub(super) fn enabled(&self) -> &[Plugin] {
        self.enabled.as_deref().unwrap_or_default()
    }

    pub(super) fn disables(&self, name: &str) -> bool {
        self.disabled.iter().flatten().any(|plugin| plugin.name == name)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Plugin {
    pub(super) name: String,
    pub(super) weight: Option<i32>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PluginConfig {
    pub(super) name: String,
    pub(super) args: Value,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Extender {
    pub(super) url_prefix: String,
    pub(super) filter_verb: String,
    pub(super) preempt_verb: String,
    pub(super) prioritize_verb: String,
    pub(super) weight: i64,
    pub(super) bind_verb: String,
    #[serde(rename = "enableHTTPS")]
    pub(super) enable_https: bool,
    pub(super) tls_config: Option<ExtenderTls>,
    pub(super) http_timeout: Span,
    pub(super) node_cache_capable: bool,
    pub(super) managed_resources: Option<Vec<ManagedResource>>,
    pub(super) ignorable: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ManagedResource {
    pub(super) name: String,
    pub(super) ignored_by_scheduler: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExtenderTls {
    pub(super) insecure: bool,
    pub(super) server_name: String,
    pub(super) cert_file: String,
    pub(super) key_file: String,
    pub(super) ca_file: String,
    /// Base64, as the two below.
    pub(super) cert_data: String,
    pub(super) key_data: String,
    pub(super) ca_data: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PreemptionArgs {
    pub(super) min_candidate_nodes_percentage: Option<i32>,
    pub(super) min_candidate_nodes_absolute: Option<i32>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NearArgs {
    pub(super) hard_pod_affinity_weight: Option<i32>,
    pub(super) ignore_preferred_terms_of_existing_pods: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FitArgs {
    pub(super) ignored_resources: Option<Vec<String>>,
    pub(super) ignored_resource_groups: Option<Vec<String>>,
    pub(super) scoring_strategy: Option<ScoringStrategy>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ScoringStrategy {
    pub(super) r#type: String,
    pub(super) resources: Option<Vec<Resource>>,
    pub(super) requested_to_capacity_ratio: Option<Ratio>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Resource {
    pub(super) name: String,
    pub(super) weight: i64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ratio {
    pub(super) shape: Option<Vec<ShapePoint>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ShapePoint {
    pub(super) utilization: i32,
    pub(super) score: i32,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SpreadArgs {
    pub(super) default_constraints: Option<Vec<TopologySpreadConstraint>>,
    pub(super) defaulting_type: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BalanceArgs {
    pub(super) resources: Option<Vec<Resource>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumesArgs {
    pub(super) bind_timeout_seconds: Option<i64>,
    pub(super) shape: Option<Vec<ShapePoint>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeAffinityArgs {
    pub(super) added_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DevicesArgs {
    pub(super) filter_timeout: Option<Span>,
    pub(super) binding_timeout: Option<Span>,
}

/// Nanoseconds, written as Go writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Span(pub(super) i64);

impl TryFrom<String> for Span {
    type Error = duration::ParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        duration::parse(&text).map(Self)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        duration::format(span.0)
    }
}

impl Span {
    /// Itself, or so many seconds if nothing was said.
    pub(super) fn or_seconds(self, seconds: i64) -> Self {
        if self.0 == 0 { Self(seconds * 1_000_000_000) } else { self }
    }

    pub(super) fn duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

impl File {
    /// Reads a file of the right kind, all of whose fields are known; arguments of plugins are not looked at.
    pub(super) fn read(yaml: &str) -> Result<Self, ConfigurationError> {
        let given: Value = configuration::read(yaml)?;
        let text = |field: &str| given.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if kind.is_empty() {
            return Err(ConfigurationError::Missing("Kind"));
        }
        if version.is_empty() {
            return Err(ConfigurationError::Missing("apiVersion"));
        }
        if (version, kind) != (VERSION, KIND) {
            let (kind, version) = (kind.to_owned(), version.to_owned());
            return Err(ConfigurationError::Kind { kind, version });
        }
        let file: Self = configuration::from_value(given.clone())?;
        let unknown = unknown_fields(&given, &file)?;
        if unknown.is_empty() { Ok(file) } else { Err(ConfigurationError::Unknown(unknown)) }
    }
}

/// Reads the arguments of the plugin `name`; nothing said is nothing wrong.
pub(super) fn arguments<T: Default + Serialize + DeserializeOwned>(
    name: &str,
    given: &Value,
) -> Result<T, ArgumentsError> {
    let plugin = name.to_owned();
    let mut fields = match given {
        Value::Null => Map::new(),
        Value::Object(fields) => fields.clone(),
        _ => return Err(ArgumentsError::NoObject(plugin)),
    };
    let of = |fields: &mut Map<String, Value>, field: &str, default: String| match fields.remove(field) {
        Some(Value::String(text)) if !text.is_empty() => text,
        _ => default,
    };
    let kind = of(&mut fields, "kind", format!("{name}Args"));
    let version = of(&mut fields, "apiVersion", VERSION.to_owned());
    let group = version.split('/').next().unwrap_or_default();
    if kind != format!("{name}Args") || group != GROUP {
        return Err(ArgumentsError::Type { plugin, got: format!("{kind}.{group}") });
    }
    if version != VERSION {
        return Err(ArgumentsError::Version { plugin, kind, version });
    }
    let given = Value::Object(fields);
    let unreadable = |error| ArgumentsError::Json(name.to_owned(), error);
    let read: T = serde_json::from_value(given.clone()).map_err(unreadable)?;
    let unknown = unknown_fields(&given, &read).map_err(unreadable)?;
    if unknown.is_empty() { Ok(read) } else { Err(ArgumentsError::Unknown(plugin, unknown)) }
}

/// What of `given` is not in `read`, which has been read from it: `unknown field "profiles[0].x"`.
fn unknown_fields<T: Serialize>(given: &Value, read: &T) -> serde_json::Result<Vec<String>> {
    let read = serde_json::to_value(read)?;
    let mut unknown = Vec::new();
    compare(given, &read, "", &mut unknown);
    Ok(unknown.iter().map(|path| format!("unknown field {path:?}")).collect())
}

fn compare(given: &Value, read: &Value, path: &str, unknown: &mut Vec<String>) {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => {
            for (name, value) in given {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match read.get(name) {
                    Some(read) => compare(value, read, &path, unknown),
                    // A null says nothing, and is not kept by all.
                    None if value.is_null() => {}
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(read)) => {
            for (index, (given, read)) in given.iter().zip(read).enumerate() {
                compare(given, read, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}
