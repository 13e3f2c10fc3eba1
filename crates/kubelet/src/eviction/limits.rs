//! Limits on local storage: of emptyDirs, of whole Pods, of containers. Pure.
//!
//! Source: `localStorageEviction` of upstream's `pkg/kubelet/eviction`.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::pod::quantity;
use crate::pod::requests::at_once;
use crate::pod::requests::overhead;
use crate::stats::disk::DiskUse;

const RESOURCE: &str = "ephemeral-storage";

/// Whether anything of the Pod has a limit: only then it is worth looking.
pub(crate) fn has_limits(spec: &PodSpec) -> bool {
    all(spec).any(|container| limit(container).is_some()) || empty_dirs(spec).next().is_some()
}

/// The emptyDirs with a limit.
fn empty_dirs(spec: &PodSpec) -> impl Iterator<Item = (&str, &Quantity)> {
    spec.volumes.iter().flatten().filter_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        (quantity::whole(limit) > 0).then_some((volume.name.as_str(), limit))
    })
}

fn all(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

fn limit(container: &Container) -> Option<&Quantity> {
    container.resources.as_ref()?.limits.as_ref()?.get(RESOURCE).filter(|limit| quantity::whole(limit) > 0)
}

/// Why the Pod must go, in upstream's words, and the signal that is counted; `None` if it may stay.
pub(crate) fn exceeded(spec: &PodSpec, used: &DiskUse) -> Option<(&'static str, String)> {
    for (name, limit) in empty_dirs(spec) {
        if used.empty_dirs.get(name).is_some_and(|used| *used > quantity::whole(limit)) {
            let message = format!("Usage of EmptyDir volume {name:?} exceeds the limit {:?}. ", limit.0);
            return Some(("emptydirfs.limit", message));
        }
    }
    if all(spec).any(|container| limit(container).is_some()) {
        let total = at_once(spec, |container| limit(container).map_or(0, quantity::whole))
            .saturating_add(overhead(spec, RESOURCE, quantity::whole));
        let sum = used.containers.values().chain(used.empty_dirs.values()).sum::<i64>() + used.others;
        if sum > total {
            let total = machinery::quantity::Quantity::new(total, machinery::quantity::Format::BinarySi);
            let message =
                format!("Pod ephemeral local storage usage exceeds the total limit of containers {total}. ");
            return Some(("ephemeralpodfs.limit", message));
        }
    }
    // Source: init containers count only with the whole Pod.
    for container in &spec.containers {
        let Some(limit) = limit(container) else { continue };
        if used.containers.get(&container.name).is_some_and(|used| *used > quantity::whole(limit)) {
            let message = format!(
                "Container {} exceeded its local ephemeral storage limit {:?}. ",
                container.name, limit.0
            );
            return Some(("ephemeralcontainerfs.limit", message));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "{volumes: [{name: scratch, emptyDir: {sizeLimit: 1Mi}}], containers: [\
        {name: a, resources: {limits: {ephemeral-storage: 2Mi}}}, {name: b, resources: {limits: {ephemeral-storage: 4Mi}}}]}";

    #[test]
    fn limits_are_enforced_in_upstreams_order_and_words() {
        let spec: PodSpec = serde_saphyr::from_str(SPEC).unwrap();
        let use_of = |a: i64, b: i64, scratch: i64| DiskUse {
            containers: [("a".to_owned(), a << 20), ("b".to_owned(), b << 20)].into(),
            empty_dirs: [("scratch".to_owned(), scratch << 20)].into(),
            others: 0,
        };
        for (used, expect) in [
            (use_of(1, 1, 1), None),
            (use_of(1, 1, 2), Some("Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\". ")),
            (
                use_of(1, 5, 1),
                Some("Pod ephemeral local storage usage exceeds the total limit of containers 6Mi. "),
            ),
            (use_of(3, 1, 1), Some("Container a exceeded its local ephemeral storage limit \"2Mi\". ")),
        ] {
            assert_eq!(exceeded(&spec, &used).map(|(_, m)| m).as_deref(), expect);
        }
        assert!(has_limits(&spec));
        let init = SPEC.replace(
            "{volumes",
            "{initContainers: [{name: i, resources: {limits: {ephemeral-storage: 9Mi}}}], overhead: {ephemeral-storage: 1Mi}, volumes",
        );
        let spec: PodSpec = serde_saphyr::from_str(&init).unwrap();
        let total = exceeded(&spec, &use_of(1, 9, 1)).map(|(_, message)| message);
        let expect = "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ";
        assert_eq!(total.as_deref(), Some(expect), "as much as an init container may have");
        let plain: PodSpec =
            serde_saphyr::from_str("{volumes: [{name: v, emptyDir: {}}], containers: [{name: a}]}").unwrap();
        assert!(!has_limits(&plain));
    }
}
