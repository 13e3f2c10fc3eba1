//! KubeletConfiguration: a file, a folder of drop-ins and flags, merged in that order, read into [`Config`].
//!
//! Every broken rule is told, with the field that it is about; a field that this kubelet does not know, or that asks
//! for something else than it does, is refused. Source: `kubelet.config.k8s.io/v1beta1`, `--config-dir` (KEP-3983).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use machinery::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::duration::duration;
use super::fields::{FIELDS, Support, find};
use super::{Config, reserved};
use crate::config::eviction::Policy as EvictionPolicy;

pub(super) mod images;
mod ranges;
mod sources;
mod taints;

pub use sources::Sources;
use sources::{SyntaxError, merge};

/// Waits before restarts.
const RESTART_PERIODS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

/// A configuration that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// It could not be read.
    #[error("read the kubelet's configuration {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no YAML object of the right kind.
    #[error("{}: {flaw}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        flaw: Box<SyntaxError>,
    },
    /// Fields say what cannot be.
    #[error("invalid kubelet configuration: {}", .0.join("; "))]
    Fields(Vec<String>),
}

impl Config {
    /// Takes over what a merged configuration says.
    ///
    /// # Errors
    /// Every field that cannot be as it is.
    pub fn apply(&mut self, configuration: &Value) -> Result<(), ConfigurationError> {
        let empty = Map::new();
        let mut fields = Fields { object: configuration.as_object().unwrap_or(&empty), errors: Vec::new() };
        fields.check_names();
        fields.check_ranges();
        self.apply_basics(&mut fields);
        self.apply_resources(&mut fields);
        self.apply_eviction(&mut fields);
        self.apply_images(&mut fields);
        self.apply_shutdown(&mut fields);
        apply_access(&mut fields);
        if !fields.errors.is_empty() {
            return Err(ConfigurationError::Fields(fields.errors));
        }
        self.configz = self.shown(configuration);
        Ok(())
    }

    fn apply_basics(&mut self, fields: &mut Fields<'_>) {
        let path = |text: String| PathBuf::from(text);
        set(
            &mut self.static_pod_path,
            fields.text("staticPodPath").map(|p| Some(path(p)).filter(|p| p != "")),
        );
        set(&mut self.pod_logs_dir, pod_logs_dir(fields).map(path));
        set(&mut self.cgroup_root, fields.text("cgroupRoot").filter(|root| !root.is_empty()));
        set(&mut self.cluster_domain, fields.text("clusterDomain"));
        set(&mut self.provider_id, fields.text("providerID"));
        set(&mut self.cluster_dns, fields.texts("clusterDNS"));
        set(&mut self.resolv_conf, fields.text("resolvConf").map(path));
        set(&mut self.seccomp_default, fields.flag("seccompDefault"));
        set(&mut self.streaming_connection_idle_timeout, fields.time("streamingConnectionIdleTimeout"));
        set(&mut self.sync_frequency, fields.time("syncFrequency"));
        // Source: until there were two, one was for both.
        let updates = fields.time("nodeStatusUpdateFrequency");
        let reports = fields.time("nodeStatusReportFrequency").or(updates);
        set(&mut self.node_status_report_frequency, reports);
        set(&mut self.node_lease_duration_seconds, fields.number("nodeLeaseDurationSeconds", 1));
        set(&mut self.container_log_max_files, fields.integer("containerLogMaxFiles", 2).and_then(narrow));
        match fields.duration("containerLogMonitorInterval") {
            Some(short) if short < Duration::from_secs(3) => fields.error(
                "containerLogMonitorInterval",
                "must be a positive time duration greater than or equal to 3s",
            ),
            interval => set(&mut self.container_log_monitor_interval, interval),
        }
        if let Some(size) = fields.quantity("containerLogMaxSize") {
            self.container_log_max_size = u64::try_from(size).unwrap_or_default();
        }
        set(&mut self.shows_logs, fields.flag("enableSystemLogHandler"));
        set(&mut self.allowed_unsafe_sysctls, fields.texts("allowedUnsafeSysctls"));
        set(&mut self.register_with_taints, fields.taints("registerWithTaints"));
        let crash = fields.object("crashLoopBackOff");
        if let Some(text) = crash.and_then(|c| c.get("maxContainerRestartPeriod")).and_then(Value::as_str) {
            match duration(text) {
                Ok(max) if RESTART_PERIODS.contains(&max) => self.crash_loop_max = max,
                Ok(_) => fields.error(
                    "crashLoopBackOff.maxContainerRestartPeriod",
                    &format!("Invalid value: {text:?}: must be set between 1s and 300s"),
                ),
                Err(error) => fields.error("crashLoopBackOff.maxContainerRestartPeriod", &error.to_string()),
            }
        }
    }

