//! More Nodes on this host, each in a network namespace of its own: `--nodes N`.
//!
//! The first Node is the host's. Node NUMBER is an ordinary agent's part with a folder, a name, an address, a range for
//! Pods, a cgroup and sockets of its own, and a child of the same supervisor; its certificates are made here rather than
//! asked for with a token. Its namespace is kept in the cluster's folder, so that Pods outlive all processes of the
//! cluster, and shown as `/run/netns/knarr-CLUSTER-NUMBER`. What all Nodes share with the host is its kernel: each tells
//! the whole machine's CPU and memory.

mod range;

use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cli::args::ServerArgs;
use machinery::net::{Cidr, Cidrs, Family};
use sys::netns::NetNs;

use crate::host::{self, data_dir};
use crate::layout::Layout;

/// The Node that is the host's own.
pub(super) const FIRST: u16 = 1;

/// A Node beside the first.
#[derive(Clone, Debug)]
pub(crate) struct LocalNode {
    /// From 2.
    pub(crate) number: u16,
    pub(crate) layout: Layout,
}

impl LocalNode {
    pub(super) fn of(cluster: &Layout, number: u16) -> Result<Self> {
        Ok(Self { number, layout: Layout::new(&cluster.nodes().join(number.to_string()))? })
    }

    /// Where its namespace is kept: beside its folder.
    pub(super) fn kept(&self) -> std::path::PathBuf {
        self.layout.root().with_extension("netns")
    }

    /// Its namespace, if it is there: not since the machine was started last.
    pub(crate) fn network(&self) -> Result<Option<NetNs>> {
        let kept = self.kept();
        Ok(if sys::mount::is_mounted(&kept)? { Some(NetNs::open(&kept)?) } else { None })
    }
}

/// Runs `work` in a Node's namespace; not at all without one, for then nothing is left in it.
///
/// # Errors
/// Those of `work`.
pub(crate) fn in_network(node: &LocalNode, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    match node.network()? {
        Some(network) => network.run(|| Ok(work()))?,
        None => Ok(()),
    }
}

/// The other Nodes that have a folder in a cluster's.
///
/// # Errors
/// It cannot be read.
pub(crate) fn of_folder(cluster: &Layout) -> Result<Vec<LocalNode>> {
    let folder = cluster.nodes();
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("read {}", folder.display()))?,
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    // A folder and its namespace have the same number.
    let numbers = names.filter_map(|name| Path::new(&name).file_stem()?.to_str()?.parse().ok());
    let mut numbers: Vec<u16> = numbers.filter(|number| *number > FIRST).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|number| LocalNode::of(cluster, number)).collect()
}

/// The cluster that the Node in this folder belongs to, if it is one of these.
pub(crate) fn owner(layout: &Layout) -> Option<(Layout, LocalNode)> {
    let number: u16 = layout.root().file_name()?.to_str()?.parse().ok()?;
    let cluster = Layout::new(layout.root().parent()?.parent()?).ok()?;
    let node = LocalNode::of(&cluster, number).ok()?;
    (node.layout.root() == layout.root() && cluster.version().exists()).then_some((cluster, node))
}

/// # Errors
/// The folder is that of a Node of these, which goes up and down with its cluster.
pub(crate) fn not_of_another(layout: &Layout) -> Result<()> {
    let Some((cluster, node)) = owner(layout) else { return Ok(()) };
    bail!(
        "{} is Node {} of the cluster in {}, which starts it; choose another folder with --data-dir",
        layout.root().display(),
        node.number,
        cluster.root().display()
    );
}

/// Fills in how many Nodes there are, and returns their network if there is more than one. `before` is what the earlier
/// run had.
///
/// # Errors
/// A Node would be left out that has run, or the network is not free.
pub(super) fn settle(
    args: &mut ServerArgs,
    node_ips: &[IpAddr],
    cluster: &Layout,
    before: Option<(u16, Option<Cidrs>)>,
) -> Result<Option<Cidrs>> {
    let (count_before, cidr_before) = before.unwrap_or((FIRST, None));
    let count = args.nodes.unwrap_or(count_before);
    if let Some(node) = of_folder(cluster)?.into_iter().find(|node| node.number > count) {
        let folder = node.layout.root().display();
        bail!(
            "--nodes {count} leaves out Node {}, which has run; `knarr reset --data-dir {folder}` removes it and all that \
             its Pods keep there, and `kubectl delete node` tells the cluster so",
            node.number
        );
    }
    args.nodes = Some(count);
    if count <= FIRST {
        return Ok(None);
    }
    let mut taken = host::networks(&bridge_name(cluster))?;
    taken.extend(args.cluster_cidr.iter().chain(args.service_cidr.iter()));
    taken.extend(node_ips.iter().filter_map(|ip| Cidr::new(*ip, if ip.is_ipv4() { 32 } else { 128 })));
    let given =
        |family: Family| [args.nodes_cidr, cidr_before].into_iter().flatten().find_map(|it| it.of(family));
    let of = |family: Family| {
        let cidr = given(family).or_else(|| range::choose(family, &taken));
        cidr.context("no network is free for --nodes; give one with --nodes-cidr")
    };
    let cidrs = args.cluster_cidr.iter().map(|cidr| of(cidr.family())).collect::<Result<Vec<_>>>()?;
    for cidr in args.nodes_cidr.iter().flat_map(|cidrs| cidrs.iter()) {
        if let Some(other) = taken.iter().find(|other| cidr.overlaps(**other)) {
            bail!("--nodes-cidr {cidr} is not free: this host uses {other}");
        }
    }
    if let Some(small) = cidrs.iter().find(|cidr| cidr.size() < u64::from(count) + 2) {
        bail!("--nodes {count} does not fit into {small}; give a larger network with --nodes-cidr");
    }
    Ok(Cidrs::of_list(&cidrs))
}

/// Makes a Node's folder; images that are put into the cluster's are for all.
pub(super) fn prepare_folder(cluster: &Layout, node: &LocalNode) -> Result<()> {
    data_dir::claim(&node.layout)?;
    let images = node.layout.images_folder();
    if images.symlink_metadata().is_err() {
        std::fs::create_dir_all(cluster.images_folder()).context("make the folder of images")?;
        symlink(cluster.images_folder(), &images).with_context(|| format!("make {}", images.display()))?;
    }
    Ok(())
}

/// The bridge of a cluster's Nodes.
pub(super) fn bridge_name(cluster: &Layout) -> String {
    format!("kb-{}", cluster.cluster_id())
}
