//! Commands and flags. Names are k3s' and upstream's where they have one.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

pub use crate::backup::{BackupArgs, RestoreArgs};
use crate::duration::duration;

/// A whole Kubernetes in one binary.
#[derive(Debug, Parser)]
#[command(name = "knarr", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What is logged.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What is logged, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct LogArgs {
    /// How log lines look
    #[arg(long, global = true, env = "KNARR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// More log lines: -v for debug, -vv for trace
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl LogArgs {
    /// The flags that say the same: for the processes that this one starts.
    pub fn flags(&self) -> Vec<OsString> {
        let format = match self.log_format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        let verbose = (0..self.verbose).map(|_| "--verbose".into());
        ["--log-format".into(), format.into()].into_iter().chain(verbose).collect()
    }
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
    /// Run this host as a Node of a cluster whose servers are elsewhere
    Agent(AgentArgs),
    /// Make, list and remove the tokens that hosts join the cluster with
    Token(TokenArgs),
    /// What is running
    Status(StatusArgs),
    /// The chain of events of an object, with latencies
    Trace(TraceArgs),
    /// Why something is not running
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
    /// Run the scheduler alone, against any Kubernetes
    Scheduler(SchedulerArgs),
    /// Run the kubelet alone, against any Kubernetes
    Kubelet(KubeletArgs),
    /// Run the host-path storage driver alone: gRPC on a socket, for any kubelet
    CsiHostpath(CsiHostpathArgs),
    /// Run the Service proxy alone, against any Kubernetes
    Proxy(ProxyArgs),
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
    /// A file with these flags' names and values, in YAML, and beside it a folder NAME.d with more of them;
    /// /etc/knarr/config.yaml if that is there. The command line wins, then the environment, then the file
    #[arg(long, env = "KNARR_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
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
    /// Leave out parts of the cluster, because something else does their work: repeated, or with commas
    #[arg(long, env = "KNARR_DISABLE", value_enum, value_delimiter = ',', value_name = "PART")]
    #[serde(default)]
    pub disable: Vec<Part>,
    /// Run the control plane without a Node: the same as --disable agent
    #[arg(long, env = "KNARR_DISABLE_AGENT")]
    pub disable_agent: bool,
    /// What runs containers.
    #[command(flatten)]
    #[serde(flatten)]
    pub container_runtime: RuntimeArgs,
    /// A flag of the kubelet, such as max-pods=20; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    #[serde(default)]
    pub kubelet_arg: Vec<String>,
    /// What several servers on one --datastore-endpoint share their keys under; the first one's is in the file `token`
    /// of its folder. Better given in the environment, where other users do not see it
    #[arg(long, env = "KNARR_TOKEN", hide_env_values = true)]
    #[serde(skip)]
    pub token: Option<Secret>,
    /// Where the state is.
    #[command(flatten)]
    #[serde(flatten)]
    pub datastore: DatastoreArgs,
    /// How the API server judges requests.
    #[command(flatten)]
    #[serde(flatten)]
    pub api_server: crate::api_server::ApiServerArgs,
}

/// Flags of `agent`.
#[derive(Clone, Debug, Args)]
pub struct AgentArgs {
    /// A file with these flags' names and values, in YAML; /etc/knarr/config.yaml if that is there
    #[arg(long, env = "KNARR_CONFIG")]
    pub config: Option<PathBuf>,
    /// The Node's folder
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    pub data_dir: PathBuf,
    /// A server of the cluster, such as https://192.0.2.1:6443; the others are learnt from it
    #[arg(long, env = "KNARR_SERVER", value_name = "URL")]
    pub server: String,
    /// What `knarr token create` has printed on a server; needed to join, not to start again. Better given in the
    /// environment, where other users do not see it
    #[arg(long, env = "KNARR_TOKEN", hide_env_values = true)]
    pub token: Option<Secret>,
    /// What runs containers.
    #[command(flatten)]
    pub container_runtime: RuntimeArgs,
    /// This Node's name; the host name if not given
    #[arg(long, env = "KNARR_NODE_NAME")]
    pub node_name: Option<String>,
    /// This Node's address; the first that is not a loopback one if not given
    #[arg(long, env = "KNARR_NODE_IP")]
    pub node_ip: Option<IpAddr>,
    /// A flag of the kubelet, such as max-pods=20; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub kubelet_arg: Vec<String>,
}