    fn apply_eviction(&mut self, fields: &mut Fields<'_>) {
        let mut statements = self.eviction.statements.clone();
        if let Some(hard) = fields.map("evictionHard") {
            let merges = fields.flag("mergeDefaultEvictionSettings") == Some(true);
            if !merges {
                statements.hard.clear();
            }
            statements.hard.extend(hard);
        }
        set(&mut statements.soft, fields.map("evictionSoft"));
        set(&mut statements.soft_grace, fields.map("evictionSoftGracePeriod"));
        set(&mut statements.minimum_reclaim, fields.map("evictionMinimumReclaim"));
        match EvictionPolicy::parse(&statements) {
            Ok(policy) => self.eviction = policy,
            Err(errors) => fields.errors.extend(errors),
        }
        set(&mut self.eviction.transition_period, fields.time("evictionPressureTransitionPeriod"));
        set(&mut self.eviction.max_pod_grace_seconds, fields.integer("evictionMaxPodGracePeriod", 0));
        if !self.enforced.pods {
            self.eviction.leave_pods_together();
        }
    }

    /// The configuration as upstream's `/configz` shows it: what was said, and the defaults of what was not.
    fn shown(&self, said: &Value) -> Value {
        let seconds = |d: Duration| schema::duration::format(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX));
        let mut all = json!({
            "staticPodPath": self.static_pod_path,
            "podLogsDir": self.pod_logs_dir,
            "enableServer": true,
            "port": self.server.as_ref().map_or(10250, |s| s.port),
            "clusterDomain": self.cluster_domain,
            "clusterDNS": self.cluster_dns,
            "streamingConnectionIdleTimeout": seconds(self.streaming_connection_idle_timeout),
            "syncFrequency": seconds(self.sync_frequency),
            "nodeStatusReportFrequency": seconds(self.node_status_report_frequency),
            "nodeLeaseDurationSeconds": self.node_lease_duration_seconds,
            "cgroupRoot": self.cgroup_root,
            "cgroupsPerQOS": self.cgroups_per_qos,
            "cgroupDriver": "cgroupfs",
            "cpuManagerPolicy": if self.exclusive_cpus.is_some() { "static" } else { "none" },
            "memoryManagerPolicy": if self.reserved_memory.is_some() { "Static" } else { "None" },
            "topologyManagerPolicy": self.alignment.policy.as_str(),
            "topologyManagerScope": self.alignment.scope.as_str(),
            "enableSystemLogHandler": self.shows_logs,
        });
        let rest = json!({
            "maxPods": self.max_pods,
            "podPidsLimit": self.pod_pids_limit,
            "resolvConf": self.resolv_conf,
            "cpuCFSQuota": self.cpu_cfs_quota,
            "cpuCFSQuotaPeriod": "100ms",
            "evictionHard": self.eviction.statements.hard,
            "evictionPressureTransitionPeriod": seconds(self.eviction.transition_period),
            "evictionMaxPodGracePeriod": self.eviction.max_pod_grace_seconds,
            "containerLogMaxSize": Quantity::new(
                i64::try_from(self.container_log_max_size).unwrap_or(i64::MAX),
                machinery::quantity::Format::BinarySi,
            ).to_string(),
        });
        merge(&mut all, rest);
        let rest = json!({
            "containerLogMaxFiles": self.container_log_max_files,
            "containerLogMonitorInterval": seconds(self.container_log_monitor_interval),
            "configMapAndSecretChangeDetectionStrategy": "Watch",
            "systemReserved": self.reserved.system,
            "kubeReserved": self.reserved.kube,
            "enforceNodeAllocatable": self.enforced.names(),
            "shutdownGracePeriod": "0s",
            "shutdownGracePeriodCriticalPods": "0s",
            "crashLoopBackOff": {"maxContainerRestartPeriod": seconds(self.crash_loop_max)},
            "seccompDefault": self.seccomp_default,
            "registerWithTaints": Value::Null,
            "registerNode": true,
            "userNamespaces": {"idsPerPod": self.users_of_pod},
            "localStorageCapacityIsolation": true,
            "failSwapOn": false,
            "authentication": {"x509": {}, "webhook": {"enabled": true}, "anonymous": {"enabled": false}},
            "authorization": {"mode": "Webhook"},
        });
        merge(&mut all, rest);
        merge(&mut all, self.shown_images());
        merge(&mut all, said.clone());
        if let Some(all) = all.as_object_mut() {
            all.remove("apiVersion");
            all.remove("kind");
            all.retain(|_, value| !value.is_null());
        }
        all
    }
}

