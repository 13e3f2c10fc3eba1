//! Flags of what runs a control plane: `up`, `server`, `doctor`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use machinery::address_range::AddressRange;
use machinery::net::Cidrs;
use serde::{Deserialize, Serialize};

use super::cloud::CloudArgs;
use super::inspect::Output;
use super::network::NetworkArgs;
use super::node::{IngressArgs, NodePortArgs, ProxyModeArgs, RuntimeArgs};
use super::node_name::node_name;
use super::registration::RegistrationArgs;
use super::secret::Secret;
use crate::cloud_provider::CloudProvider;

/// Tokens let hosts in, as kubeadm's do; it starts its controller manager with the same.
const CONTROLLERS: &str = "*,bootstrap-signer-controller,token-cleaner-controller";

/// The tenth address of Services is that of the DNS, as k3s and kubeadm have it.
const DNS_OFFSET: u64 = 10;

fn controllers() -> Vec<String> {
    CONTROLLERS.split(',').map(str::to_owned).collect()
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
    /// The address that the API server listens on; 0.0.0.0 and :: stand for all addresses of this host, of both families
    #[arg(long, env = "KNARR_BIND_ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The address where Pods and other Nodes reach the API server, of the first family of --service-cidr; that of
    /// --bind-address or this Node's if not given
    #[arg(long, env = "KNARR_ADVERTISE_ADDRESS", value_name = "IP")]
    #[serde(default)]
    pub advertise_address: Option<IpAddr>,
    /// The port that the API server listens on
    #[arg(long, env = "KNARR_HTTPS_LISTEN_PORT", default_value_t = 6443)]
    pub https_listen_port: u16,
    /// More names and addresses that the API server's certificate is good for: repeated, or with commas
    #[arg(long, env = "KNARR_TLS_SAN", value_delimiter = ',', value_name = "NAME_OR_IP")]
    #[serde(default)]
    pub tls_san: Vec<String>,
    /// What the Node is registered with.
    #[command(flatten)]
    #[serde(flatten)]
    pub registration: RegistrationArgs,
    /// This Node's name; the host name if not given
    #[arg(long, env = "KNARR_NODE_NAME", value_parser = node_name)]
    pub node_name: Option<String>,
    /// This Node's address, or one of each family, the main one first: repeated, or with commas; of each family of the
    /// cluster the first that other machines could reach if not given
    #[arg(long, env = "KNARR_NODE_IP", value_delimiter = ',', value_name = "IP")]
    #[serde(default, with = "super::node_ip")]
    pub node_ip: Vec<IpAddr>,
    /// How many Nodes the cluster has on this host: this one, and others in network namespaces of their own; as many as
    /// before if not given, in the first place one
    #[arg(long, env = "KNARR_NODES", value_name = "N")]
    #[serde(default)]
    pub nodes: Option<u16>,
    /// The addresses of those Nodes: a network of each family of the cluster, with a comma between them; such that nothing on
    /// this host uses if not given
    #[arg(long, env = "KNARR_NODES_CIDR", value_name = "CIDR")]
    #[serde(default)]
    pub nodes_cidr: Option<Cidrs>,
    /// The addresses of Pods: a network, or one of each family with a comma between them, such as
    /// 10.42.0.0/16,fd42::/56
    #[arg(long, env = "KNARR_CLUSTER_CIDR", default_value = "10.42.0.0/16")]
    pub cluster_cidr: Cidrs,
    /// The addresses of Services: a network, or one of each family, such as 10.43.0.0/16,fd43::/112; Services that do not
    /// ask for a family have the first
    #[arg(long, env = "KNARR_SERVICE_CIDR", default_value = "10.43.0.0/16")]
    pub service_cidr: Cidrs,
    /// The address of the cluster's DNS, or one of each family: repeated, or with commas; the tenth of each network of
    /// --service-cidr if not given
    #[arg(long, env = "KNARR_CLUSTER_DNS", value_delimiter = ',', value_name = "IP")]
    #[serde(default, with = "super::one_or_many")]
    pub cluster_dns: Vec<IpAddr>,
    /// The cluster's DNS domain
    #[arg(long, env = "KNARR_CLUSTER_DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,
    /// The network between Nodes.
    #[command(flatten)]
    #[serde(flatten)]
    pub network: NetworkArgs,
    /// Addresses for Services of type LoadBalancer, as networks or as FROM-TO: repeated, or with commas; the Nodes' own
    /// if not given
    #[arg(long, env = "KNARR_SERVICELB_POOL", value_delimiter = ',', value_name = "CIDR|FROM-TO")]
    #[serde(default)]
    pub servicelb_pool: Vec<AddressRange>,
    /// Where ports of Nodes are.
    #[command(flatten)]
    #[serde(flatten)]
    pub node_ports: NodePortArgs,
    /// How Services are led to endpoints.
    #[command(flatten)]
    #[serde(flatten)]
    pub proxy_mode: ProxyModeArgs,
    /// Leave out parts of the cluster, because something else does their work: repeated, or with commas
    #[arg(long, env = "KNARR_DISABLE", value_enum, value_delimiter = ',', value_name = "PART")]
    #[serde(default)]
    pub disable: Vec<Part>,
    /// Run the control plane without a Node: the same as --disable agent
    #[arg(long, env = "KNARR_DISABLE_AGENT")]
    pub disable_agent: bool,
    /// The controllers that run: * for all that kube-controller-manager runs by default, NAME, -NAME for one that does
    /// not run
    #[arg(long, env = "KNARR_CONTROLLERS", default_value = CONTROLLERS, value_delimiter = ',',
          allow_hyphen_values = true, value_name = "NAMES")]
    #[serde(default = "controllers")]
    pub controllers: Vec<String>,
    /// What runs containers.
    #[command(flatten)]
    #[serde(flatten)]
    pub container_runtime: RuntimeArgs,
    /// Where requests for Pods come in.
    #[command(flatten)]
    #[serde(flatten)]
    pub ingress: IngressArgs,
    /// Who runs the cloud's controllers.
    #[command(flatten)]
    #[serde(flatten)]
    pub cloud: CloudArgs,
    /// A flag of the kubelet, such as max-pods=20; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    #[serde(default)]
    pub kubelet_arg: Vec<String>,
    /// A flag of the controllers, such as node-monitor-grace-period=20s; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    #[serde(default)]
    pub kube_controller_manager_arg: Vec<String>,
    /// A flag of the scheduler: config=FILE, with a KubeSchedulerConfiguration
    #[arg(long, value_name = "NAME=VALUE")]
    #[serde(default)]
    pub kube_scheduler_arg: Vec<super::SchedulerArg>,
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

