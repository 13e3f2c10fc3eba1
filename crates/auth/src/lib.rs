//! Authentication and authorization as functions of what is already in memory.
//!
//! Knows neither HTTP nor the store. `apiserver` hands in certificates, tokens and the cached RBAC objects.

pub mod authorizer;
pub mod bootstrap;
pub mod bootstrap_token;
pub mod bundle;
mod der;
pub mod escalation;
pub mod issuing;
pub mod keys;
pub mod node;
pub mod node_restriction;
pub mod oidc;
pub mod pki;
pub mod rbac;
mod refusal;
pub mod signing;
pub mod subject;
pub mod token;
pub mod x509;

pub use refusal::Refusal;

use std::collections::BTreeMap;

/// May do everything. Source: `user.SystemPrivilegedGroup`.
pub const MASTERS: &str = "system:masters";
/// Everyone who is known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Everyone else.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// All kubelets.
pub const NODES: &str = "system:nodes";
/// The prefix of a kubelet's user name.
pub const NODE_USER_PREFIX: &str = "system:node:";
/// API servers as clients of kubelets: bound to `system:kubelet-api-admin`, and to nothing else.
pub const KUBELET_API_CLIENTS: &str = "knarr:kubelet-api-clients";
/// The proxies of Nodes. Source: `user.KubeProxy`.
pub const PROXY_USER: &str = "system:kube-proxy";
/// The controllers of a cloud. Source: what their manifests call their users.
pub const CLOUD_CONTROLLER_MANAGER: &str = "system:cloud-controller-manager";
/// Certificates of Nodes' proxies: for `system:kube-proxy`, and for nobody else.
pub const PROXY_SIGNER: &str = "knarr.io/kube-proxy";
/// The user who serves Ingresses on Nodes.
pub const INGRESS_USER: &str = "system:knarr:ingress";
/// Certificates of those: for [`INGRESS_USER`], and for nobody else.
pub const INGRESS_SIGNER: &str = "knarr.io/ingress";
/// The origin of a CertificateSigningRequest: an address in its `spec.extra`, which only the API server writes.
pub const PEER_ADDRESS: &str = "knarr.io/peer-address";
/// The prefix of a ServiceAccount's user name; namespace and name follow, with a colon between.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The id of the credential that a user showed: `JTI=...` or `X509SHA256=...`. Source: `user.CredentialIDKey`.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The user that makes a request. Source: `user.Info`, `authentication.k8s.io/v1.UserInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// `system:anonymous` when nothing else is known.
    pub name: String,
    /// Empty for certificates.
    pub uid: String,
    /// In the order in which the authenticator gave them.
    pub groups: Vec<String>,
    /// For example `authentication.kubernetes.io/pod-name`.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user in these groups and in `system:authenticated`.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// Nobody in particular.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// A ServiceAccount, without a token's details.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let all = "system:serviceaccounts".to_owned();
        let groups = vec![all.clone(), format!("{all}:{namespace}"), AUTHENTICATED.to_owned()];
        Self {
            name: format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"),
            uid: uid.to_owned(),
            groups,
            ..Self::default()
        }
    }

    /// `true` if the user is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The name of the node; `None` if it is not a kubelet.
    pub fn node(&self) -> Option<&str> {
        if !self.is_in(NODES) {
            return None;
        }
        self.name.strip_prefix(NODE_USER_PREFIX).filter(|node| !node.is_empty())
    }

    /// `true` for a kubelet that does not say of which node it is. Whoever is in the group alone is no kubelet.
    /// Source: `NodeIdentity` of upstream's `pkg/auth/nodeidentifier`.
    pub fn is_nameless_node(&self) -> bool {
        self.name == NODE_USER_PREFIX && self.is_in(NODES)
    }
}

/// The operation that a request asks for. Source: `authorizer.Attributes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, ...; the lowercase method for non-resource requests.
    pub verb: String,
    /// Empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// Plural; empty for non-resource requests.
    pub resource: String,
    /// Empty if none.
    pub subresource: String,
    /// Empty for cluster scope or all namespaces.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// The URL path; decides for non-resource requests.
    pub path: String,
    /// For list and watch: the field selector's text, which the Node authorizer reads.
    pub field_selector: String,
    /// For list, watch and deletecollection: the label selector's text, which authorizers of others read.
    pub label_selector: String,
    /// `true` if `resource` is meant at all.
    pub is_resource: bool,
}

/// An authorizer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes; the text says by which rule.
    Allow(String),
    /// Not by me; the text says why not, if there is something to say.
    NoOpinion(String),
    /// No, whatever others say.
    Deny(String),
}