/// The folder of logs. Source: `validatePodLogsDir` of upstream's `pkg/kubelet/apis/config/validation`.
fn pod_logs_dir(fields: &mut Fields<'_>) -> Option<String> {
    const FIELD: &str = "podLogsDir";
    let path = fields.text(FIELD)?;
    let is_normal =
        |path: &str| path == "/" || path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    let flaw = match &path {
        empty if empty.is_empty() => return report(fields, FIELD, "was not specified"),
        path if !path.starts_with('/') => "be absolute path",
        path if !is_normal(path) => "be normalized",
        path if !path.is_ascii() => "contain ASCII characters only",
        _ => return Some(path),
    };
    report(fields, FIELD, &format!("pod logs path {path:?} must {flaw}"))
}

fn report<T>(fields: &mut Fields<'_>, field: &str, why: &str) -> Option<T> {
    fields.error(field, why);
    None
}

/// Only as this kubelet does it: certificates and the API server's reviews.
fn apply_access(fields: &mut Fields<'_>) {
    let flag = |value: &Value, at: &str| value.pointer(at).and_then(Value::as_bool);
    if let Some(authentication) = fields.value("authentication").cloned() {
        if flag(&authentication, "/anonymous/enabled") == Some(true) {
            fields.error("authentication.anonymous.enabled", "must be false");
        }
        if flag(&authentication, "/webhook/enabled") == Some(false) {
            fields.error("authentication.webhook.enabled", "must be true");
        }
    }
    let mode = fields.value("authorization").and_then(|a| a.get("mode")).and_then(Value::as_str);
    if mode.is_some_and(|mode| mode != "Webhook") {
        fields.error("authorization.mode", "must be Webhook");
    }
}

pub(super) fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

pub(super) fn narrow(number: i64) -> Option<u32> {
    u32::try_from(number).ok()
}

/// The object, and what is wrong with it.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    pub(super) errors: Vec<String>,
}

impl<'a> Fields<'a> {
    pub(super) fn error(&mut self, field: &str, why: &str) {
        self.errors.push(format!("{field}: {why}"));
    }

