//! Flags of what runs a Node or a part of one: `agent`, `kubelet`, `proxy`, `csi-hostpath`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use machinery::net::{Cidr, Cidrs};
use serde::{Deserialize, Serialize};

use super::components::PartArgs;
use super::images::{DEFAULT_PRIVATE_REGISTRY, default_private_registry};
use super::node_name::node_name;
use super::registration::RegistrationArgs;
use super::secret::Secret;
use crate::duration::duration;
use crate::usage_error::UsageError;
use crate::value_error::ValueError;

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
    #[arg(long, env = "KNARR_NODE_NAME", value_parser = node_name)]
    pub node_name: Option<String>,
    /// This Node's address, or one of each family, the main one first: repeated, or with commas; of each family of the
    /// cluster the first that other machines could reach if not given
    #[arg(long, env = "KNARR_NODE_IP", value_delimiter = ',', value_name = "IP")]
    pub node_ip: Vec<IpAddr>,
    /// What the Node is registered with.
    #[command(flatten)]
    pub registration: RegistrationArgs,
    /// Where requests for Pods come in.
    #[command(flatten)]
    pub ingress: IngressArgs,
    /// A flag of the kubelet, such as max-pods=20; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub kubelet_arg: Vec<String>,
    /// Where ports of Nodes are.
    #[command(flatten)]
    pub node_ports: NodePortArgs,
    /// How Services are led to endpoints.
    #[command(flatten)]
    pub proxy_mode: ProxyModeArgs,
}

/// How the kernel is had to lead packets to Services.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct ProxyModeArgs {
    /// What leads packets to Services on this Node: an nftables table of the cluster's own, the host's iptables, or IPVS
    /// with the host's iptables
    #[arg(long, env = "KNARR_PROXY_MODE", value_enum, default_value_t, value_name = "MODE")]
    #[serde(default)]
    pub proxy_mode: ProxyMode,
    /// What IPVS chooses an endpoint by
    #[arg(long, env = "KNARR_IPVS_SCHEDULER", default_value = DEFAULT_SCHEDULER, value_parser = SCHEDULERS, value_name = "NAME")]
    #[serde(default = "default_scheduler")]
    pub ipvs_scheduler: String,
    /// Virtual servers of IPVS with addresses in these networks are somebody else's, and stay: repeated, or with commas
    #[arg(long, env = "KNARR_IPVS_EXCLUDE_CIDRS", value_delimiter = ',', value_name = "CIDR")]
    #[serde(default)]
    pub ipvs_exclude_cidrs: Vec<Cidr>,
    /// With IPVS, tell neighbours of no addresses but those of the link that they ask on
    #[arg(long, env = "KNARR_IPVS_STRICT_ARP")]
    #[serde(default)]
    pub ipvs_strict_arp: bool,
}

const DEFAULT_SCHEDULER: &str = "rr";
/// Those of the kernel. Source: `net/netfilter/ipvs`.
const SCHEDULERS: [&str; 13] =
    ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "fo", "ovf", "mh"];

fn default_scheduler() -> String {
    DEFAULT_SCHEDULER.to_owned()
}

impl Default for ProxyModeArgs {
    fn default() -> Self {
        Self {
            proxy_mode: ProxyMode::default(),
            ipvs_scheduler: default_scheduler(),
            ipvs_exclude_cidrs: Vec::new(),
            ipvs_strict_arp: false,
        }
    }
}

/// One of kube-proxy's modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyMode {
    /// A table of the cluster's own
    #[default]
    Nftables,
    /// The host's iptables
    Iptables,
    /// The kernel's balancer, and the host's iptables
    Ipvs,
}

/// Where the ports of Nodes are that lead to Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct NodePortArgs {
    /// The addresses of this host that have node ports: networks, repeated or with commas; or primary, which is the
    /// Node's address
    #[arg(long, env = "KNARR_NODEPORT_ADDRESSES", value_delimiter = ',', default_value = PRIMARY, value_name = "CIDR|primary")]
    #[serde(default)]
    pub nodeport_addresses: Vec<NodePortAddress>,
}