/// What runs a Node's containers.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct RuntimeArgs {
    /// The socket of another container runtime, such as unix:///run/containerd/containerd.sock, whose network is its
    /// own; the built-in runtime if not given
    #[arg(long, env = "KNARR_CONTAINER_RUNTIME_ENDPOINT")]
    pub container_runtime_endpoint: Option<String>,
    /// An OCI runtime that RuntimeClasses may name as their handler, such as runsc=/usr/local/bin/runsc: repeated, or
    /// with commas. Installed ones named crun, runc and youki are there without being named
    #[arg(long, env = "KNARR_CONTAINER_RUNTIME_HANDLER", value_delimiter = ',', value_name = "NAME=PATH")]
    #[serde(default)]
    pub container_runtime_handler: Vec<String>,
    /// Mirrors, credentials and TLS of image registries, in the form of k3s' registries.yaml; read again when it changes
    #[arg(long, env = "KNARR_PRIVATE_REGISTRY", default_value = DEFAULT_PRIVATE_REGISTRY, value_name = "FILE")]
    #[serde(default = "default_private_registry")]
    pub private_registry: PathBuf,
}

impl RuntimeArgs {
    /// The handlers' names and binaries.
    ///
    /// # Errors
    /// One is not of the form `NAME=PATH`, or its path is not absolute.
    pub fn handlers(&self) -> Result<Vec<(String, PathBuf)>, crate::validate::UsageError> {
        let parse = |text: &String| {
            let (name, path) = text.split_once('=')?;
            (!name.is_empty() && path.starts_with('/')).then(|| (name.to_owned(), PathBuf::from(path)))
        };
        let invalid = |text: &String| {
            crate::validate::UsageError(format!(
                "--container-runtime-handler {text} must be a name and an absolute path, such as \
                 runc=/usr/sbin/runc"
            ))
        };
        self.container_runtime_handler.iter().map(|text| parse(text).ok_or_else(|| invalid(text))).collect()
    }
}

/// `knarr token`.
#[derive(Clone, Debug, Args)]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// What to do with tokens.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it
    Create {
        /// How long it is good for, such as 24h; 0s for ever
        #[arg(long, default_value = "24h", value_parser = duration, value_name = "DURATION")]
        ttl: Duration,
        /// What it is for
        #[arg(long)]
        description: Option<String>,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
    /// List the tokens, without their secrets
    List(DataDirArgs),
    /// Remove a token: nobody joins with it any more
    Delete {
        /// The token or its id
        token: String,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("...")
    }
}

impl std::str::FromStr for Secret {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(Self(text.to_owned())) }
    }
}

/// An etcd cluster to keep the state on.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
pub struct DatastoreArgs {
    /// Keep the state on this etcd cluster: URLs with commas between them; in the cluster's folder if not given
    #[arg(long, env = "KNARR_DATASTORE_ENDPOINT", value_name = "URLS")]
    pub datastore_endpoint: Option<String>,
    /// Who has signed the members' certificates
    #[arg(long, env = "KNARR_DATASTORE_CAFILE", requires = "datastore_endpoint", value_name = "FILE")]
    pub datastore_cafile: Option<PathBuf>,
    /// The certificate to show to the members
    #[arg(long, env = "KNARR_DATASTORE_CERTFILE", requires = "datastore_keyfile", value_name = "FILE")]
    pub datastore_certfile: Option<PathBuf>,
    /// That certificate's key
    #[arg(long, env = "KNARR_DATASTORE_KEYFILE", requires = "datastore_certfile", value_name = "FILE")]
    pub datastore_keyfile: Option<PathBuf>,
}

