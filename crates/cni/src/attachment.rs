//! A Pod on its way into a network, and the settings of the built-in one.

use std::net::IpAddr;
use std::path::PathBuf;

use machinery::net::Cidrs;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::types::{CniError, PortMapping};

/// The settings of the built-in network.
#[derive(Clone, Debug)]
pub struct BuiltinConfig {
    /// The cluster's short id (at most 12 bytes of interface name are used).
    pub cluster_id: String,
    /// The addresses of this node's Pods, a network of each family. Source: `Node.spec.podCIDRs`.
    pub pod_cidrs: Cidrs,
    /// The addresses of all Pods: what goes elsewhere leaves with the node's address.
    pub cluster_cidrs: Cidrs,
    /// Largest packet in bytes, the kernel's default if `None`.
    pub mtu: Option<u32>,
    /// The directory of addresses and results, which survives restarts.
    pub state_dir: PathBuf,
    /// The directories of plugin binaries, such as `/opt/cni/bin`.
    pub bin_dirs: Vec<PathBuf>,
    /// The directory of the built-in plugins as programs, for plugins that delegate to `bridge` or `host-local`.
    pub own_bin_dir: Option<PathBuf>,
    /// `true` if Pods are attached by the built-in network while no configuration is there; otherwise they wait for
    /// one.
    pub is_fallback: bool,
}

/// A Pod to attach, detach or check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The sandbox's id.
    pub container_id: String,
    /// Path of its network namespace. May be gone at DEL.
    pub netns_path: PathBuf,
    /// Name of the interface inside, `eth0`.
    pub ifname: String,
    /// The Pod's namespace.
    pub pod_namespace: String,
    /// The Pod's name.
    pub pod_name: String,
    /// The Pod's UID.
    pub pod_uid: String,
    /// Ports of the host that lead into the Pod.
    pub port_mappings: Vec<PortMapping>,
    /// The arguments of plugins with these capabilities, beside `portMappings`: `bandwidth`, `dns`, `ips`, `mac`, ...
    #[serde(default)]
    pub capabilities: Map<String, Value>,
}

impl Attachment {
    /// Everything that plugins are told if their configuration has the capability. Source: CNI's conventions.
    pub(crate) fn capability_args(&self) -> Map<String, Value> {
        let mut all = self.capabilities.clone();
        if !self.port_mappings.is_empty() {
            all.insert("portMappings".into(), json!(self.port_mappings));
        }
        all
    }

    /// The addresses that are wished for. Source: CNI's capability `ips`.
    pub(crate) fn wanted_ips(&self) -> Result<Vec<IpAddr>, CniError> {
        let wanted = self.capabilities.get("ips").and_then(Value::as_array).into_iter().flatten();
        let read = |wanted: &str| {
            let ip = wanted.split('/').next().unwrap_or_default();
            ip.parse().map_err(|_| CniError::Wish { what: "IP address", value: wanted.to_owned() })
        };
        wanted.filter_map(Value::as_str).map(read).collect()
    }

    /// The hardware address that is wished for. Source: CNI's capability `mac`.
    pub(crate) fn wanted_mac(&self) -> Result<Option<[u8; 6]>, CniError> {
        let Some(wanted) = self.capabilities.get("mac").and_then(Value::as_str) else { return Ok(None) };
        let invalid = || CniError::Wish { what: "hardware address", value: wanted.to_owned() };
        parse_mac(wanted).map(Some).ok_or_else(invalid)
    }

    /// `CNI_ARGS`. Source: Kubernetes' conventions, `pkg/kubelet` and containerd.
    pub(crate) fn arguments(&self) -> Vec<[String; 2]> {
        let pair = |name: &str, value: &str| [name.to_owned(), value.to_owned()];
        vec![
            pair("IgnoreUnknown", "1"),
            pair("K8S_POD_NAMESPACE", &self.pod_namespace),
            pair("K8S_POD_NAME", &self.pod_name),
            pair("K8S_POD_INFRA_CONTAINER_ID", &self.container_id),
            pair("K8S_POD_UID", &self.pod_uid),
        ]
    }
}

/// A hardware address as people and results have it: two digits for each byte, as Go reads it.
pub(crate) fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let between = if text.contains('-') { '-' } else { ':' };
    let is_byte = |part: &&str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |part: &str| u8::from_str_radix(Some(part).filter(is_byte)?, 16).ok();
    text.split(between).map(byte).collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests;
