//! Flags of the API server inside `server` and `up`. Names are kube-apiserver's.

mod service_accounts;
#[cfg(test)]
mod tests;
mod webhooks;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;
pub use service_accounts::ServiceAccountArgs;
pub use webhooks::{AuditWebhookArgs, AuthorityArgs};

/// A value of `--egress-selector-mode`. Source: k3s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EgressSelectorMode {
    /// Nothing.
    Disabled,
    /// Kubelets.
    #[default]
    Agent,
    /// Kubelets and Pods. Nodes have their ranges from the cluster here, so that k3s' `cluster` is the same.
    #[value(alias = "cluster")]
    Pod,
}

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
    /// What plugins are told: an AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
    /// The audit policy; by default changes, reads of Secrets and ways into Pods are logged, never what was sent
    #[arg(long)]
    pub audit_policy_file: Option<PathBuf>,
    /// Where audit events go, one a line; `-` is standard output, the default `server/logs/audit.log` in the data
    /// directory
    #[arg(long)]
    pub audit_log_path: Option<PathBuf>,
    /// Days that old audit logs are kept; 0 is for ever
    #[arg(long, default_value_t = 30)]
    pub audit_log_maxage: u32,
    /// How many old audit logs are kept; 0 is all
    #[arg(long, default_value_t = 10)]
    pub audit_log_maxbackup: usize,
    /// Megabytes at which an audit log is put aside
    #[arg(long, default_value_t = 100)]
    pub audit_log_maxsize: u64,
    /// Where audit events go beside the log.
    #[command(flatten)]
    #[serde(flatten)]
    pub audit_webhook: AuditWebhookArgs,
    /// Who is asked who somebody is, and what they may.
    #[command(flatten)]
    #[serde(flatten)]
    pub authorities: AuthorityArgs,
    /// What the API server connects to through the tunnels that agents keep to it, where there is one: nothing (disabled),
    /// kubelets (agent), or kubelets and Pods, for webhooks, aggregated APIs and proxies (pod). Everything else it connects
    /// to directly
    #[arg(long, env = "KNARR_EGRESS_SELECTOR_MODE", value_enum, default_value_t)]
    pub egress_selector_mode: EgressSelectorMode,
    /// Who signs ServiceAccounts' tokens, and by what they are checked.
    #[command(flatten)]
    #[serde(flatten)]
    pub service_accounts: ServiceAccountArgs,
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
    /// What the server shows to aggregated APIs; a certificate of its own if front proxies have the cluster's authority
    #[arg(long, requires = "proxy_client_key_file")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, requires = "proxy_client_cert_file")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// How values are encrypted in the store: an EncryptionConfiguration; Secrets under a key of the cluster's own if
    /// not given
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Take changes of that file while the server runs
    #[arg(long, requires = "encryption_provider_config")]
    pub encryption_provider_config_automatic_reload: bool,
    /// Requests that say nothing of who sends them are system:anonymous's; otherwise they are refused
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub anonymous_auth: bool,
    /// How long a request may take that does not say
    #[arg(long, default_value = "1m0s", value_name = "DURATION")]
    pub request_timeout: GoDuration,
    /// How long requests are still taken after readiness has failed
    #[arg(long, default_value = "0s", value_name = "DURATION")]
    pub shutdown_delay_duration: GoDuration,
    /// Share places among requests by FlowSchemas and PriorityLevelConfigurations
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub enable_priority_and_fairness: bool,
}

impl ApiServerArgs {
    /// The files that are only read, and the log.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [
            &mut self.admission_control_config_file,
            &mut self.audit_policy_file,
            &mut self.audit_log_path,
            &mut self.authentication_config,
            &mut self.encryption_provider_config,
            &mut self.oidc_ca_file,
            &mut self.requestheader_client_ca_file,
            &mut self.proxy_client_cert_file,
            &mut self.proxy_client_key_file,
            &mut self.audit_webhook.audit_webhook_config_file,
        ]
        .into_iter()
        .flatten()
        .chain(self.authorities.files_mut())
        .chain(self.service_accounts.files_mut())
    }
}