impl DatastoreArgs {
    /// The files and the flags that name them: authority, certificate, key.
    pub fn files(&self) -> [(&'static str, Option<&Path>); 3] {
        [
            ("--datastore-cafile", self.datastore_cafile.as_deref()),
            ("--datastore-certfile", self.datastore_certfile.as_deref()),
            ("--datastore-keyfile", self.datastore_keyfile.as_deref()),
        ]
    }
}

/// What `--disable` leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The controllers.
    #[value(alias = "kube-controller-manager")]
    ControllerManager,
    /// The scheduler.
    #[value(alias = "kube-scheduler")]
    Scheduler,
    /// The kubelet, with the container runtime and the Pod network.
    Kubelet,
    /// The Service proxy.
    #[value(alias = "kube-proxy")]
    Proxy,
    /// The cluster's DNS.
    #[value(alias = "coredns")]
    Dns,
    /// The default StorageClass and its driver.
    CsiHostpath,
    /// The whole Node: kubelet, proxy and DNS.
    Agent,
}

impl ServerArgs {
    /// The command line that says the same, for `server`.
    ///
    /// # Errors
    /// Never: all values are texts, numbers or lists of them.
    pub fn flags(&self) -> Result<Vec<String>, serde_json::Error> {
        let serde_json::Value::Object(fields) = serde_json::to_value(self)? else { return Ok(Vec::new()) };
        let known = ServerArgs::augment_args(clap::Command::new("server"));
        let takes_value = |name: &str| {
            let mut args = known.get_arguments();
            args.any(|arg| arg.get_id() == name && arg.get_action().takes_values())
        };
        let mut flags = Vec::new();
        for (name, value) in fields {
            let flag = format!("--{}", name.replace('_', "-"));
            match value {
                serde_json::Value::Bool(is_set) if takes_value(&name) => {
                    flags.push(format!("{flag}={is_set}"))
                }
                serde_json::Value::Null | serde_json::Value::Bool(false) => {}
                serde_json::Value::Bool(true) => flags.push(flag),
                serde_json::Value::Array(values) => {
                    flags.extend(
                        values.iter().filter_map(|value| Some(format!("{flag}={}", value.as_str()?))),
                    );
                }
                serde_json::Value::String(text) => flags.push(format!("{flag}={text}")),
                other => flags.push(format!("{flag}={other}")),
            }
        }
        Ok(flags)
    }

