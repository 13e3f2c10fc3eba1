//! What a cluster was told, resolved once by the supervisor and read by its parts and by later commands.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use cli::args::{Part, ServerArgs};
use machinery::net::{Cidr, Cidrs, Family};
use serde::{Deserialize, Serialize};

use super::local_nodes::{self, FIRST, LocalNode};
use crate::host;
use crate::layout::Layout;

/// The arguments, with nothing left open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// As given.
    pub(crate) args: ServerArgs,
    /// The Node's name.
    pub(crate) node_name: String,
    /// The Node's main address.
    pub(crate) node_ip: IpAddr,
    /// Its address of the other family, if it has one.
    #[serde(default)]
    pub(crate) other_node_ip: Option<IpAddr>,
    /// The cluster that this Node has joined, if its control plane is elsewhere: a server's URL.
    #[serde(default)]
    pub(crate) joined: Option<String>,
    /// The network of the other Nodes on this host, of each family, if there are any.
    #[serde(default)]
    pub(crate) nodes_cidr: Option<Cidrs>,
}

/// Of what a Node is, when its settings are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The cluster that it is of.
    Cluster,
    /// Not yet: it may have addresses of either family.
    Nothing,
}

impl Settings {
    /// Fills in what was not given: from an earlier run of this cluster, or from the host.
    pub(crate) fn resolve(mut args: ServerArgs, layout: &Layout, known: Known) -> Result<Self> {
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
        let before = earlier.as_ref().map(Self::node_ips).unwrap_or_default();
        let has = if args.node_ip.is_empty() { host::addresses()? } else { Vec::new() };
        let families: Vec<Family> = args.cluster_cidr.iter().map(Cidr::family).collect();
        let families = Some(families).filter(|_| known == Known::Cluster);
        let node_ips = choose(families.as_deref(), &args.node_ip, &before, &has)?;
        for ip in &node_ips {
            if let Some(range) = args.servicelb_pool.iter().find(|range| range.contains(*ip)) {
                bail!("--servicelb-pool {range} must not contain the Node's address {ip}");
            }
        }
        let (node_ip, other_node_ip) = match *node_ips.as_slice() {
            [main, ref others @ ..] => (main, others.first().copied()),
            [] => bail!(
                "this host has no address besides its loopback one; add one to a link, or give it with --node-ip"
            ),
        };
        let before = earlier.and_then(|earlier| Some((earlier.args.nodes?, earlier.nodes_cidr)));
        let nodes_cidr = local_nodes::settle(&mut args, &node_ips, layout, before)?;
        Ok(Self { args, node_name, node_ip, other_node_ip, joined: None, nodes_cidr })
    }

    /// The Node's addresses, the main one first.
    pub(crate) fn node_ips(&self) -> Vec<IpAddr> {
        std::iter::once(self.node_ip).chain(self.other_node_ip).collect()
    }

    /// Who issues ServiceAccount tokens, and whom they are for unless they say otherwise.
    pub(crate) fn issuer(&self) -> String {
        let said = self.args.api_server.service_accounts.service_account_issuer.first();
        said.cloned()
            .unwrap_or_else(|| format!("https://kubernetes.default.svc.{}", self.args.cluster_domain))
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

/// A Node's addresses: those that are given; or for each family of the cluster the one of an earlier run, or else the first
/// that the host has; of a cluster that is not known yet, of the families that there are. Pure.
fn choose(
    families: Option<&[Family]>,
    given: &[IpAddr],
    earlier: &[IpAddr],
    has: &[IpAddr],
) -> Result<Vec<IpAddr>> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    let of = |family: Family| earlier.iter().chain(has).copied().find(|ip| Family::of(*ip) == family);
    let Some(families) = families else {
        // As it was, as far as it was something.
        let main = earlier.first().map_or(Family::V4, |ip| Family::of(*ip));
        return Ok([main, main.other()].into_iter().filter_map(of).collect());
    };
    families.iter().map(|family| of(*family).map_or_else(|| host::first_of(has, *family), Ok)).collect()
}

impl Settings {
    /// The Nodes beside the first, in order.
    ///
    /// # Errors
    /// Never: a folder's path can be made absolute.
    pub(crate) fn local_nodes(&self, cluster: &Layout) -> Result<Vec<LocalNode>> {
        let count = if self.nodes_cidr.is_some() { self.args.nodes.unwrap_or(FIRST) } else { FIRST };
        (FIRST + 1..=count).map(|number| LocalNode::of(cluster, number)).collect()
    }

