//! Flags about servers of others that the API server asks, or tells.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;

/// Who is asked who somebody is, and what they may. What is not given has kube-apiserver's default, but for the modes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct AuthorityArgs {
    /// Who is asked whether somebody may, in this order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny; Node and RBAC if not
    /// given
    #[arg(long, value_delimiter = ',', value_name = "MODES")]
    pub authorization_mode: Vec<String>,
    /// An AuthorizationConfiguration, in place of the other `--authorization` flags; changes are taken while the server runs
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "authorization_mode",
        "authorization_webhook_config_file",
        "authorization_webhook_version",
        "authorization_webhook_cache_authorized_ttl",
        "authorization_webhook_cache_unauthorized_ttl",
    ])]
    pub authorization_config: Option<PathBuf>,
    /// A kubeconfig of the server that --authorization-mode=Webhook asks
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// The version of the SubjectAccessReviews that it is sent: v1 or v1beta1, which is the default
    #[arg(long, value_name = "VERSION")]
    pub authorization_webhook_version: Option<String>,
    /// How long it is not asked again about what it has allowed; 5m0s if not given
    #[arg(long, value_name = "DURATION")]
    pub authorization_webhook_cache_authorized_ttl: Option<GoDuration>,
    /// How long it is not asked again about what it has not allowed; 30s if not given
    #[arg(long, value_name = "DURATION")]
    pub authorization_webhook_cache_unauthorized_ttl: Option<GoDuration>,
    /// A kubeconfig of the server that is asked about bearer tokens that nothing here knows
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// The version of the TokenReviews that it is sent: v1 or v1beta1, which is the default
    #[arg(long, value_name = "VERSION", requires = "authentication_token_webhook_config_file")]
    pub authentication_token_webhook_version: Option<String>,
    /// How long it is not asked again about the same token; 2m0s if not given
    #[arg(long, value_name = "DURATION", requires = "authentication_token_webhook_config_file")]
    pub authentication_token_webhook_cache_ttl: Option<GoDuration>,
}

impl AuthorityArgs {
    /// The files that are only read.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [
            &mut self.authorization_config,
            &mut self.authorization_webhook_config_file,
            &mut self.authentication_token_webhook_config_file,
        ]
        .into_iter()
        .flatten()
    }
}

/// Where audit events go beside the log. What is not given has kube-apiserver's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditWebhookArgs {
    /// A kubeconfig of the server that audit events are sent to, beside the log
    #[arg(long, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// Whether events wait for each other (batch, the default) or requests for their events (blocking), and are refused if
    /// the first of them cannot be sent (blocking-strict)
    #[arg(long, value_name = "MODE")]
    pub audit_webhook_mode: Option<String>,
    /// The version of the events that are sent: audit.k8s.io/v1
    #[arg(long, value_name = "VERSION")]
    pub audit_webhook_version: Option<String>,
    /// How long to wait before events are sent again for the first time; 10s if not given
    #[arg(long, value_name = "DURATION")]
    pub audit_webhook_initial_backoff: Option<GoDuration>,
    /// How many events may wait; 10000 if not given
    #[arg(long, value_name = "EVENTS")]
    pub audit_webhook_batch_buffer_size: Option<usize>,
    /// How many events are sent together; 400 if not given
    #[arg(long, value_name = "EVENTS")]
    pub audit_webhook_batch_max_size: Option<usize>,
    /// How long an event waits for others; 30s if not given
    #[arg(long, value_name = "DURATION")]
    pub audit_webhook_batch_max_wait: Option<GoDuration>,
    /// Whether there is a limit to how many batches are sent in a second; true if not given
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub audit_webhook_batch_throttle_enable: Option<bool>,
    /// How many batches are sent in a second; 10 if not given
    #[arg(long, value_name = "NUMBER")]
    pub audit_webhook_batch_throttle_qps: Option<String>,
    /// How many batches are sent at once; 15 if not given
    #[arg(long, value_name = "NUMBER")]
    pub audit_webhook_batch_throttle_burst: Option<u32>,
    /// Leave what was sent and answered out of long events, and split long batches
    #[arg(long)]
    pub audit_webhook_truncate_enabled: bool,
    /// The bytes of a long batch; 10485760 if not given
    #[arg(long, value_name = "BYTES")]
    pub audit_webhook_truncate_max_batch_size: Option<usize>,
    /// The bytes of a long event; 102400 if not given
    #[arg(long, value_name = "BYTES")]
    pub audit_webhook_truncate_max_event_size: Option<usize>,
}
