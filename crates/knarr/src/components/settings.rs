//! What a cluster was told, resolved once by the supervisor and read by its parts and by later commands.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use cli::args::{Part, ServerArgs};
use machinery::net::Cidr;
use serde::{Deserialize, Serialize};

use super::local_nodes;
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
    /// The cluster that this Node has joined, if its control plane is elsewhere: a server's URL.
    #[serde(default)]
    pub(crate) joined: Option<String>,
    /// The network of the other Nodes on this host, if there are any.
    #[serde(default)]
    pub(crate) nodes_cidr: Option<Cidr>,
}

impl Settings {
    /// Fills in what was not given: from an earlier run of this cluster, or from the host.
    pub(crate) fn resolve(mut args: ServerArgs, layout: &Layout) -> Result<Self> {
        // The parts have working directories of their own.
        for file in args.api_server.files_mut().filter(|file| file.as_os_str() != "-") {
            *file = std::path::absolute(&file).with_context(|| format!("find {}", file.display()))?;
        }
        for file in args.scheduler_files_mut() {
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
        if let Some(range) = args.servicelb_pool.iter().find(|range| range.contains(node_ip)) {
            bail!("--servicelb-pool {range} must not contain the Node's address {node_ip}");
        }
        let before = earlier.and_then(|earlier| Some((earlier.args.nodes?, earlier.nodes_cidr)));
        let nodes_cidr = local_nodes::settle(&mut args, node_ip, layout, before)?;
        Ok(Self { args, node_name, node_ip, joined: None, nodes_cidr })
    }

    /// Where Pods and other Nodes find the API server.
    pub(crate) fn advertised(&self) -> IpAddr {
        let bound = Some(self.args.bind_address).filter(|ip| !ip.is_unspecified());
        self.args.advertise_address.or(bound).unwrap_or(self.node_ip)
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