    /// A Node's own settings: those of the cluster, as if it had joined it.
    ///
    /// # Errors
    /// There is no address for it.
    pub(super) fn of_local_node(&self, node: &LocalNode) -> Result<Self> {
        let ips = self.nodes_cidr.iter().flat_map(|cidrs| cidrs.iter());
        let mut ips = ips.filter_map(|cidr| cidr.nth(node.number.into()));
        let mut own = self.clone();
        own.node_name = format!("{}-{}", self.node_name, node.number);
        own.node_ip = ips.next().with_context(|| format!("find an address for Node {}", node.number))?;
        own.other_node_ip = ips.next();
        own.args.data_dir = node.layout.root().to_owned();
        (own.args.nodes, own.nodes_cidr) = (None, None);
        own.joined = Some(self.url_for_nodes());
        Ok(own)
    }

    /// Where Nodes elsewhere reach the API server.
    pub(super) fn url_for_nodes(&self) -> String {
        let bound = self.args.bind_address;
        let ip = if bound.is_unspecified() { self.node_ip } else { bound };
        format!("https://{}", std::net::SocketAddr::new(ip, self.args.https_listen_port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_the_first_address_of_each_family_of_its_cluster() {
        const V4: Family = Family::V4;
        const V6: Family = Family::V6;
        type Row<'r> = (&'r str, Option<&'r [Family]>, &'r str, &'r str, &'r str, &'r str);
        let host = "192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2";
        let rows: [Row<'_>; 12] = [
            ("IPv4", Some(&[V4]), "", "", host, "192.0.2.1"),
            ("IPv6", Some(&[V6]), "", "", host, "2001:db8::1"),
            ("both", Some(&[V4, V6]), "", "", host, "192.0.2.1 2001:db8::1"),
            ("both, IPv6 first", Some(&[V6, V4]), "", "", host, "2001:db8::1 192.0.2.1"),
            ("given", Some(&[V4]), "192.0.2.9", "192.0.2.2", host, "192.0.2.9"),
            ("as before", Some(&[V4]), "", "192.0.2.2", host, "192.0.2.2"),
            ("it was of one family", Some(&[V4, V6]), "", "192.0.2.2", host, "192.0.2.2 2001:db8::1"),
            ("it was of both", Some(&[V4]), "", "192.0.2.2 2001:db8::2", host, "192.0.2.2"),
            ("not known yet", None, "", "", host, "192.0.2.1 2001:db8::1"),
            ("known from before", None, "", "2001:db8::2", host, "2001:db8::2 192.0.2.1"),
            ("not known yet, and one family", None, "", "", "2001:db8::1", "2001:db8::1"),
            ("nothing is there", None, "", "", "", ""),
        ];
        let parse =
            |text: &str| -> Vec<IpAddr> { text.split_whitespace().map(|ip| ip.parse().unwrap()).collect() };
        for (case, families, given, earlier, has, expect) in rows {
            let found = choose(families, &parse(given), &parse(earlier), &parse(has)).unwrap();
            assert_eq!(found, parse(expect), "{case}");
        }
        let missing =
            |families: &[Family], has| choose(Some(families), &[], &[], &parse(has)).unwrap_err().to_string();
        let fix = "add one to a link, or give it with --node-ip";
        assert_eq!(
            missing(&[V4, V6], "192.0.2.1"),
            format!("this host has no IPv6 address besides its loopback one; {fix}")
        );
        assert_eq!(missing(&[V4], ""), format!("this host has no address besides its loopback one; {fix}"));
    }
}