const PRIMARY: &str = "primary";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum NodePortAddress {
    /// The Node's own.
    Primary,
    /// All of the host's in a network.
    In(Cidr),
}

impl std::str::FromStr for NodePortAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == PRIMARY {
            return Ok(Self::Primary);
        }
        let wanted = || format!("a network, such as 192.0.2.0/24, or {PRIMARY}");
        text.parse().map(Self::In).map_err(|_| ValueError::must(text, wanted()))
    }
}

impl TryFrom<String> for NodePortAddress {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<NodePortAddress> for String {
    fn from(address: NodePortAddress) -> Self {
        match address {
            NodePortAddress::Primary => PRIMARY.to_owned(),
            NodePortAddress::In(network) => network.to_string(),
        }
    }
}

impl NodePortArgs {
    /// The networks, none for the Node's own address.
    ///
    /// # Errors
    /// Both are said, or neither can be.
    pub fn networks(&self) -> Result<Vec<Cidr>, UsageError> {
        let all = &self.nodeport_addresses;
        let networks =
            all.iter().filter_map(|one| if let NodePortAddress::In(cidr) = one { Some(*cidr) } else { None });
        let networks: Vec<Cidr> = networks.collect();
        if all.contains(&NodePortAddress::Primary) && !networks.is_empty() {
            return Err(UsageError(format!("--nodeport-addresses must be networks or {PRIMARY}, not both")));
        }
        Ok(networks)
    }
}

/// Flags of the Ingress controller's ports.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct IngressArgs {
    /// The port of this Node on which Ingresses are served without TLS; 0 for none
    #[arg(long, env = "KNARR_INGRESS_HTTP_PORT", default_value_t = INGRESS_HTTP_PORT, value_name = "PORT")]
    #[serde(default = "ingress_http_port")]
    pub ingress_http_port: u16,
    /// The port of this Node on which Ingresses are served with TLS; 0 for none
    #[arg(long, env = "KNARR_INGRESS_HTTPS_PORT", default_value_t = INGRESS_HTTPS_PORT, value_name = "PORT")]
    #[serde(default = "ingress_https_port")]
    pub ingress_https_port: u16,
    /// The loopback port on which the Ingress controller tells its health and metrics; 0 for none
    #[arg(long, env = "KNARR_INGRESS_METRICS_PORT", default_value_t = INGRESS_METRICS_PORT, value_name = "PORT")]
    #[serde(default = "ingress_metrics_port")]
    pub ingress_metrics_port: u16,
    /// Log every request to an Ingress
    #[arg(long, env = "KNARR_INGRESS_ACCESS_LOG")]
    #[serde(default)]
    pub ingress_access_log: bool,
}

const INGRESS_HTTP_PORT: u16 = 80;
const INGRESS_HTTPS_PORT: u16 = 443;
/// As ingress-nginx has it.
const INGRESS_METRICS_PORT: u16 = 10_254;

fn ingress_http_port() -> u16 {
    INGRESS_HTTP_PORT
}

fn ingress_https_port() -> u16 {
    INGRESS_HTTPS_PORT
}

fn ingress_metrics_port() -> u16 {
    INGRESS_METRICS_PORT
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
    /// Attach Pods by the network whose configuration is in this folder, such as /etc/cni/net.d, and by none until one is
    /// there; the built-in network, or what is in the folder cni/net.d of the data directory, if not given
    #[arg(long, env = "KNARR_CNI_CONF_DIR", value_name = "DIR")]
    #[serde(default)]
    pub cni_conf_dir: Option<PathBuf>,
    /// Where that network's plugins are: repeated, or with commas; the folder cni/bin of the data directory,
    /// /opt/cni/bin and /usr/lib/cni if not given
    #[arg(long, env = "KNARR_CNI_BIN_DIR", value_delimiter = ',', value_name = "DIR")]
    #[serde(default)]
    pub cni_bin_dir: Vec<PathBuf>,
}

