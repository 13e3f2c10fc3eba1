//! The options of operators beyond keys and addresses; the defaults are upstream's.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::keys::public::PublicKey;
use base::connections;

use crate::audit;
use crate::authentication_config::{Anonymous, Authentication, TokenWebhook};
use crate::authorization_config::Authorization;
use crate::event_rate_limits::EventRateLimits;
use crate::front_proxy::FrontProxy;
use crate::tunnels::EgressSelectorMode;
use crate::webhooks::AdmissionCredentials;
use machinery::net::Cidr;

/// A client certificate of a front proxy.
#[derive(Clone)]
pub struct ProxyClient {
    /// The certificate's chain, PEM.
    pub certificate_pem: Vec<u8>,
    /// Its key, PEM.
    pub key_pem: Vec<u8>,
}

impl fmt::Debug for ProxyClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyClient").finish_non_exhaustive()
    }
}

/// The keys that sign and check the tokens of ServiceAccounts: whatever is empty is as the cluster has it.
#[derive(Clone, Default)]
pub struct ServiceAccounts {
    /// The key that signs, PKCS#8, in place of the cluster's own. Source: `--service-account-signing-key-file`.
    pub key: Option<Vec<u8>>,
    /// By what tokens are checked beside the key that signs. Source: `--service-account-key-file`.
    pub believed: Vec<PublicKey>,
    /// `iss`: the first signs, all are believed. Source: `--service-account-issuer`.
    pub issuers: Vec<String>,
    /// The URL of the keys for those who ask the issuer. Source: `--service-account-jwks-uri`.
    pub jwks_uri: Option<String>,
    /// The audiences that mean this server; all are those of a token that names none. Source: `--api-audiences`.
    pub audiences: Vec<String>,
    /// The longest life of a token. Source: `--service-account-max-token-expiration`.
    pub token_seconds_max: Option<i64>,
    /// Whether the tokens that Pods get are good for a year, for those who read theirs only once. Source:
    /// `--service-account-extend-token-expiration`, which is on by default there.
    pub extends_tokens: bool,
}

impl fmt::Debug for ServiceAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccounts").field("issuers", &self.issuers).finish_non_exhaustive()
    }
}

/// The choices.
#[derive(Clone, Debug)]
pub struct Options {
    /// The admission plugins that run. Source: `--enable-admission-plugins`, `--disable-admission-plugins`.
    pub admission_plugins: PluginChoice,
    /// The rate limits of Events, for the plugin of that name. Source: `--admission-control-config-file`.
    pub event_rate_limits: Arc<EventRateLimits>,
    /// The credentials that webhooks see of this server. Source: `--admission-control-config-file`.
    pub webhook_credentials: AdmissionCredentials,
    /// The proxies that may say in headers who their clients are. Source: `--requestheader-*`.
    pub front_proxy: Option<FrontProxy>,
    /// The credential that this server shows to aggregated APIs, which believe it of whom it asks for. Source:
    /// `--proxy-client-cert-file`, `--proxy-client-key-file`.
    pub proxy_client: Option<ProxyClient>,
    /// Issuers of tokens outside the cluster. Source: `--oidc-*`, `--authentication-config`.
    pub authentication: Authentication,
    /// The keys that sign the tokens of ServiceAccounts. Source: `--service-account-*`, `--api-audiences`.
    pub service_accounts: ServiceAccounts,
    /// The paths where requests need not say who sends them. Source: `--anonymous-auth`, `--authentication-config`.
    pub anonymous: Anonymous,
    /// The webhook that is asked about tokens that nothing here knows. Source: `--authentication-token-webhook-*`.
    pub token_webhook: Option<TokenWebhook>,
    /// The authorizers. Source: `--authorization-*`.
    pub authorization: Authorization,
    /// The audit log. Source: `--audit-*`.
    pub audit: Option<audit::Config>,
    /// The encryption of values in the store. Source: `--encryption-provider-config`.
    pub encryption: Option<encryption::Config>,
    /// `true` if there will be other configurations of that. Source: `--encryption-provider-config-automatic-reload`.
    pub reloads_encryption: bool,
    /// The networks that Pods' addresses come from; Nodes' own ranges count beside them. Source: `--cluster-cidr`.
    pub pod_cidrs: Vec<Cidr>,
    /// `true` if FlowSchemas count; otherwise requests only share the places there are. Source:
    /// `--enable-priority-and-fairness`.
    pub is_fair: bool,
    /// `true` if other API servers may share the store.
    pub is_one_of_many: bool,
    /// This server's own name among them. Source: upstream takes the host's.
    pub hostname: String,
    /// The time that a request may take that does not say. Source: `--request-timeout`.
    pub request_timeout: Duration,
    /// The connections that go through Nodes' tunnels. Source: `--egress-selector-mode` of k3s.
    pub egress_selector_mode: EgressSelectorMode,
    /// Addresses that are connected to though they are this host's; no flag sets them, tests have their kubelets there.
    pub dials_also: Vec<IpAddr>,
    /// The limits of connections, by standing; by how many descriptors the process has, if absent.
    pub connections: Option<connections::Limits>,
    /// The time for which requests are still taken after readiness has failed. Source: `--shutdown-delay-duration`.
    pub shutdown_delay: Duration,
    /// The file in which causes are kept from one run to the next.
    pub trace_file: Option<std::path::PathBuf>,
}

/// The admission plugins that run: the default ones, unless they are named here. Source: `--enable-admission-plugins`,
/// `--disable-admission-plugins`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginChoice {
    /// Those that run besides.
    pub enabled: Vec<String>,
    /// Those that do not.
    pub disabled: Vec<String>,
}

impl PluginChoice {
    /// `true` if the plugin of a name runs that does so, or does not, by default.
    pub fn has(&self, name: &str, by_default: bool) -> bool {
        let is_in = |list: &[String]| list.iter().any(|one| one == name);
        !is_in(&self.disabled) && (by_default || is_in(&self.enabled))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            admission_plugins: PluginChoice::default(),
            event_rate_limits: Arc::default(),
            webhook_credentials: AdmissionCredentials::default(),
            front_proxy: None,
            proxy_client: None,
            authentication: Authentication::default(),
            service_accounts: ServiceAccounts::default(),
            anonymous: Anonymous::Everywhere,
            token_webhook: None,
            authorization: Authorization::default(),
            audit: None,
            encryption: None,
            reloads_encryption: false,
            pod_cidrs: Vec::new(),
            is_fair: true,
            is_one_of_many: false,
            hostname: String::new(),
            request_timeout: Duration::from_secs(60),
            egress_selector_mode: EgressSelectorMode::default(),
            dials_also: Vec::new(),
            connections: None,
            shutdown_delay: Duration::ZERO,
            trace_file: None,
        }
    }
}
