//! The built-in plugins, one row each. Run in-process, or as programs of their own ([`crate::plugin`]).

mod bandwidth;
mod bridge;
mod host_local;
mod loopback;
mod portmap;
pub(crate) mod rules;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use machinery::net::Family;
use serde_json::Value;

use crate::attachment::{Attachment, BuiltinConfig};
use crate::types::{CniError, CniResult, RouteConfig};

pub(crate) use bandwidth::ifbs_of;
pub(crate) use bridge::VETH_PREFIX;

/// What the names of programs that are built-in plugins start with, beside the plain ones.
pub(crate) const PREFIX: &str = "knarr-";

/// The plugin's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A veth pair on a bridge.
    Bridge,
    /// Addresses of a range. A configuration's `ipam` names it.
    HostLocal,
    /// Ports of the host.
    Portmap,
    /// The rates at which a Pod may receive and send.
    Bandwidth,
    /// `lo`. The built-in runtime's namespaces have it up from the start; others rely on this.
    Loopback,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Bridge, Self::HostLocal, Self::Portmap, Self::Bandwidth, Self::Loopback];

    /// Upstream's name of the plugin that does the same.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::HostLocal => "host-local",
            Self::Portmap => "portmap",
            Self::Bandwidth => "bandwidth",
            Self::Loopback => "loopback",
        }
    }

    /// The plugin that a configuration's `type`, or a program's file name, means: `bridge`, `knarr-bridge`.
    pub fn of(name: &str) -> Option<Self> {
        let plain = name.strip_prefix(PREFIX).unwrap_or(name);
        Self::ALL.into_iter().find(|kind| kind.name() == plain)
    }
}

/// Where the plugins of one network keep what they must remember, and the table that their rules are in.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Folder of folders of leases, by network.
    pub(crate) leases: PathBuf,
    /// The folder where the host's settings are kept as they were, if somebody will set them back.
    pub(crate) before: Option<PathBuf>,
    pub(crate) rules: rules::Shared,
}

impl Site {
    /// Within the node's process.
    pub(crate) fn of_cluster(config: &BuiltinConfig) -> Self {
        Self {
            leases: config.state_dir.join("networks"),
            before: Some(config.state_dir.clone()),
            rules: rules::shared(config),
        }
    }

    /// The file that keeps how packets of a family were forwarded before.
    fn before(&self, family: Family) -> Option<PathBuf> {
        self.before.as_deref().map(|folder| forwarding_before(folder, family))
    }
}

/// What is attached; the rest may go. Source: CNI's GC, `cni.dev/valid-attachments`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attached {
    /// Containers all of whose interfaces stay.
    pub(crate) containers: BTreeSet<String>,
    /// Container ids and interfaces.
    pub(crate) interfaces: BTreeSet<(String, String)>,
}

impl Attached {
    pub(crate) fn has(&self, container_id: &str, ifname: &str) -> bool {
        self.containers.contains(container_id)
            || self.interfaces.contains(&(container_id.to_owned(), ifname.to_owned()))
    }

    /// Whether rules of this owner stay: a Pod that is attached, or a network as a whole.
    fn owns(&self, owner: &str) -> bool {
        owner.split_once('/').is_none_or(|(id, ifname)| id.is_empty() || self.has(id, ifname))
    }
}

/// A built-in plugin with its configuration.
#[derive(Debug)]
pub(crate) enum Builtin {
    Bridge(Box<bridge::Bridge>),
    HostLocal(Box<host_local::HostLocal>, Vec<RouteConfig>),
    Portmap(portmap::Portmap),
    Bandwidth(bandwidth::Bandwidth),
    Loopback,
}

impl Builtin {
    pub(crate) fn new(kind: Kind, network: &str, conf: &Value, site: &Site) -> Result<Self, CniError> {
        Ok(match kind {
            Kind::Bridge => Self::Bridge(Box::new(bridge::Bridge::new(network, conf, site)?)),
            Kind::HostLocal => {
                let ipam = conf.get("ipam").unwrap_or(&Value::Null);
                let (addresses, routes) = host_local::HostLocal::configured(network, ipam, site)?;
                Self::HostLocal(Box::new(addresses), routes)
            }
            Kind::Portmap => Self::Portmap(portmap::Portmap::new(network, conf, site)?),
            Kind::Bandwidth => Self::Bandwidth(bandwidth::Bandwidth::new(network, conf, site)?),
            Kind::Loopback => Self::Loopback,
        })
    }

