//! Who a Pod is: its names, where it comes from, how much it matters. Pure, and of the object alone.

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::config::CRITICAL_PRIORITY;

/// Annotation: where the Pod comes from. Source: `kubernetes.io/config.source`.
pub(crate) const SOURCE: &str = "kubernetes.io/config.source";

/// Annotation: its uid as a static Pod.
pub(crate) const HASH: &str = "kubernetes.io/config.hash";

/// Annotation of a mirror: the hash of the Pod that it shows.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Whether the Pod comes from a file.
pub(crate) fn is_static(pod: &Pod) -> bool {
    annotation(pod, SOURCE).is_some_and(|source| source != "api") && !is_mirror(pod)
}

/// Whether the object only shows a static Pod.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR).is_some()
}

/// What a mirror must be annotated with to be this Pod's.
pub(crate) fn hash(pod: &Pod) -> Option<&str> {
    annotation(pod, HASH)
}

/// What a mirror is annotated with.
pub(crate) fn mirrored_hash(pod: &Pod) -> Option<&str> {
    annotation(pod, MIRROR)
}

/// `namespace/name`.
pub(crate) fn namespaced_name(pod: &Pod) -> String {
    let (name, namespace, _) = crate::pod::identity::identity(pod);
    format!("{namespace}/{name}")
}

/// FNV-1a over what makes a container another one: its name and image.
pub(crate) fn spec_hash(container: &Container) -> String {
    let text = format!("{}\0{}", container.name, container.image.as_deref().unwrap_or_default());
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:x}")
}

/// Name, namespace and uid.
pub(crate) fn identity(pod: &Pod) -> (String, String, String) {
    let metadata = &pod.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    (text(&metadata.name), text(&metadata.namespace), text(&metadata.uid))
}

/// Whether the Pod matters more than the node's comfort: static ones and those of a system's priority.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    crate::pod::identity::is_static(pod) || priority(pod) >= CRITICAL_PRIORITY
}

pub(crate) fn priority(pod: &Pod) -> i64 {
    pod.spec.as_ref().and_then(|spec| spec.priority).map_or(0, i64::from)
}

#[cfg(test)]
mod tests;