    /// Whether this part runs here.
    pub fn runs(&self, part: Part) -> bool {
        let of_node =
            matches!(part, Part::Kubelet | Part::Proxy | Part::Dns | Part::CsiHostpath | Part::Agent);
        let has_node = !self.disable_agent && !self.disable.contains(&Part::Agent);
        match part {
            Part::Agent => [Part::Kubelet, Part::Proxy, Part::Dns].into_iter().any(|part| self.runs(part)),
            Part::CsiHostpath if !self.runs(Part::Kubelet) => false,
            part => !self.disable.contains(&part) && (has_node || !of_node),
        }
    }
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
    /// Pull an image from its registry
    Pull(ImagePullArgs),
    /// Import a docker-archive, an OCI layout or a rootfs tar
    Import {
        /// The file; `-` is standard input
        file: String,
        /// The name for an image that does not bring one
        #[arg(long)]
        name: Option<String>,
        /// How the result looks
        #[arg(long, short = 'o', value_enum, default_value = "text")]
        output: Output,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
    /// List images
    #[command(alias = "ls")]
    List {
        /// How the result looks
        #[arg(long, short = 'o', value_enum, default_value = "text")]
        output: Output,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
    /// Remove images; what containers are made of stays until they go
    Rm {
        /// Their names or ids
        #[arg(required = true)]
        names: Vec<String>,
        /// Which cluster.
        #[command(flatten)]
        data: DataDirArgs,
    },
}

/// Flags of `image pull`.
#[derive(Clone, Debug, Args)]
pub struct ImagePullArgs {
    /// The image, such as docker.io/library/busybox:1.37
    pub name: String,
    /// USERNAME:PASSWORD for the registry; better given in the environment, where other users do not see it
    #[arg(long, env = "KNARR_CREDS", hide_env_values = true)]
    pub creds: Option<Secret>,
    /// How registries are reached; the cluster's if not given
    #[arg(long, env = "KNARR_PRIVATE_REGISTRY", value_name = "FILE")]
    pub private_registry: Option<PathBuf>,
    /// How the result looks
    #[arg(long, short = 'o', value_enum, default_value = "text")]
    pub output: Output,
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
}

/// Where registries' settings are if nobody says.
pub fn default_private_registry() -> PathBuf {
    DEFAULT_PRIVATE_REGISTRY.into()
}

const DEFAULT_PRIVATE_REGISTRY: &str = "/etc/knarr/registries.yaml";

/// `knarr secrets`.
#[derive(Clone, Debug, Args)]
pub struct SecretsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SecretsCommand,
}

/// What to do with stored Secrets.
#[derive(Clone, Debug, Subcommand)]
pub enum SecretsCommand {
    /// Store everything under the newest key that is not yet; when it is interrupted, call it again
    Reencrypt(ReencryptArgs),
}

/// Flags of `secrets reencrypt`.
#[derive(Clone, Debug, Args)]
pub struct ReencryptArgs {
    /// What to store again, such as secrets or deployments.apps: repeated, or with commas
    #[arg(long, value_delimiter = ',', default_value = "secrets")]
    pub resource: Vec<String>,
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// How to reach the API server, if it is not this host's
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

/// Flags of `status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flags of `why`.
#[derive(Clone, Debug, Args)]
pub struct WhyArgs {
    /// KIND/NAME, such as deployment/web or pod/web-7d4b9
    pub object: String,
    /// The object's namespace
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// Which cluster.
    #[command(flatten)]
    pub data: DataDirArgs,
    /// How to reach the API server, if it is not this host's
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Flags of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// The flags that the cluster would be started with.
    #[command(flatten)]
    pub server: ServerArgs,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
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

/// Flags of a part that runs alone.
#[derive(Clone, Debug, Args)]
pub struct PartArgs {
    /// How to reach the API server
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: PathBuf,
}

/// Flags about who does the work, of several processes that could. Names are upstream's.
#[derive(Clone, Debug, Args)]
pub struct LeaderElectionArgs {
    /// Work only while holding the Lease, so that several may run
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub leader_elect: bool,
    /// How long a Lease that is not renewed keeps others from taking it, such as 15s
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_lease_duration: Duration,
    /// A leader that could not renew for this long stops
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_renew_deadline: Duration,
    /// Between renewals, and between tries
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "DURATION")]
    pub leader_elect_retry_period: Duration,
}

/// Flags of `controller-manager`.
#[derive(Clone, Debug, Args)]
pub struct ControllerManagerArgs {
    /// How to reach the API server.
    #[command(flatten)]
    pub part: PartArgs,
    /// Who leads.
    #[command(flatten)]
    pub leader: LeaderElectionArgs,
    /// Give each controller the ServiceAccount that its role is bound to, instead of this process's own identity
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub use_service_account_credentials: bool,
    /// The certificate authority that Pods are given; the kubeconfig's if not given
    #[arg(long)]
    pub root_ca_file: Option<PathBuf>,
    /// The authority that signs certificate requests; without it none is signed
    #[arg(long, requires = "cluster_signing_key_file")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// That authority's key
    #[arg(long, requires = "cluster_signing_cert_file")]
    pub cluster_signing_key_file: Option<PathBuf>,
    /// The key that signs tokens in Secrets of ServiceAccounts; without it such Secrets stay empty
    #[arg(long)]
    pub service_account_private_key_file: Option<PathBuf>,
}

/// Flags of `scheduler`.
#[derive(Clone, Debug, Args)]
pub struct SchedulerArgs {
    /// How to reach the API server.
    #[command(flatten)]
    pub part: PartArgs,
    /// Who leads.
    #[command(flatten)]
    pub leader: LeaderElectionArgs,
}

/// Flags of `csi-hostpath`.
#[derive(Clone, Debug, Args)]
pub struct CsiHostpathArgs {
    /// Volumes are below
    #[arg(long, default_value = "/var/lib/knarr/csi-hostpath")]
    pub state_dir: PathBuf,
    /// The socket to listen on
    #[arg(long, default_value = "/var/lib/kubelet/plugins/hostpath.csi.knarr.io/csi.sock")]
    pub endpoint: PathBuf,
    /// The socket through which the kubelet learns of the driver, in its plugins_registry; none if not given
    #[arg(long)]
    pub registration_endpoint: Option<PathBuf>,
    /// The Node's name; the host name if not given
    #[arg(long)]
    pub node_name: Option<String>,
    /// Most volumes on the Node; any number if not given
    #[arg(long, default_value_t = 0)]
    pub max_volumes_per_node: i64,
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
    /// What runs containers.
    #[command(flatten)]
    pub container_runtime: RuntimeArgs,
    /// The addresses of Pods on this Node
    #[arg(long, default_value = "10.42.0.0/24")]
    pub pod_cidr: String,
    /// The address of the cluster's DNS
    #[arg(long, default_value = "10.43.0.10")]
    pub cluster_dns: IpAddr,
    /// The cluster's DNS domain
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// The certificate of the kubelet's own port; without it there is no `kubectl logs` or `exec`
    #[arg(long, requires_all = ["tls_private_key_file", "client_ca_file"])]
    pub tls_cert_file: Option<PathBuf>,
    /// That certificate's key
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Clients of the kubelet's port have a certificate of this authority
    #[arg(long, requires = "tls_cert_file")]
    pub client_ca_file: Option<PathBuf>,
    /// The kubelet's own port
    #[arg(long, default_value_t = 10_250)]
    pub port: u16,
    /// How long exec, attach and port-forward may be silent before they end
    #[arg(long, default_value = "4h0m0s", value_parser = duration, value_name = "DURATION")]
    pub streaming_connection_idle_timeout: Duration,
    /// Everything else, as KubeletConfiguration has it.
    #[command(flatten)]
    pub configuration: crate::kubelet::ConfigurationArgs,
}

/// Flags of `proxy`.
#[derive(Clone, Debug, Args)]
pub struct ProxyArgs {
    /// How to reach the API server.
    #[command(flatten)]
    pub part: PartArgs,
    /// The Node's folder: what is made on this host is named after it
    #[arg(long, default_value = "/var/lib/knarr")]
    pub data_dir: PathBuf,
    /// The Node's name; the host name if not given
    #[arg(long = "hostname-override")]
    pub node_name: Option<String>,
    /// The Node's address
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// The addresses of Pods
    #[arg(long, default_value = "10.42.0.0/16")]
    pub cluster_cidr: String,
    /// The addresses of Services
    #[arg(long, default_value = "10.43.0.0/16")]
    pub service_cidr: String,
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
            "--https-listen-port=7443",
            "--disable=dns,kube-proxy",
            "--write-kubeconfig=/x/y",
            "--disable-agent",
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
    }

    #[test]
    fn the_processes_that_are_started_log_alike() {
        let cli = Cli::try_parse_from(["knarr", "up", "-vv", "--log-format", "json"]).expect("valid");
        let again = Cli::try_parse_from(["knarr".into(), "up".into()].into_iter().chain(cli.log.flags()));
        assert_eq!(again.expect("valid").log, cli.log);
    }
}
