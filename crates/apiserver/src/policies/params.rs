//! The parameters that a binding hands to its policy.
//!
//! Source: `CollectParams` of `plugin/policy/generic/policy_dispatcher.go`.

use std::sync::Arc;

use serde_json::Value;

use super::policy::{ParamKind, ParamRef};
use crate::cache::CachedObject;
use crate::kinds::{Kind, Kinds};

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
    pub async fn value(&self) -> Result<Value, String> {
        let object = self.kind.served(Arc::clone(&self.object)).await.map_err(|failure| failure.message)?;
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
pub fn kind<'a>(kinds: &'a Kinds, wanted: &ParamKind) -> Result<&'a Kind, String> {
    let (group, version) = wanted.group_version();
    kinds.of_name(group, version, &wanted.kind).ok_or_else(|| {
        let kind = &wanted.kind;
        format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
    })
}

/// The parameters that a reference leads to for a request in a namespace; none, if the request may do without.
///
/// # Errors
/// Why the policy cannot be evaluated.
pub fn find(
    (kind, wanted): (&Kind, &ParamKind),
    reference: &ParamRef,
    namespace: &str,
) -> Result<Vec<Param>, String> {
    let place = match (kind.is_namespaced(), reference.namespace.as_str()) {
        (true, "") if namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .to_owned(),
            );
        }
        (true, "") => namespace,
        (true, place) => place,
        (false, "") => "",
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
    };
    if !kind.row().is_stored() {
        return Err(format!("paramKind kind `{wanted}` not yet synced to use for admission"));
    }
    let found = match (reference.name.as_str(), &reference.selector) {
        ("", None) => return Err("one of name or selector must be provided".to_owned()),
        ("", Some(selector)) => {
            let selector = selector.as_ref().map_err(Clone::clone)?;
            let listing = kind.cache().read_list(&kind.collection(place), 0);
            let objects = listing.map_err(|failure| failure.message)?.objects;
            let is_selected = |object: &Arc<CachedObject>| {
                selector.matches_with(|label| object.labels().get(label).map(String::as_str))
            };
            objects.into_iter().filter(is_selected).collect()
        }
        (_, Some(_)) => return Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned()),
        (name, None) => {
            let found = kind.cache().read(&kind.key(place, name)).map_err(|failure| failure.message)?;
            Vec::from_iter(found)
        }
    };
    if found.is_empty() && reference.denies_without {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found.into_iter().map(|object| Param { kind: kind.clone(), object }).collect())
}
