//! The parameters that a binding hands to its policy.
//!
//! Source: `CollectParams` of `plugin/policy/generic/policy_dispatcher.go`.

use std::sync::Arc;

use machinery::labels::ParseError;
use serde_json::Value;

use super::policy::{ParamKind, ParamRef};
use crate::cache::CachedObject;
use crate::kinds::{Kind, Kinds};
use crate::status;

/// How many invocations there can be for one request; upstream has no such bound.
pub(super) const INVOCATIONS_MAX: usize = 100_000;

/// A policy or a binding of which nobody knows what it says of a request, in upstream's words.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConfigureError {
    /// The kind of its parameters is not served.
    #[error("failed to find resource referenced by paramKind: '{0}'")]
    UnknownKind(String),
    /// Parameters would be in the namespace of a request that has none.
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    NoNamespace,
    /// Parameters have no namespace.
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    Namespace,
    /// Nothing is kept of such parameters.
    #[error("paramKind kind `{0}` not yet synced to use for admission")]
    NotSynced(ParamKind),
    /// No parameters are named.
    #[error("one of name or selector must be provided")]
    NotNamed,
    /// Parameters are named in two ways.
    #[error("paramRef.name and paramRef.selector are mutually exclusive")]
    NamedTwice,
    /// Their selector cannot be read.
    #[error(transparent)]
    Selector(#[from] ParseError),
    /// There are none, and there must be.
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
    /// There are too many, with what else is evaluated.
    #[error("policies are evaluated at most {INVOCATIONS_MAX} times for a request")]
    TooMany,
    /// What it depends on cannot be read now.
    #[error(transparent)]
    Unreadable(#[from] Box<status::Error>),
}

impl From<status::Error> for ConfigureError {
    fn from(failure: status::Error) -> Self {
        Self::Unreadable(Box::new(failure))
    }
}

/// A parameter.
#[derive(Clone, Debug)]
pub struct Param {
    kind: Kind,
    object: Arc<CachedObject>,
}

impl Param {
    /// As expressions see it.
    ///
    /// # Errors
    /// Why it cannot be converted to the version that the policy wants.
    pub async fn value(&self) -> status::Result<Value> {
        let object = self.kind.served(Arc::clone(&self.object)).await?;
        Ok(self.kind.sent(&object))
    }

    /// Namespace and name, apart from which all parameters of a binding are alike.
    pub fn key(&self) -> &str {
        &self.object.key
    }
}

/// The kind of a policy's parameters, among those that are served now.
///
/// # Errors
/// If there is none.
pub fn kind<'a>(kinds: &'a Kinds, wanted: &ParamKind) -> Result<&'a Kind, ConfigureError> {
    let (group, version) = wanted.group_version();
    kinds
        .of_name(group, version, &wanted.kind)
        .ok_or_else(|| ConfigureError::UnknownKind(format!("{group}/{version}, Kind={}", wanted.kind)))
}

/// The parameters that a reference leads to for a request in a namespace; none, if the request may do without.
///
/// # Errors
/// Why the policy cannot be evaluated.
pub fn find(
    (kind, wanted): (&Kind, &ParamKind),
    reference: &ParamRef,
    namespace: &str,
) -> Result<Vec<Param>, ConfigureError> {
    let place = match (kind.is_namespaced(), reference.namespace.as_str()) {
        (true, "") if namespace.is_empty() => {
            return Err(ConfigureError::NoNamespace);
        }
        (true, "") => namespace,
        (true, place) => place,
        (false, "") => "",
        (false, _) => return Err(ConfigureError::Namespace),
    };
    if !kind.row().is_stored() {
        return Err(ConfigureError::NotSynced(wanted.clone()));
    }
    let found = match (reference.name.as_str(), &reference.selector) {
        ("", None) => return Err(ConfigureError::NotNamed),
        ("", Some(selector)) => {
            let selector = selector.as_ref().map_err(Clone::clone)?;
            let objects = kind.cache().read_list(&kind.collection(place), 0)?.objects;
            let is_selected = |object: &Arc<CachedObject>| {
                selector.matches_with(|label| object.labels().get(label).map(String::as_str))
            };
            objects.into_iter().filter(is_selected).collect()
        }
        (_, Some(_)) => return Err(ConfigureError::NamedTwice),
        (name, None) => Vec::from_iter(kind.cache().read(&kind.key(place, name))?),
    };
    if found.is_empty() && reference.denies_without {
        return Err(ConfigureError::NotFound);
    }
    Ok(found.into_iter().map(|object| Param { kind: kind.clone(), object }).collect())
}