/// A part that `--disable` leaves out.
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
    /// The Ingress controller.
    Ingress,
    /// The load balancer of Services that name no other.
    Servicelb,
    /// The rules of NetworkPolicies.
    NetworkPolicy,
    /// The whole Node: kubelet, proxy and DNS.
    Agent,
}

impl ServerArgs {
    /// `true` if a cloud says of this cluster's Nodes what they are: a flag of its own, or one of the kubelet.
    pub fn has_cloud(&self) -> bool {
        let arguments = self.registration.kubelet_args(&self.kubelet_arg);
        let read = crate::kubelet::ConfigurationArgs::from_pairs(&arguments);
        read.is_ok_and(|read| read.cloud_provider == CloudProvider::External)
    }

    /// A Node that joins a cluster whose Nodes have a cloud has it, too.
    pub fn join_cloud(&mut self, cluster: CloudProvider) {
        if cluster != CloudProvider::None {
            self.registration.cloud_provider = cluster;
        }
    }

    /// The scheduler's configuration file, if there is one.
    pub fn scheduler_config(&self) -> Option<&Path> {
        let last = self.kube_scheduler_arg.last();
        last.map(|super::SchedulerArg::Config(path)| path.as_path())
    }

    /// The addresses at which the cluster's DNS answers, the main family's first.
    pub fn dns_addresses(&self) -> Vec<IpAddr> {
        if !self.cluster_dns.is_empty() {
            return self.cluster_dns.clone();
        }
        self.service_cidr.iter().filter_map(|cidr| cidr.nth(DNS_OFFSET)).collect()
    }

    /// Whatever names a file or folder for the scheduler.
    pub fn scheduler_files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.kube_scheduler_arg.iter_mut().map(|super::SchedulerArg::Config(path)| path)
    }

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

    /// `true` if this part runs here.
    pub fn runs(&self, part: Part) -> bool {
        let of_kubelet = matches!(part, Part::CsiHostpath | Part::NetworkPolicy);
        let of_node = of_kubelet
            || matches!(part, Part::Kubelet | Part::Proxy | Part::Dns | Part::Agent | Part::Ingress);
        let has_node = !self.disable_agent && !self.disable.contains(&Part::Agent);
        match part {
            Part::Agent => [Part::Kubelet, Part::Proxy, Part::Dns].into_iter().any(|part| self.runs(part)),
            _ if of_kubelet && !self.runs(Part::Kubelet) => false,
            Part::Ingress if !self.runs(Part::Agent) => false,
            // Load balancers are the cloud's.
            Part::Servicelb if !self.runs(Part::ControllerManager) || self.has_cloud() => false,
            part => !self.disable.contains(&part) && (has_node || !of_node),
        }
    }
}

/// Flags of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// The flags that the cluster would be started with.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Judge the cluster in --data-dir by the CIS Kubernetes benchmark instead
    #[arg(long)]
    pub cis: bool,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}
