//! Flags of the parts that may run alone against any Kubernetes: `controller-manager`, `scheduler`; of clouds in `cloud.rs`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use machinery::leader_election::LeaderElection;
use machinery::net::Cidrs;
use serde::{Deserialize, Serialize};

use crate::duration::duration;
use crate::value_error::ValueError;

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
    /// Work only while holding the Lease, so that several may run [default: true]
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub leader_elect: Option<bool>,
    /// How long a Lease that is not renewed keeps others from taking it [default: 15s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub leader_elect_lease_duration: Option<Duration>,
    /// A leader that could not renew for this long stops [default: 10s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub leader_elect_renew_deadline: Option<Duration>,
    /// Between renewals, and between tries [default: 2s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub leader_elect_retry_period: Option<Duration>,
    /// What is held: a Lease, there is nothing else
    #[arg(long, value_parser = ["leases"], default_value = "leases", value_name = "KIND")]
    pub leader_elect_resource_lock: String,
    /// The Lease's name [default: upstream's for this part]
    #[arg(long, value_name = "NAME")]
    pub leader_elect_resource_name: Option<String>,
    /// The Lease's namespace [default: kube-system]
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_elect_resource_namespace: Option<String>,
}

impl LeaderElectionArgs {
    /// The settings that the flags give, and those of `other` where they say nothing.
    pub fn or(&self, other: LeaderElection) -> LeaderElection {
        LeaderElection {
            is_on: self.leader_elect.unwrap_or(other.is_on),
            lease_duration: self.leader_elect_lease_duration.unwrap_or(other.lease_duration),
            renew_deadline: self.leader_elect_renew_deadline.unwrap_or(other.renew_deadline),
            retry_period: self.leader_elect_retry_period.unwrap_or(other.retry_period),
            namespace: self.leader_elect_resource_namespace.clone().unwrap_or(other.namespace),
            name: self.leader_elect_resource_name.clone().unwrap_or(other.name),
        }
    }
}

/// Flags of a port that says how a part is. Names are upstream's.
#[derive(Clone, Debug, Args)]
pub struct ServingArgs {
    /// The port of /healthz, /livez, /readyz and /metrics, over TLS; 0 for none [default: upstream's for this part]
    #[arg(long)]
    pub secure_port: Option<u16>,
    /// The address that this port listens on
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// This port's certificate; one that is made at the start and signed by nobody if not given
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// That certificate's key
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Who signs the certificates of this port's clients; as the ConfigMap extension-apiserver-authentication says if not
    /// given
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// How to reach the API server that says whose a bearer token is; without it tokens are nobody's
    #[arg(long)]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Do not read that ConfigMap
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub authentication_skip_lookup: bool,
    /// How long it is known whose a token is
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// How to reach the API server that says who may read what; without it everybody may read the paths that are always
    /// allowed, and nothing else
    #[arg(long)]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Paths that everybody may read: repeated, or with commas
    #[arg(long, value_delimiter = ',', default_value = "/healthz,/readyz,/livez", value_name = "PATHS")]
    pub authorization_always_allow_paths: Vec<String>,
    /// How long it is known that somebody may
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long it is known that somebody may not
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
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
    /// The controllers that run: * for all that are on by default, NAME, -NAME for one that does not run
    #[arg(
        long,
        default_value = "*",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_name = "NAMES"
    )]
    pub controllers: Vec<String>,
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
    /// Authorities of single signers.
    #[command(flatten)]
    pub signing: SigningArgs,
    /// The key that signs tokens in Secrets of ServiceAccounts; without it such Secrets stay empty
    #[arg(long)]
    pub service_account_private_key_file: Option<PathBuf>,
    /// Who is told how it is.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// Who gives Nodes their ranges.
    #[command(flatten)]
    pub node_ipam: NodeIpamArgs,
    /// Everything else.
    #[command(flatten)]
    pub options: crate::controller_manager::OptionArgs,
}

/// Flags about the ranges of Nodes.
#[derive(Clone, Debug, Args)]
pub struct NodeIpamArgs {
    /// Give each Node a range of the addresses of Pods
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub allocate_node_cidrs: bool,
    /// The addresses of Pods; counts with --allocate-node-cidrs
    #[arg(long)]
    pub cluster_cidr: Option<Cidrs>,
    /// The addresses of Services, of which no Node gets any
    #[arg(long)]
    pub service_cluster_ip_range: Option<Cidrs>,
    /// The prefix length of Nodes' ranges, where there is one family
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=128))]
    pub node_cidr_mask_size: Option<u8>,
}

