//! The containers of a Pod by role, and where to find one. Pure, and of the spec alone.

use k8s_openapi::api::core::v1::{Container as ContainerSpec, PodSpec};

/// Main or init container, or an init container that keeps running (a sidecar).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One of `spec.containers`.
    Main,
    /// Must end before the next starts.
    Init,
    /// An init container with `restartPolicy: Always`: must be up before the next starts, and stays.
    Sidecar,
    /// Added to a Pod that runs, to look into it: started once, as soon as there is a sandbox.
    Ephemeral,
}

/// The role of an init container.
pub fn init_role(container: &ContainerSpec) -> Role {
    if container.restart_policy.as_deref() == Some("Always") { Role::Sidecar } else { Role::Init }
}

/// The Pod's ephemeral containers, which have a container's fields. They never run twice.
///
/// Source: `EphemeralContainerCommon`, core/v1.
pub fn ephemeral(spec: &PodSpec) -> Vec<ContainerSpec> {
    let to_container = |ephemeral| {
        let container: ContainerSpec = serde_json::from_value(serde_json::to_value(ephemeral).ok()?).ok()?;
        Some(ContainerSpec { restart_policy: Some("Never".into()), ..container })
    };
    spec.ephemeral_containers.iter().flatten().filter_map(to_container).collect()
}

/// The container of that name, of whatever role.
pub fn find_container(spec: &PodSpec, name: &str) -> Option<ContainerSpec> {
    let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let found = all.find(|c| c.name == name).cloned();
    found.or_else(|| ephemeral(spec).into_iter().find(|c| c.name == name))
}