impl RuntimeArgs {
    /// `true` if Pods are attached by a network that somebody else installs.
    pub fn has_foreign_network(&self) -> bool {
        self.container_runtime_endpoint.is_some() || self.cni_conf_dir.is_some()
    }

    /// The handlers' names and binaries.
    ///
    /// # Errors
    /// One is not of the form `NAME=PATH`, or its path is not absolute.
    pub fn handlers(&self) -> Result<Vec<(String, PathBuf)>, UsageError> {
        let parse = |text: &String| {
            let (name, path) = text.split_once('=')?;
            (!name.is_empty() && path.starts_with('/')).then(|| (name.to_owned(), PathBuf::from(path)))
        };
        let invalid = |text: &String| {
            UsageError(format!(
                "--container-runtime-handler {text} must be a name and an absolute path, such as \
                 runc=/usr/sbin/runc"
            ))
        };
        self.container_runtime_handler.iter().map(|text| parse(text).ok_or_else(|| invalid(text))).collect()
    }
}

/// Flags of `csi-hostpath`.
#[derive(Clone, Debug, Args)]
pub struct CsiHostpathArgs {
    /// What the driver is called: several on one Node need a name, a folder and sockets each
    #[arg(long, default_value = "hostpath.csi.knarr.io")]
    pub driver_name: String,
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
    #[arg(long, value_parser = node_name)]
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
    #[arg(long = "hostname-override", value_parser = node_name)]
    pub node_name: Option<String>,
    /// The Node's address, or one of each family, the main one first: repeated, or with commas
    #[arg(long, value_delimiter = ',', value_name = "IP")]
    pub node_ip: Vec<IpAddr>,
    /// What runs containers.
    #[command(flatten)]
    pub container_runtime: RuntimeArgs,
    /// The addresses of Pods on this Node: a network, or one of each family with a comma between them
    #[arg(long, default_value = "10.42.0.0/24")]
    pub pod_cidr: Cidrs,
    /// The address of the cluster's DNS, or one of each family: repeated, or with commas
    #[arg(long, default_value = "10.43.0.10", value_delimiter = ',', value_name = "IP")]
    pub cluster_dns: Vec<IpAddr>,
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
    #[arg(long = "hostname-override", value_parser = node_name)]
    pub node_name: Option<String>,
    /// The Node's address, or one of each family, the main one first: repeated, or with commas
    #[arg(long, value_delimiter = ',', value_name = "IP")]
    pub node_ip: Vec<IpAddr>,
    /// The Node's main address, unless it stands for all; its family is that of the addresses below where they are not given.
    /// As kube-proxy's: nothing listens there
    #[arg(long, default_value = "0.0.0.0", value_name = "IP")]
    pub bind_address: IpAddr,
    /// The addresses of Pods
    #[arg(long, default_value = "10.42.0.0/16")]
    pub cluster_cidr: Cidrs,
    /// The addresses of Services
    #[arg(long, default_value = "10.43.0.0/16")]
    pub service_cidr: Cidrs,
    /// Where ports of Nodes are.
    #[command(flatten)]
    pub node_ports: NodePortArgs,
    /// How Services are led to endpoints.
    #[command(flatten)]
    pub proxy_mode: ProxyModeArgs,
    /// Where it says over HTTP whether it is well: 0.0.0.0:10256 or [::]:10256 if not given, at which it answers in all
    /// families of the cluster; nowhere, if the port is 0
    #[arg(long, value_name = "IP:PORT")]
    pub healthz_bind_address: Option<SocketAddr>,
    /// Where it says over HTTP what it counts: 127.0.0.1:10249 or [::1]:10249 if not given; nowhere, if the port is 0
    #[arg(long, value_name = "IP:PORT")]
    pub metrics_bind_address: Option<SocketAddr>,
}
