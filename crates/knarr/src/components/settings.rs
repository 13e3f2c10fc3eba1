//! What a cluster was told, resolved once by the supervisor and read by its parts and by later commands.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use cli::args::{Part, ServerArgs};
use serde::{Deserialize, Serialize};

use crate::host;
use crate::layout::Layout;

/// The arguments, with nothing left open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// As given.
    pub(crate) args: ServerArgs,
    /// The Node's name.
    pub(crate) node_name: String,
    /// The Node's address.
    pub(crate) node_ip: IpAddr,
    /// The API server's own Service address: the first of the range.
    pub(crate) kubernetes_service_ip: IpAddr,
    /// The cluster that this Node has joined, if its control plane is elsewhere: a server's URL.
    #[serde(default)]
    pub(crate) joined: Option<String>,
}

impl Settings {
    /// Fills in what was not given: from an earlier run of this cluster, or from the host.
    pub(crate) fn resolve(mut args: ServerArgs, layout: &Layout) -> Result<Self> {
        // The parts have working directories of their own.
        for file in args.api_server.files_mut().filter(|file| file.as_os_str() != "-") {
            *file = std::path::absolute(&file).with_context(|| format!("find {}", file.display()))?;
        }
        args.container_runtime.private_registry =
            std::path::absolute(&args.container_runtime.private_registry)
                .context("find --private-registry")?;
        let runtime = &mut args.container_runtime;
        for folder in runtime.cni_bin_dir.iter_mut().chain(&mut runtime.cni_conf_dir) {
            *folder = std::path::absolute(&folder).context("find the folders of the pod network")?;
        }
        let earlier = if layout.config().exists() { Some(Self::load(layout)?) } else { None };
        let node_name = match (&args.node_name, &earlier) {
            (Some(name), _) => name.clone(),
            (None, Some(earlier)) => earlier.node_name.clone(),
            (None, None) => host::node_name()?,
        };
        // A host without a name of its own may still be a cluster of one.
        if auth::pki::is_reserved_node_name(&node_name) && node_name != "localhost" {
            bail!("the name {node_name} is the API server's: give the Node another one with --node-name");
        }
        let node_ip = match (args.node_ip, &earlier) {
            (Some(ip), _) => ip,
            (None, Some(earlier)) => earlier.node_ip,
            (None, None) => host::node_ip()?,
        };
        let kubernetes_service_ip = first_address(&args.service_cidr)?;
        Ok(Self { args, node_name, node_ip, kubernetes_service_ip, joined: None })
    }

    /// Whether somebody gives Nodes their ranges: controllers here, or those of a cluster of several hosts.
    pub(crate) fn has_node_ipam(&self) -> bool {
        let has_others = self.joined.is_some() || self.args.datastore.datastore_endpoint.is_some();
        has_others || self.args.runs(Part::ControllerManager)
    }

    /// Reads what [`Settings::save`] wrote.
    pub(crate) fn load(layout: &Layout) -> Result<Self> {
        let path = layout.config();
        let text = std::fs::read(&path).with_context(|| {
            format!("there is no cluster in {}; `knarr up` makes one", layout.root().display())
        })?;
        serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
    }

    /// Keeps the settings for the parts and for the next run.
    pub(crate) fn save(&self, layout: &Layout) -> Result<()> {
        let path = layout.config();
        let new = path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(&new, &path).with_context(|| format!("write {}", path.display()))
    }
}

/// `10.43.0.1` of `10.43.0.0/16`.
fn first_address(cidr: &str) -> Result<IpAddr> {
    let (base, prefix) =
        cidr.split_once('/').with_context(|| format!("{cidr} is not a CIDR, such as 10.43.0.0/16"))?;
    let base: std::net::Ipv4Addr = base.parse().with_context(|| format!("{cidr} is not an IPv4 CIDR"))?;
    let prefix: u32 = prefix
        .parse()
        .ok()
        .filter(|bits| (8..=28).contains(bits))
        .with_context(|| format!("the prefix length of {cidr} must be between 8 and 28"))?;
    let network = u32::from(base) & (u32::MAX << (32 - prefix));
    Ok(IpAddr::V4(std::net::Ipv4Addr::from(network + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_service_address_is_the_api_servers() {
        assert_eq!(first_address("10.43.0.0/16").map(|ip| ip.to_string()).ok().as_deref(), Some("10.43.0.1"));
        assert!(first_address("10.43.0.0").is_err());
        assert!(first_address("10.43.0.0/31").is_err());
    }
}
