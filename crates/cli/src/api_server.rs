//! Flags of the API server inside `server` and `up`. Names are kube-apiserver's.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

/// How the API server judges requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct ApiServerArgs {
    /// Admission plugins to run beside the default ones
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins not to run
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// The audit policy; without one nothing is logged
    #[arg(long)]
    pub audit_policy_file: Option<PathBuf>,
    /// Where audit events go, one a line; `-` is standard output
    #[arg(long)]
    pub audit_log_path: Option<PathBuf>,
    /// Days that old audit logs are kept; 0 is for ever
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxage: u32,
    /// How many old audit logs are kept; 0 is all
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxbackup: usize,
    /// Megabytes at which an audit log is put aside
    #[arg(long, default_value_t = 100)]
    pub audit_log_maxsize: u64,
    /// An AuthenticationConfiguration, in place of the `--oidc` flags
    #[arg(long, conflicts_with_all = ["oidc_issuer_url", "oidc_client_id"])]
    pub authentication_config: Option<PathBuf>,
    /// An OpenID Connect issuer whose tokens are believed
    #[arg(long)]
    pub oidc_issuer_url: Option<String>,
    /// The audience that the issuer's tokens must name
    #[arg(long)]
    pub oidc_client_id: Option<String>,
    /// Who signed the issuer's certificate; the host's authorities if not given
    #[arg(long)]
    pub oidc_ca_file: Option<PathBuf>,
    /// The claim that names the user
    #[arg(long, default_value = "sub")]
    pub oidc_username_claim: String,
    /// What user names get in front; `-` is nothing
    #[arg(long)]
    pub oidc_username_prefix: Option<String>,
    /// The claim that names the groups
    #[arg(long)]
    pub oidc_groups_claim: Option<String>,
    /// What groups get in front
    #[arg(long)]
    pub oidc_groups_prefix: Option<String>,
    /// CLAIM=VALUE that tokens must have
    #[arg(long)]
    pub oidc_required_claim: Vec<String>,
    /// Signatures that are accepted
    #[arg(long, value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,
    /// Who signs the client certificates of front proxies
    #[arg(long)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// The names of front proxies that are believed; any if not given
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Seconds that a request may take which does not say
    #[arg(long, default_value_t = 60)]
    pub request_timeout_seconds: u64,
    /// Seconds for which requests are still taken after readiness has failed
    #[arg(long, default_value_t = 0)]
    pub shutdown_delay_seconds: u64,
    /// Share places among requests without regard to FlowSchemas
    #[arg(long)]
    pub disable_priority_and_fairness: bool,
}
