//! Roles and bindings.

use machinery::field::{FieldError, FieldErrors};
use serde_json::Value;

use super::{At, internal};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A Role: no rules about paths outside of resources.
pub(crate) fn role(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    rules(&At::root(object), true, &mut errors);
    errors
}

/// An update of a Role.
pub(crate) fn role_update(new: &Value, _: &Value) -> FieldErrors {
    role(new)
}

/// A ClusterRole.
pub(crate) fn cluster_role(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let role = At::root(object);
    rules(&role, false, &mut errors);
    if let Some(aggregation) = role.some("aggregationRule") {
        let selectors = aggregation.get("clusterRoleSelectors");
        if selectors.is_empty() {
            errors.push(
                selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil"),
            );
        }
        selectors.items().for_each(|selector| super::selector::check(&selector, &mut errors));
    }
    errors
}

/// An update of a ClusterRole.
pub(crate) fn cluster_role_update(new: &Value, _: &Value) -> FieldErrors {
    cluster_role(new)
}

fn rules(role: &At<'_>, is_namespaced: bool, errors: &mut FieldErrors) {
    for rule in role.get("rules").items() {
        let (groups, resources, urls) =
            (rule.get("apiGroups"), rule.get("resources"), rule.get("nonResourceURLs"));
        if rule.get("verbs").is_empty() {
            errors.push(rule.get("verbs").required("verbs must contain at least one value"));
        }
        if !urls.is_empty() {
            if is_namespaced {
                errors.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
            }
            if !groups.is_empty() || !resources.is_empty() || !rule.get("resourceNames").is_empty() {
                errors
                    .push(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
            }
            continue;
        }
        if groups.is_empty() {
            errors.push(groups.required("resource rules must supply at least one api group"));
        }
        if resources.is_empty() {
            errors.push(resources.required("resource rules must supply at least one resource"));
        }
    }
}

/// A RoleBinding.
pub(crate) fn role_binding(object: &Value) -> FieldErrors {
    binding(object, &["ClusterRole", "Role"])
}

/// A ClusterRoleBinding.
pub(crate) fn cluster_role_binding(object: &Value) -> FieldErrors {
    binding(object, &["ClusterRole"])
}

/// An update of a RoleBinding: the role stays.
pub(crate) fn role_binding_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = role_binding(new);
    same_role(new, old, &mut errors);
    errors
}

/// An update of a ClusterRoleBinding: the role stays.
pub(crate) fn cluster_role_binding_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = cluster_role_binding(new);
    same_role(new, old, &mut errors);
    errors
}

fn same_role(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let (new, old) = (At::root(new).get("roleRef"), At::root(old).get("roleRef"));
    if new.value != old.value {
        errors.push(internal::invalid(&new, "RoleRef", "cannot change roleRef"));
    }
}

fn binding(object: &Value, kinds: &[&str]) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let binding = At::root(object);
    let role = binding.get("roleRef");
    let group = role.get("apiGroup");
    if group.text() != GROUP {
        errors.push(FieldError::not_supported(&group.path, group.text(), &[GROUP]));
    }
    let kind = role.get("kind");
    if !kinds.contains(&kind.text()) {
        errors.push(FieldError::not_supported(&kind.path, kind.text(), kinds));
    }
    let name = role.get("name");
    if name.text().is_empty() {
        errors.push(name.required(""));
    } else {
        errors.extend(name.all(machinery::names::path_segment(name.text())));
    }
    binding.get("subjects").items().for_each(|s| subject(&s, kinds.len() == 2, &mut errors));
    errors
}

fn subject(subject: &At<'_>, is_namespaced: bool, errors: &mut FieldErrors) {
    let (name, group) = (subject.get("name"), subject.get("apiGroup"));
    if name.text().is_empty() {
        errors.push(name.required(""));
    }
    match subject.get("kind").text() {
        "ServiceAccount" => {
            if !name.text().is_empty() {
                errors.extend(name.all(machinery::names::dns1123_subdomain(name.text())));
            }
            if !group.text().is_empty() {
                errors.push(FieldError::not_supported(&group.path, group.text(), &[""]));
            }
            if !is_namespaced && subject.get("namespace").text().is_empty() {
                errors.push(subject.get("namespace").required(""));
            }
        }
        "User" | "Group" => {
            if group.text() != GROUP {
                errors.push(FieldError::not_supported(&group.path, group.text(), &[GROUP]));
            }
        }
        kind => {
            let at = subject.get("kind").path;
            errors.push(FieldError::not_supported(&at, kind, &["Group", "ServiceAccount", "User"]));
        }
    }
}
