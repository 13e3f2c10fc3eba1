//! Flags of the parts that may run alone against any Kubernetes: `controller-manager`, `scheduler`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::duration::duration;

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
    /// How to reach the API server.
    #[command(flatten)]
    pub part: PartArgs,
    /// Who leads.
    #[command(flatten)]
    pub leader: LeaderElectionArgs,
}