    pub(crate) fn add(
        &self,
        attachment: &Attachment,
        previous: Option<CniResult>,
    ) -> Result<CniResult, CniError> {
        match self {
            Self::Bridge(bridge) => bridge.add(attachment),
            Self::HostLocal(addresses, routes) => addresses.add(attachment, routes),
            Self::Portmap(portmap) => {
                let result = previous.unwrap_or_default();
                portmap.add(attachment, &result)?;
                Ok(result)
            }
            Self::Bandwidth(bandwidth) => bandwidth.add(attachment, previous.unwrap_or_default()),
            Self::Loopback => loopback::add(attachment, previous),
        }
    }

    pub(crate) fn del(&self, attachment: &Attachment) -> Result<(), CniError> {
        match self {
            Self::Bridge(bridge) => bridge.del(attachment),
            Self::HostLocal(addresses, _) => {
                addresses.release(&attachment.container_id, &attachment.ifname).map(drop)
            }
            Self::Portmap(portmap) => portmap.del(attachment),
            Self::Bandwidth(bandwidth) => bandwidth.del(attachment),
            Self::Loopback => Ok(()),
        }
    }

    pub(crate) fn check(&self, attachment: &Attachment, previous: &CniResult) -> Result<(), CniError> {
        match self {
            Self::Bridge(bridge) => bridge.check(attachment, previous),
            Self::HostLocal(addresses, _) => addresses.check(attachment),
            Self::Portmap(portmap) => portmap.check(attachment, previous),
            Self::Bandwidth(bandwidth) => bandwidth.check(attachment, previous),
            Self::Loopback => loopback::check(attachment),
        }
    }

    pub(crate) fn restore<'a>(
        &self,
        kept: impl Iterator<Item = (&'a Attachment, &'a CniResult)>,
    ) -> Result<(), CniError> {
        match self {
            Self::Bridge(bridge) => bridge.prepare(),
            Self::Portmap(portmap) => portmap.restore(kept),
            Self::Bandwidth(bandwidth) => {
                bandwidth.restore(kept);
                Ok(())
            }
            Self::HostLocal(..) | Self::Loopback => Ok(()),
        }
    }

    /// Makes rules again that somebody has taken from the kernel.
    pub(crate) fn rules_again<'a>(
        &self,
        kept: impl Iterator<Item = (&'a Attachment, &'a CniResult)>,
    ) -> Result<(), CniError> {
        match self {
            Self::Bridge(bridge) => bridge.rules_again(kept),
            // Its rules are in the bridge's table, and the rest is none of nftables'.
            Self::Portmap(_) | Self::Bandwidth(_) | Self::HostLocal(..) | Self::Loopback => Ok(()),
        }
    }

    pub(crate) fn retain(&self, attached: &Attached) -> Result<(), CniError> {
        match self {
            Self::Bridge(bridge) => bridge.retain(attached),
            Self::HostLocal(addresses, _) => addresses.retain(attached),
            Self::Portmap(portmap) => portmap.retain(attached),
            Self::Bandwidth(bandwidth) => bandwidth.retain(attached),
            Self::Loopback => Ok(()),
        }
    }
}

/// Whether a plugin is told of what it has this capability for: by its configuration in this process, by its caller
/// as a program.
fn is_told(conf: &Value, capability: &str) -> bool {
    let has = conf.get("capabilities").and_then(|all| all.get(capability)) == Some(&Value::Bool(true));
    has || conf.get("runtimeConfig").is_some()
}

/// FNV-1a: stable across versions of the compiler, as names of links must be.
fn hash_of(text: &str) -> u64 {
    let bytes = text.bytes();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A hardware address as results have it.
pub(crate) fn mac_text(mac: &[u8]) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Rules are always made by nftables.
fn check_backend(conf: &Value, network: &str, field: &str) -> Result<(), CniError> {
    match conf.get(field).and_then(Value::as_str) {
        None | Some("" | "nftables") => Ok(()),
        Some(other) => {
            let reason = format!("{field} must be nftables, not {other}");
            Err(CniError::Config { path: network.into(), reason })
        }
    }
}

/// Whether a field says nothing: absent, null, false, 0, or without contents.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_set) => !is_set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The file that keeps how the host forwarded packets of a family before.
pub(crate) fn forwarding_before(folder: &Path, family: Family) -> PathBuf {
    folder.join(match family {
        Family::V4 => "ip_forward.before",
        Family::V6 => "ip6_forward.before",
    })
}
