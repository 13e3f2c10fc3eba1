//! The JSON that runtimes and plugins exchange. Source: CNI specification 1.1.0.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the specification that configurations of our own are written in.
pub const VERSION: &str = "1.1.0";

/// The versions that are spoken, oldest first.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", VERSION];

/// A network configuration list (`*.conflist`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfigList {
    /// Version of the specification that it is written in.
    #[serde(default)]
    pub cni_version: String,
    /// Versions that it can be used with; the newest that all speak wins over `cniVersion`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cni_versions: Vec<String>,
    /// Name of the network.
    pub name: String,
    /// Plugins ignore CHECK.
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    pub disable_check: bool,
    /// Plugins ignore GC: several runtimes use the network.
    #[serde(default, rename = "disableGC", deserialize_with = "flag")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_gc: bool,
    /// There are no more plugins in the folder that has the network's name.
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    pub load_only_inlined_plugins: bool,
    /// Plugin configurations, in the order of ADD; each has a `type`.
    #[serde(default)]
    pub plugins: Vec<Value>,
}

/// Plugins in Go write `null` for empty lists.
fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Go takes an empty text for no address.
fn address<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

/// libcni takes texts for flags as well.
fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Bool(flag) => Ok(flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        other => Err(serde::de::Error::custom(format!("must be true or false, not {other}"))),
    }
}

/// Whether a text can name a network or a container. Source: CNI specification 1.1, "network configuration".
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|char| char.is_ascii_alphanumeric() || "_.-".contains(char))
}

/// The result of ADD.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CniResult {
    /// Version of the specification that it is written in.
    #[serde(default)]
    pub cni_version: String,
    /// Interfaces made, on the host and in the Pod.
    #[serde(default, deserialize_with = "list")]
    pub interfaces: Vec<Interface>,
    /// Addresses given.
    #[serde(default, deserialize_with = "list")]
    pub ips: Vec<IpConfig>,
    /// Routes made in the Pod.
    #[serde(default, deserialize_with = "list")]
    pub routes: Vec<RouteConfig>,
    /// DNS of the network, unused by Kubernetes.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub dns: Value,
}

impl CniResult {
    /// The addresses of the Pod's interface of that name and those that name no interface, the primary one first.
    /// Source: containerd's go-cni.
    pub fn pod_ips(&self, ifname: &str) -> Vec<IpAddr> {
        let is_its = |ip: &&IpConfig| match ip.interface {
            None => true,
            Some(index) => self.interfaces.get(index).is_some_and(|interface| interface.name == ifname),
        };
        self.ips.iter().filter(is_its).filter_map(IpConfig::ip).collect()
    }

    /// The result as configurations of `version` have it: before 1.0, addresses say which kind they are; before 1.1,
    /// interfaces and routes say less.
    pub(crate) fn converted(&self, version: &str) -> Self {
        let mut converted = self.clone();
        version.clone_into(&mut converted.cni_version);
        if !is_at_least(version, (1, 1)) {
            for interface in &mut converted.interfaces {
                interface.mtu = None;
                interface.other.retain(|field, _| !["socketPath", "pciID"].contains(&field.as_str()));
            }
            let newer = ["mtu", "advmss", "priority", "table", "scope"];
            for route in &mut converted.routes {
                route.other.retain(|field, _| !newer.contains(&field.as_str()));
            }
        }
        let says_kind = !is_at_least(version, (1, 0));
        for ip in &mut converted.ips {
            let kind = if ip.address.contains(':') { "6" } else { "4" };
            ip.version = says_kind.then(|| kind.to_owned());
        }
        converted
    }
}

/// Whether a version of the specification, such as `0.4.0`, is this one or newer.
pub(crate) fn is_at_least(version: &str, (major, minor): (u32, u32)) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor)
}

/// An interface of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Largest packet in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Path of the namespace it is in; empty on the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// The fields of later versions of the specification.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An address of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpConfig {
    /// Address with prefix length.
    pub address: String,
    /// Gateway.
    #[serde(default, deserialize_with = "address", skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Index into the result's interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// IP version, which results before 1.0 must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The fields of later versions of the specification.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl IpConfig {
    fn ip(&self) -> Option<IpAddr> {
        self.address.split('/').next()?.parse().ok()
    }
}

