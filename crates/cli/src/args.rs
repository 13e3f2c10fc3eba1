//! Commands and flags. Names are k3s' and upstream's where they have one.

mod backup;
mod cloud;
pub mod cni;
mod components;
mod images;
mod inspect;
mod keys;
mod network;
mod node;
mod node_ip;
mod node_name;
pub mod one_or_many;
mod proxy;
mod registration;
mod secret;
mod server;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use machinery::features::Gate;
use serde::{Deserialize, Serialize};

pub use backup::{BackupArgs, RestoreArgs};
pub use cloud::{CloudArgs, CloudControllerManagerArgs, CloudOptionArgs, ProviderEndpoint};
pub use components::{
    ControllerManagerArgs, LeaderElectionArgs, NodeIpamArgs, PartArgs, SchedulerArg, SchedulerArgs,
    ServingArgs, SigningArgs,
};
pub use images::{ImageArgs, ImageCommand, ImagePullArgs, default_private_registry};
pub use inspect::{ClusterArgs, Output, StatusArgs, TraceArgs, WhyArgs, object};
pub use keys::{ReencryptArgs, SecretsArgs, SecretsCommand, TokenArgs, TokenCommand};
pub use network::{NetworkArgs, NetworkBackend};
pub use node::{
    AgentArgs, CsiHostpathArgs, IngressArgs, KubeletArgs, NodePortArgs, ProxyArgs, ProxyMode, ProxyModeArgs,
    RuntimeArgs,
};
pub use registration::RegistrationArgs;
pub use secret::Secret;
pub use server::{DatastoreArgs, DoctorArgs, Part, ServerArgs};

/// A whole Kubernetes in one binary.
#[derive(Debug, Parser)]
#[command(name = "knarr", version, about, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What every process is told.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// What every process is told, and tells those that it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct CommonArgs {
    /// How log lines look
    #[arg(long, global = true, env = "KNARR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// More log lines: -v for debug, -vv for trace
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Features to turn on, as FEATURE=true, all of them off by default: ClusterTrustBundle,
    /// ClusterTrustBundleProjection, PodCertificateRequest, GenericWorkload, GangScheduling, HPAScaleToZero,
    /// MaxUnavailableStatefulSet, MutablePodResourcesForSuspendedJobs, MutableSchedulingDirectivesForSuspendedJobs,
    /// MutatingAdmissionPolicy, StorageCapacityScoring, StorageVersionAPI, StorageVersionMigrator, VolumeLimitScaling,
    /// DRADeviceTaints and DRADeviceTaintRules
    #[arg(
        long,
        global = true,
        env = "KNARR_FEATURE_GATES",
        value_delimiter = ',',
        value_name = "FEATURE=BOOL"
    )]
    pub feature_gates: Vec<Gate>,
}

impl CommonArgs {
    /// The flags that say the same: for the processes that this one starts.
    pub fn flags(&self) -> Vec<OsString> {
        let format = match self.log_format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        let verbose = (0..self.verbose).map(|_| "--verbose".into());
        let gates = self.feature_gates.iter().map(|gate| format!("--feature-gates={gate}").into());
        ["--log-format".into(), format.into()].into_iter().chain(verbose).chain(gates).collect()
    }
}

/// The form of log lines.
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
    /// Run this host as a Node of a cluster whose servers are elsewhere
    Agent(AgentArgs),
    /// Make, list and remove the tokens that hosts join the cluster with
    Token(TokenArgs),
    /// What is running
    Status(StatusArgs),
    /// The chain of events of an object, with latencies
    Trace(TraceArgs),
    /// Why something is not running; without an object, everything that is wrong
    Why(WhyArgs),
    /// What is wrong with this host, and what to do about it
    Doctor(DoctorArgs),
    /// Write all objects and keys of a cluster to a file, also while it runs
    Backup(BackupArgs),
    /// Make a cluster of a backup
    Restore(RestoreArgs),
    /// Pull, import, list and remove images
    Image(ImageArgs),
    /// How Secrets lie in the store
    Secrets(SecretsArgs),
    /// Run the controllers alone, against any Kubernetes
    ControllerManager(ControllerManagerArgs),
    /// Run the controllers of a cloud with its provider, against any Kubernetes
    CloudControllerManager(CloudControllerManagerArgs),
    /// Run the scheduler alone, against any Kubernetes
    Scheduler(SchedulerArgs),
    /// Run the kubelet alone, against any Kubernetes
    Kubelet(KubeletArgs),
    /// Run the host-path storage driver alone: gRPC on a socket, for any kubelet
    CsiHostpath(CsiHostpathArgs),
    /// Run the Service proxy alone, against any Kubernetes
    Proxy(ProxyArgs),
    /// Install the built-in network's plugins for another container runtime, and take them back
    Cni(cni::CniArgs),
    /// Print a completion script for a shell
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the version
    Version,
}