    fn check_names(&mut self) {
        for (name, value) in self.object {
            match find(name) {
                Some(Support::Read | Support::Moot) => {}
                Some(Support::Only(allowed)) => {
                    let is_unsaid = value.is_null() || value == "";
                    if !is_unsaid && !allowed.contains(&value.to_string().as_str()) {
                        let allowed = allowed.join(" or ");
                        self.error(
                            name,
                            &format!("Unsupported value: {value}: this kubelet supports only {allowed}"),
                        );
                    }
                }
                Some(Support::Elsewhere(flag)) => self.error(name, &format!("use the flag {flag}")),
                None => self.errors.push(format!("unknown field \"{name}\"")),
            }
        }
    }

    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        debug_assert!(FIELDS.contains(&(name, Support::Read)), "{name} is read but not in the table");
        self.object.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn wrong(&mut self, name: &str, wanted: &str) {
        let given = self.object.get(name).cloned().unwrap_or_default();
        self.error(name, &format!("Invalid value: {given}: must be {wanted}"));
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let value = self.value(name)?;
        if !value.is_string() {
            self.wrong(name, "a string");
        }
        value.as_str().map(str::to_owned)
    }

    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        let value = self.value(name)?;
        if !value.is_boolean() {
            self.wrong(name, "true or false");
        }
        value.as_bool()
    }

    pub(super) fn integer(&mut self, name: &str, least: i64) -> Option<i64> {
        let number = self.value(name)?.as_i64().filter(|number| *number >= least);
        if number.is_none() {
            self.wrong(name, &format!("a whole number of at least {least}"));
        }
        number
    }

    pub(super) fn duration(&mut self, name: &str) -> Option<Duration> {
        let text = self.text(name)?;
        duration(&text).map_err(|error| self.error(name, &error.to_string())).ok()
    }

    /// A duration of a field in which zero is what is not said. Source: `SetDefaults_KubeletConfiguration`.
    pub(super) fn time(&mut self, name: &str) -> Option<Duration> {
        self.duration(name).filter(|time| !time.is_zero())
    }

    /// As [`Self::integer`], of a field in which zero is what is not said.
    pub(super) fn number(&mut self, name: &str, least: i64) -> Option<i64> {
        let is_unsaid = self.value(name).is_some_and(|value| value.as_i64() == Some(0));
        if is_unsaid { None } else { self.integer(name, least) }
    }

    fn quantity(&mut self, name: &str) -> Option<i64> {
        let text = self.text(name).filter(|text| !text.is_empty())?;
        let quantity = text.parse::<Quantity>();
        quantity
            .map(Quantity::value)
            .map_err(|error| self.error(name, &format!("Invalid value: {text:?}: {error}")))
            .ok()
    }

    pub(super) fn texts(&mut self, name: &str) -> Option<Vec<String>> {
        let value = self.value(name)?;
        let texts: Option<Vec<String>> = value
            .as_array()
            .and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        if texts.is_none() {
            self.wrong(name, "a list of strings");
        }
        texts
    }

    pub(super) fn map(&mut self, name: &str) -> Option<BTreeMap<String, String>> {
        let value = self.value(name)?;
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let map: Option<BTreeMap<String, String>> = value
            .as_object()
            .and_then(|object| object.iter().map(|(key, value)| Some((key.clone(), text(value)?))).collect());
        if map.is_none() {
            self.wrong(name, "a map of strings");
        }
        map
    }

    pub(super) fn object(&mut self, name: &str) -> Option<&'a Map<String, Value>> {
        let value = self.value(name)?;
        if !value.is_object() {
            self.wrong(name, "an object");
        }
        value.as_object()
    }

    /// Amounts of resources that can be reserved.
    pub(super) fn amounts(&mut self, name: &str) -> BTreeMap<String, String> {
        let map = self.map(name).unwrap_or_default();
        for (resource, text) in &map {
            if !reserved::RESOURCES.contains(&resource.as_str()) {
                self.error(&format!("{name}[{resource}]"), "cannot reserve this resource");
            }
            match text.parse::<Quantity>() {
                Ok(quantity) if quantity.signum() >= 0 => {}
                Ok(_) => self.error(&format!("{name}[{resource}]"), "resource quantity cannot be negative"),
                Err(error) => self.error(&format!("{name}[{resource}]"), &error.to_string()),
            }
        }
        map
    }
}

#[cfg(test)]
mod tests;
