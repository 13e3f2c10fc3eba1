//! Commands and flags. Names are k3s' and upstream's where they have one.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

/// A whole Kubernetes in one binary.
#[derive(Debug, Parser)]
#[command(name = "knarr", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// More log lines: -v for debug, -vv for trace.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The tour: a throw-away cluster, a Deployment and its chain of events, then everything taken down
    Demo(DemoArgs),
    /// Start a cluster in the background; returns when a Pod can run and DNS answers
    Up(ServerArgs),
    /// Stop the cluster; its objects stay
    Down(DataDirArgs),
    /// Remove every trace of the cluster, listing what goes first
    Reset(ResetArgs),
    /// Run the cluster in the foreground: control plane and node
    Server(ServerArgs),
    /// What is running
    Status(DataDirArgs),
    /// The chain of events of an object, with latencies
    Trace(TraceArgs),
    /// Import, list and remove images
    Image(ImageArgs),
    /// Run the controllers alone, against any Kubernetes
    ControllerManager(PartArgs),
    /// Run the scheduler alone, against any Kubernetes
    Scheduler(PartArgs),
    /// Run the kubelet alone, against any Kubernetes
    Kubelet(KubeletArgs),
    /// Print the version
    Version,
}

/// Flags of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Replicas of the Deployment
    #[arg(long, default_value_t = 3)]
    pub replicas: u32,
}

/// Where a cluster lives.
#[derive(Clone, Debug, Args)]
pub struct DataDirArgs {
    /// The cluster's folder
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    pub data_dir: PathBuf,
}

/// Flags of `reset`.
#[derive(Clone, Debug, Args)]
pub struct ResetArgs {
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub yes: bool,
}

/// Flags of `server` and `up`.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct ServerArgs {
    /// The cluster's folder
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    pub data_dir: PathBuf,
    /// Where to write the administrator's kubeconfig, beside the one in the cluster's folder
    #[arg(long, env = "KNARR_WRITE_KUBECONFIG")]
    pub write_kubeconfig: Option<PathBuf>,
    /// That file's mode, in octal
    #[arg(long, env = "KNARR_WRITE_KUBECONFIG_MODE", default_value = "600")]
    pub write_kubeconfig_mode: String,
    /// The address that the API server listens on
    #[arg(long, env = "KNARR_BIND_ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The port that the API server listens on
    #[arg(long, env = "KNARR_HTTPS_LISTEN_PORT", default_value_t = 6443)]
    pub https_listen_port: u16,
    /// This Node's name; the host name if not given
    #[arg(long, env = "KNARR_NODE_NAME")]
    pub node_name: Option<String>,
    /// This Node's address; the first that is not a loopback one if not given
    #[arg(long, env = "KNARR_NODE_IP")]
    pub node_ip: Option<IpAddr>,
    /// The addresses of Pods
    #[arg(long, env = "KNARR_CLUSTER_CIDR", default_value = "10.42.0.0/16")]
    pub cluster_cidr: String,
    /// The addresses of Services
    #[arg(long, env = "KNARR_SERVICE_CIDR", default_value = "10.43.0.0/16")]
    pub service_cidr: String,
    /// The address of the cluster's DNS
    #[arg(long, env = "KNARR_CLUSTER_DNS", default_value = "10.43.0.10")]
    pub cluster_dns: IpAddr,
    /// The cluster's DNS domain
    #[arg(long, env = "KNARR_CLUSTER_DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,
    /// Run the control plane without a Node
    #[arg(long)]
    pub disable_agent: bool,
    /// How the API server judges requests.
    #[command(flatten)]
    #[serde(default)]
    pub api_server: crate::api_server::ApiServerArgs,
}

/// Flags of `trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// KIND/NAME, such as deployment/web
    pub object: String,
    /// The object's namespace
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// How results look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// `knarr image`.
#[derive(Clone, Debug, Args)]
pub struct ImageArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ImageCommand,
}

/// What to do with images.
#[derive(Clone, Debug, Subcommand)]
pub enum ImageCommand {
    /// Import a docker-archive, an OCI layout or a rootfs tar
    Import {
        /// The file; `-` is standard input
        file: String,
        /// The name for an image that does not bring one
        #[arg(long)]
        name: Option<String>,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
    /// List images
    List(DataDirArgs),
    /// Remove an image
    Rm {
        /// Its name
        name: String,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
}

/// Flags of a part that runs alone.
#[derive(Clone, Debug, Args)]
pub struct PartArgs {
    /// How to reach the API server
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: PathBuf,
}

/// Flags of `kubelet`.
#[derive(Clone, Debug, Args)]
pub struct KubeletArgs {
    /// How to reach the API server.
    #[command(flatten)]
    pub part: PartArgs,
    /// The Node's folder
    #[arg(long, default_value = "/var/lib/knarr")]
    pub data_dir: PathBuf,
    /// The Node's name; the host name if not given
    #[arg(long = "hostname-override")]
    pub node_name: Option<String>,
    /// The Node's address
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// The addresses of Pods on this Node
    #[arg(long, default_value = "10.42.0.0/24")]
    pub pod_cidr: String,
    /// The address of the cluster's DNS
    #[arg(long, default_value = "10.43.0.10")]
    pub cluster_dns: IpAddr,
    /// The cluster's DNS domain
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_those_of_the_contract() {
        let cli = Cli::try_parse_from(["knarr", "up"]).expect("valid");
        let Command::Up(args) = cli.command else { panic!("not up") };
        assert_eq!((args.https_listen_port, args.service_cidr.as_str()), (6443, "10.43.0.0/16"));
    }
}