/// Flags of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Replicas of the Deployment
    #[arg(long, default_value_t = 3)]
    pub replicas: u32,
    /// Nodes of the cluster
    #[arg(long, default_value_t = 1)]
    pub nodes: u16,
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

/// The shells that `completion` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
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
        assert_eq!((args.https_listen_port, args.service_cidr.to_string()), (6443, "10.43.0.0/16".into()));
    }

    fn server(flags: &[&str]) -> ServerArgs {
        let cli = Cli::try_parse_from(["knarr", "server"].iter().chain(flags)).expect("valid");
        let Command::Server(args) = cli.command else { panic!("not server") };
        args
    }

    #[test]
    fn what_up_starts_is_told_all_that_up_was_told() {
        let given = [
            "--node-name=a b",
            "--node-ip=192.0.2.1",
            "--nodes=3",
            "--nodes-cidr=10.44.0.0/24",
            "--flannel-backend=vxlan",
            "--vxlan-vni=7",
            "--https-listen-port=7443",
            "--disable=dns,kube-proxy",
            "--tls-san=a.example.com,192.0.2.7",
            "--node-label=a=b,c=d",
            "--node-taint=a=b:NoSchedule",
            "--write-kubeconfig=/x/y",
            "--disable-agent",
            "--kube-controller-manager-arg=profiling=false",
            "--datastore-endpoint=http://a:1,http://b:1",
            "--datastore-cafile=/ca",
            "--enable-admission-plugins=A,B",
            "--oidc-username-prefix=-",
            "--request-timeout=1m30s",
            "--shutdown-delay-duration=3s",
            "--enable-priority-and-fairness=false",
            "--anonymous-auth=false",
        ];
        for given in [&given[..], &[]] {
            let args = server(given);
            let flags = args.flags().expect("flags");
            let again = server(&flags.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(format!("{again:?}"), format!("{args:?}"));
        }
    }

    #[test]
    fn disabled_parts_do_not_run() {
        let parts = [Part::ControllerManager, Part::Scheduler, Part::Kubelet, Part::Proxy, Part::Dns];
        let check = |flags: &[&str], expected: &[Part]| {
            let args = server(flags);
            let running: Vec<Part> = parts.into_iter().filter(|part| args.runs(*part)).collect();
            assert_eq!(running, expected, "{flags:?}");
            assert_eq!(
                args.runs(Part::Agent),
                expected.iter().any(|part| *part > Part::Scheduler),
                "{flags:?}"
            );
        };
        check(&[], &parts);
        check(&["--disable-agent"], &parts[..2]);
        check(&["--disable", "agent"], &parts[..2]);
        check(&["--disable", "kubelet,coredns", "--disable", "kube-proxy"], &parts[..2]);
        check(&["--disable", "controller-manager,scheduler,kubelet"], &parts[3..]);
        for (flags, runs) in
            [("", true), ("network-policy", false), ("kubelet", false), ("proxy,dns", true), ("agent", false)]
        {
            let args = if flags.is_empty() { server(&[]) } else { server(&["--disable", flags]) };
            assert_eq!(args.runs(Part::NetworkPolicy), runs, "{flags}");
        }
    }

    #[test]
    fn the_processes_that_are_started_are_told_the_same() {
        let gates = "--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=t";
        let cli = Cli::try_parse_from(["knarr", "up", "-vv", "--log-format", "json", gates]).expect("valid");
        assert_eq!(cli.common.feature_gates.len(), 2);
        let again = Cli::try_parse_from(["knarr".into(), "up".into()].into_iter().chain(cli.common.flags()));
        assert_eq!(again.expect("valid").common, cli.common);
    }
}