/// A route of a result or of an IPAM configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouteConfig {
    /// Destination with prefix length.
    pub dst: String,
    /// Next hop; the gateway if `None`.
    #[serde(default, deserialize_with = "address", skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// The fields of later versions of the specification.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A port of the host that leads into a Pod. Source: capability `portMappings`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// Port of the host.
    pub host_port: u16,
    /// Port of the Pod.
    pub container_port: u16,
    /// `tcp` or `udp`.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// Address of the host; every one if empty or unspecified.
    #[serde(default, rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
}

fn tcp() -> String {
    "tcp".to_owned()
}

/// The document that a plugin prints when it fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Error code of the specification; from 100 on, the plugin's own.
    #[serde(default)]
    pub code: u32,
    /// The message.
    #[serde(default)]
    pub msg: String,
    /// More of it.
    #[serde(default)]
    pub details: String,
}

/// The reason why a Pod could not be attached, detached or checked.
#[derive(Debug, thiserror::Error)]
pub enum CniError {
    /// A configuration cannot be used.
    #[error("invalid network configuration {}: {reason}", path.display())]
    Config {
        /// The file, or the network's name.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A plugin named by the configuration is neither installed nor built in.
    #[error("failed to find plugin {plugin:?} in path {searched:?}")]
    PluginMissing {
        /// Its type.
        plugin: String,
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// Somebody does not speak the version that a configuration is written in.
    #[error("{plugin} does not support config version {version:?} (it speaks {speaks})")]
    Version {
        /// Who.
        plugin: String,
        /// What it would have to speak.
        version: String,
        /// What it speaks.
        speaks: String,
    },
    /// A plugin binary failed.
    #[error("plugin type={plugin:?} name={network:?} failed ({}): {body}", told(command))]
    Plugin {
        /// Its type.
        plugin: String,
        /// Its network.
        network: String,
        /// `ADD`, `DEL`, `CHECK`.
        command: &'static str,
        /// What it said.
        body: ErrorBody,
    },
    /// A configuration asks for what a built-in plugin does not do.
    #[error("unsupported field in network configuration {network}: {field}")]
    Unsupported {
        /// The network's name.
        network: String,
        /// The field.
        field: &'static str,
    },
    /// A plugin that is called by others is asked to make what is there already.
    #[error("container veth name {ifname:?} already exists in {}", netns.display())]
    InterfaceExists {
        /// Name of the interface.
        ifname: String,
        /// The Pod's network namespace.
        netns: PathBuf,
    },
    /// A wish that cannot be read.
    #[error("invalid {what}: {value}")]
    Wish {
        /// Which.
        what: &'static str,
        /// As it was given.
        value: String,
    },
    /// A Pod's bandwidth cannot be limited.
    #[error("cannot limit the bandwidth: {0}")]
    Bandwidth(String),
    /// Every address of the range is taken, or the one that somebody wishes for is.
    #[error("{0}")]
    NoAddress(String),
    /// There is no usable configuration, or a plugin says that it cannot attach Pods now.
    #[error("{0}")]
    NotReady(String),
    /// What has failed before, and is not tried again yet.
    #[error("{}", base::error_chain(.0))]
    Before(Arc<CniError>),
    /// CHECK found something missing or changed.
    #[error("{0}")]
    Check(String),
    /// A file of the network's state cannot be read or written.
    #[error("cannot use {}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The kernel refused the rules of several Pods at once.
    #[error("change the rules of the Pod network")]
    Rules(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
}

/// As libcni says it.
fn told(command: &str) -> String {
    if command == "DEL" { "delete".to_owned() } else { command.to_lowercase() }
}

impl std::fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.msg)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, "; {}", self.details) }
    }
}

impl CniError {
    pub(crate) fn state(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::State { path, source }
    }
}

/// Whether both are of one network on one bridge, whatever addresses they give.
pub(crate) fn is_same(one: &NetworkConfigList, other: &NetworkConfigList) -> bool {
    let bridge =
        |list: &NetworkConfigList| list.plugins.first().and_then(|plugin| plugin.get("bridge").cloned());
    one.name == other.name && bridge(one) == bridge(other)
}

#[cfg(test)]
mod tests;
