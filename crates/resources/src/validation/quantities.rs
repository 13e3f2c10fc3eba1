//! Resource names, amounts and requirements: of containers, whole Pods, quotas and limit ranges.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;
use machinery::quantity::Quantity;

use super::{At, NOT_NEGATIVE};

const CONTAINER: &[&str] = &["cpu", "ephemeral-storage", "memory"];
const QUOTA: &[&str] = &[
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
const STANDARD: &[&str] = &["storage"];
const OBJECT_COUNTS: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// The amount that a field holds.
pub(super) fn amount(at: &At<'_>) -> Option<Quantity> {
    at.text().parse().ok()
}

pub(super) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether the name has no domain, or Kubernetes' own.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a node is asked for it by its full name: devices and the like.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether a limit may be above the request.
pub(super) fn is_overcommittable(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Whether `name` is one that quotas know without a domain.
pub(super) fn is_standard_quota(name: &str) -> bool {
    QUOTA.contains(&name) || is_huge_page(name) || name.starts_with("requests.hugepages-")
}

fn is_whole_only(name: &str) -> bool {
    OBJECT_COUNTS.contains(&name) || is_extended(name)
}

fn is_standard(name: &str) -> bool {
    CONTAINER.contains(&name) || is_standard_quota(name) || STANDARD.contains(&name)
}

/// Where the name of a resource stands, and which names are allowed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Requests and limits of a container.
    Container,
    /// Requests and limits of a whole Pod.
    Pod,
    /// A quota.
    Quota,
    /// Anything standard or qualified.
    Any,
}

impl Names {
    /// The broken rules of the name `name` at `path`.
    pub(super) fn check(self, path: &Path, name: &str, errors: &mut FieldErrors) {
        let before = errors.len();
        let of = |rule: &str| FieldError::invalid(path, name, rule);
        errors.extend(names::qualified_name(name).iter().map(|rule| of(rule)));
        if errors.len() > before {
            return;
        }
        let is_plain = !name.contains('/');
        if is_plain && !is_standard(name) {
            errors.push(of("must be a standard resource type or fully qualified"));
        }
        match self {
            Self::Container if is_plain && !CONTAINER.contains(&name) && !is_huge_page(name) => {
                errors.push(of("must be a standard resource for containers"));
            }
            Self::Container if !is_plain && !is_native(name) && !is_extended(name) => {
                errors.push(of("doesn't follow extended resource name standard"));
            }
            Self::Pod if errors.len() == before && !is_pod_level(name) => {
                errors.push(FieldError::not_supported(path, name, &["cpu", "hugepages-", "memory"]));
            }
            Self::Quota if is_plain && !is_standard_quota(name) => {
                errors.push(of("must be a standard resource for quota"));
            }
            Self::Container | Self::Pod | Self::Quota | Self::Any => {}
        }
    }
}

fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// An amount of the resource `name`.
pub(super) fn quantity(at: &At<'_>, name: &str, errors: &mut FieldErrors) {
    match at.text().parse::<Quantity>() {
        Err(error) => errors.push(at.invalid(&error.to_string())),
        Ok(amount) if amount.signum() < 0 => errors.push(at.invalid(NOT_NEGATIVE)),
        Ok(amount) if is_whole_only(name) && amount.milli_value() % 1000 != 0 => {
            errors.push(at.invalid("must be an integer"));
        }
        Ok(_) => {}
    }
}

fn huge_pages(at: &At<'_>, name: &str, errors: &mut FieldErrors) {
    let Some(size) = name.strip_prefix("hugepages-") else { return };
    let is_divisible = match (amount(at), size.parse::<Quantity>()) {
        (Some(amount), Ok(size)) => {
            size.value() > 0 && amount.is_whole() && amount.value() % size.value() == 0
        }
        _ => false,
    };
    if !is_divisible {
        errors.push(at.invalid(&format!("{} is not positive integer multiple of {name}", at.text())));
    }
}

/// `ResourceRequirements`; `claims` are the names in `spec.resourceClaims`.
pub(super) fn requirements(
    resources: &At<'_>,
    kind: Names,
    claims: &BTreeSet<&str>,
    errors: &mut FieldErrors,
) {
    let (limits, requests) = (resources.get("limits"), resources.get("requests"));
    for (name, limit) in limits.entries() {
        kind.check(&limit.path, name, errors);
        quantity(&limit, name, errors);
        huge_pages(&limit, name, errors);
    }
    for (name, request) in requests.entries() {
        kind.check(&request.path, name, errors);
        quantity(&request, name, errors);
        fits(&requests, &limits, name, &request, errors);
        huge_pages(&request, name, errors);
    }
    let has =
        |wanted: fn(&str) -> bool| limits.entries().chain(requests.entries()).any(|(name, _)| wanted(name));
    if has(is_huge_page) && !has(|name| matches!(name, "cpu" | "memory")) {
        errors.push(resources.forbidden("HugePages require cpu or memory"));
    }
    claim_names(&resources.get("claims"), claims, errors);
}

/// A request is at most its limit; what cannot be overcommitted is exactly its limit.
fn fits(requests: &At<'_>, limits: &At<'_>, name: &str, request: &At<'_>, errors: &mut FieldErrors) {
    let limit = limits.get(name);
    if !limit.is_set() {
        if !is_overcommittable(name) {
            errors.push(limits.required("Limit must be set for non overcommitable resources"));
        }
        return;
    }
    let (Some(asked), Some(most)) = (amount(request), amount(&limit)) else { return };
    let detail = if asked != most && !is_overcommittable(name) {
        format!("must be equal to {name} limit of {most}")
    } else if asked > most {
        format!("must be less than or equal to {name} limit of {most}")
    } else {
        return;
    };
    errors.push(FieldError::invalid(&requests.path, asked.to_string(), &detail));
}

fn claim_names(claims: &At<'_>, known: &BTreeSet<&str>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for claim in claims.items() {
        let (name, request) = (claim.get("name").text(), claim.get("request"));
        if name.is_empty() {
            errors.push(claim.required(""));
            continue;
        }
        if seen.contains(name) {
            // The earlier entry stands for every request of the claim.
            errors.push(FieldError::duplicate(&claim.path, name));
        } else {
            request.optional(names::dns1123_label, errors);
            let key = match request.text() {
                "" => name.to_owned(),
                request => format!("{name}/{request}"),
            };
            let prefix = format!("{name}/");
            let overlaps = request.text().is_empty() && seen.iter().any(|k: &String| k.starts_with(&prefix));
            if seen.contains(&key) || overlaps {
                errors.push(FieldError::duplicate(&claim.path, &key));
            }
            seen.insert(key);
        }
        if !known.contains(name) {
            let which = match known.is_empty() {
                true => " which is empty".to_owned(),
                false => format!(": {}", known.iter().copied().collect::<Vec<_>>().join(", ")),
            };
            let mut error = FieldError::not_found(&claim.path, name);
            error.message.push_str(&format!(": must be one of the names in pod.spec.resourceClaims{which}"));
            errors.push(error);
        }
    }
}

/// Amounts of a node.
pub(super) fn node_amounts(list: &At<'_>, errors: &mut FieldErrors) {
    for (name, amount) in list.entries() {
        let amount = At { value: amount.value, path: list.path.child(name) };
        quantity(&amount, name, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_extended_resources() {
        assert!(is_extended("nvidia.com/gpu"));
        for native in ["cpu", "kubernetes.io/x", "a.kubernetes.io/x", "requests.nvidia.com/gpu"] {
            assert!(!is_extended(native), "{native}");
        }
        assert!(!is_overcommittable("hugepages-2Mi") && is_overcommittable("memory"));
    }
}