/// Authorities of single signers, as upstream has them.
#[derive(Clone, Debug, Args)]
pub struct SigningArgs {
    /// The authority that signs for kubernetes.io/kube-apiserver-client, in place of --cluster-signing-cert-file
    #[arg(long, requires = "cluster_signing_kube_apiserver_client_key_file")]
    pub cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// That authority's key
    #[arg(long, requires = "cluster_signing_kube_apiserver_client_cert_file")]
    pub cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// The authority that signs for kubernetes.io/kube-apiserver-client-kubelet, in place of --cluster-signing-cert-file
    #[arg(long, requires = "cluster_signing_kubelet_client_key_file")]
    pub cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// That authority's key
    #[arg(long, requires = "cluster_signing_kubelet_client_cert_file")]
    pub cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// The authority that signs for kubernetes.io/kubelet-serving, in place of --cluster-signing-cert-file
    #[arg(long, requires = "cluster_signing_kubelet_serving_key_file")]
    pub cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// That authority's key
    #[arg(long, requires = "cluster_signing_kubelet_serving_cert_file")]
    pub cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// The authority that signs for kubernetes.io/legacy-unknown, in place of --cluster-signing-cert-file
    #[arg(long, requires = "cluster_signing_legacy_unknown_key_file")]
    pub cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// That authority's key
    #[arg(long, requires = "cluster_signing_legacy_unknown_cert_file")]
    pub cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

/// Flags of `scheduler`.
#[derive(Clone, Debug, Args)]
pub struct SchedulerArgs {
    /// A KubeSchedulerConfiguration. Of the flags those of leader election win over it
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// How to reach the API server, unless --config says so
    #[arg(long, env = "KUBECONFIG", required_unless_present = "config")]
    pub kubeconfig: Option<PathBuf>,
    /// Who leads.
    #[command(flatten)]
    pub leader: LeaderElectionArgs,
    /// Who is told how it is.
    #[command(flatten)]
    pub serving: ServingArgs,
}

/// A flag of the scheduler that a whole cluster is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SchedulerArg {
    /// `config`: a KubeSchedulerConfiguration.
    Config(PathBuf),
}

impl From<SchedulerArg> for String {
    fn from(SchedulerArg::Config(path): SchedulerArg) -> Self {
        format!("config={}", path.display())
    }
}

impl TryFrom<String> for SchedulerArg {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl FromStr for SchedulerArg {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bare = text.strip_prefix("--").unwrap_or(text);
        match bare.split_once('=') {
            Some(("config", "")) => Err(ValueError::NoFile),
            Some(("config", path)) => Ok(Self::Config(path.into())),
            _ => Err(ValueError::SchedulerFlag(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_what_was_said_elsewhere() {
        let seconds = |number| Some(Duration::from_secs(number));
        let args = LeaderElectionArgs {
            leader_elect: Some(false),
            leader_elect_lease_duration: seconds(30),
            leader_elect_renew_deadline: None,
            leader_elect_retry_period: None,
            leader_elect_resource_lock: "leases".to_owned(),
            leader_elect_resource_name: Some("own".to_owned()),
            leader_elect_resource_namespace: None,
        };
        let other = LeaderElection {
            retry_period: Duration::from_secs(7),
            namespace: "elsewhere".to_owned(),
            ..LeaderElection::of("kube-scheduler")
        };
        let expect = LeaderElection {
            is_on: false,
            lease_duration: Duration::from_secs(30),
            name: "own".to_owned(),
            ..other.clone()
        };
        assert_eq!(args.or(other), expect);
    }

    #[test]
    fn a_cluster_tells_its_scheduler_a_file() {
        let config = |path: &str| Ok(SchedulerArg::Config(path.into()));
        assert_eq!("config=/a=b".parse(), config("/a=b"));
        assert_eq!("--config=a".parse(), config("a"));
        for wrong in ["", "config", "config=", "master=x", "---config=a"] {
            assert!(wrong.parse::<SchedulerArg>().is_err(), "{wrong}");
        }
    }
}
