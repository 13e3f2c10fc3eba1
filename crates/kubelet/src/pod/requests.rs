//! What a Pod asks for of a resource, and what it may have: of its containers, or for itself. Pure.
//!
//! Source: `k8s.io/component-helpers/resource` and KEP-2837 of upstream.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::roles::{Role, init_role};

pub(super) type Amounts = BTreeMap<String, Quantity>;

/// The most that a Pod's containers have of something at the same time: all that stay, or an init container with the
/// sidecars before it.
pub(crate) fn at_once(spec: &PodSpec, of: impl Fn(&Container) -> i64) -> i64 {
    let (mut sidecars, mut most) = (0_i64, 0_i64);
    for container in spec.init_containers.iter().flatten() {
        let with = sidecars.saturating_add(of(container));
        most = most.max(with);
        if init_role(container) == Role::Sidecar {
            sidecars = with;
        }
    }
    spec.containers.iter().fold(sidecars, |sum, container| sum.saturating_add(of(container))).max(most)
}

/// What the Pod asks for: its own requests before those of its containers, and its overhead.
pub(crate) fn pod_request(spec: &PodSpec, name: &str, read: fn(&Quantity) -> i64) -> i64 {
    let of =
        |resources: Option<&ResourceRequirements>| amounts(resources).0.and_then(|r| r.get(name)).map(read);
    let own = of(spec.resources.as_ref());
    let own = own.unwrap_or_else(|| at_once(spec, |container| of(container.resources.as_ref()).unwrap_or(0)));
    own.saturating_add(overhead(spec, name, read))
}

/// What the Pod may have, if it or every one of its containers says so.
pub(super) fn pod_limit(spec: &PodSpec, name: &str, read: fn(&Quantity) -> i64) -> Option<i64> {
    let of = |resources: Option<&ResourceRequirements>| {
        amounts(resources).1.and_then(|l| l.get(name)).map(read).filter(|limit| *limit > 0)
    };
    let limit = |container: &Container| of(container.resources.as_ref());
    let all_say =
        || spec.init_containers.iter().flatten().chain(&spec.containers).all(|c| limit(c).is_some());
    let of_containers = || all_say().then(|| at_once(spec, |container| limit(container).unwrap_or(0)));
    let own = of(spec.resources.as_ref()).or_else(of_containers)?;
    Some(own.saturating_add(overhead(spec, name, read)))
}

/// What the sandbox itself takes. Source: `PodSpec.overhead`.
pub(crate) fn overhead(spec: &PodSpec, name: &str, read: fn(&Quantity) -> i64) -> i64 {
    spec.overhead.as_ref().and_then(|overhead| overhead.get(name)).map_or(0, read)
}

pub(super) fn amounts(resources: Option<&ResourceRequirements>) -> (Option<&Amounts>, Option<&Amounts>) {
    (resources.and_then(|r| r.requests.as_ref()), resources.and_then(|r| r.limits.as_ref()))
}

/// Whether the Pod has resources of its own. Source: `IsPodLevelResourcesSet`.
pub(crate) fn has_own_resources(spec: &PodSpec) -> bool {
    let (requests, limits) = amounts(spec.resources.as_ref());
    let is_known = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    requests.into_iter().chain(limits).flat_map(BTreeMap::keys).any(|name| is_known(name))
}

#[cfg(test)]
mod tests;
