//! `knarr cni`: the built-in network's plugins for other container runtimes.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use machinery::net::Cidrs;

use super::DataDirArgs;

/// `knarr cni`.
#[derive(Clone, Debug, Args)]
pub struct CniArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CniCommand,
}

/// What to do with the plugins.
#[derive(Clone, Debug, Subcommand)]
pub enum CniCommand {
    /// Link the plugins where a container runtime looks for them, and write a configuration that uses them
    Install(CniInstallArgs),
    /// Remove links, configuration, bridge, rules and leases; the network's Pods must be gone
    Uninstall(CniFolderArgs),
}

/// Where a container runtime looks. The defaults are containerd's and CRI-O's.
#[derive(Clone, Debug, Args)]
pub struct CniFolderArgs {
    /// The folder of plugins
    #[arg(long, default_value = "/opt/cni/bin", value_name = "DIR")]
    pub bin_dir: PathBuf,
    /// The folder of configurations
    #[arg(long, default_value = "/etc/cni/net.d", value_name = "DIR")]
    pub conf_dir: PathBuf,
}

/// Flags of `cni install`.
#[derive(Clone, Debug, Args)]
pub struct CniInstallArgs {
    /// Where to.
    #[command(flatten)]
    pub folders: CniFolderArgs,
    /// The addresses of this Node's Pods: a network, or one of each family with a comma between them; those of the Node in
    /// the data directory, or the first of the cluster's, if not given
    #[arg(long, value_name = "CIDR")]
    pub pod_cidr: Option<Cidrs>,
    /// The addresses of all Pods, of the same families: what goes elsewhere leaves with the Node's address
    #[arg(long, default_value = "10.42.0.0/16", value_name = "CIDR")]
    pub cluster_cidr: Cidrs,
    /// The bridge that Pods are attached to
    #[arg(long, default_value = "knarr0")]
    pub bridge: String,
    /// Where leases and rules are kept; in /var/lib/cni/networks and /run/knarr-cni if not given
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Largest packet in bytes; the kernel's default if not given
    #[arg(long)]
    pub mtu: Option<u32>,
    /// The Node whose addresses are used.
    #[command(flatten)]
    pub data: DataDirArgs,
}
