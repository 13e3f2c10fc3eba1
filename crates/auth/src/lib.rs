// NOTE from the architect, 06:33: I write pki.rs, x509.rs and token.rs (+ kubeconfig) myself, on main, by 06:50;
// `git merge main` then. You do: rbac.rs, bootstrap.rs, node.rs, node_restriction.rs, authorizer.rs. Remove this note.
//! Who is it, and may they: authentication and authorization as functions of what is already in memory.
//!
//! Knows neither HTTP nor the store. `apiserver` hands in certificates, tokens and the cached RBAC objects.

pub mod pki;
pub mod token;
pub mod x509;

use std::collections::BTreeMap;

/// Who makes a request. Source: `user.Info`, `authentication.k8s.io/v1.UserInfo`.
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

/// What a request wants to do. Source: `authorizer.Attributes`.
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
    /// Whether `resource` is meant at all.
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
