//! The JSON that runtimes and plugins exchange. Source: CNI specification 1.1.0.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the specification that configurations of our own are written in.
pub const VERSION: &str = "1.1.0";

/// A network configuration list (`*.conflist`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfigList {
    /// Version of the specification that it is written in.
    pub cni_version: String,
    /// Name of the network.
    pub name: String,
    /// Plugins ignore CHECK.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disable_check: bool,
    /// Plugin configurations, in the order of ADD; each has a `type`.
    pub plugins: Vec<Value>,
}

/// The result of ADD.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CniResult {
    /// Version of the specification that it is written in.
    #[serde(default)]
    pub cni_version: String,
    /// Interfaces made, on the host and in the Pod.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// Addresses given.
    #[serde(default)]
    pub ips: Vec<IpConfig>,
    /// Routes made in the Pod.
    #[serde(default)]
    pub routes: Vec<RouteConfig>,
    /// DNS of the network, unused by Kubernetes.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub dns: Value,
}

impl CniResult {
    /// The Pod's addresses, the primary one first.
    pub fn pod_ips(&self) -> Vec<IpAddr> {
        self.ips.iter().filter_map(|ip| ip.address.split('/').next()?.parse().ok()).collect()
    }

    /// The result as configurations of `version` have it: before 1.0, addresses say which kind they are.
    pub(crate) fn converted(&self, version: &str) -> Self {
        let mut converted = self.clone();
        version.clone_into(&mut converted.cni_version);
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
    /// What later versions of the specification have more.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An address of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpConfig {
    /// Address with prefix length.
    pub address: String,
    /// Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Index into the result's interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// IP version, which results before 1.0 must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What later versions of the specification have more.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A route of a result or of an IPAM configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouteConfig {
    /// Destination with prefix length.
    pub dst: String,
    /// Next hop; the gateway if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// What later versions of the specification have more.
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

/// What a plugin prints when it fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Error code of the specification; from 100 on, the plugin's own.
    #[serde(default)]
    pub code: u32,
    /// What happened.
    #[serde(default)]
    pub msg: String,
    /// More of it.
    #[serde(default)]
    pub details: String,
}

/// Why a Pod could not be attached, detached or checked.
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
    /// A plugin binary failed.
    #[error("plugin type={plugin:?} failed ({command}): {}", describe(body))]
    Plugin {
        /// Its type.
        plugin: String,
        /// `ADD`, `DEL`, `CHECK`.
        command: &'static str,
        /// What it said.
        body: ErrorBody,
    },
    /// Every address of the range is taken.
    #[error("no IP addresses available in range set: {range}")]
    NoAddress {
        /// The range.
        range: String,
    },
    /// There is no usable configuration, or a plugin says that it cannot attach Pods now.
    #[error("{0}")]
    NotReady(String),
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
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
}

fn describe(body: &ErrorBody) -> String {
    if body.details.is_empty() { body.msg.clone() } else { format!("{}: {}", body.msg, body.details) }
}

impl CniError {
    pub(crate) fn state(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::State { path, source }
    }
}
