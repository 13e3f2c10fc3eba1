//! What is read of every Pod.

use controller::pod::Pod;

/// The Pod's uid.
pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Its namespace and name.
pub(crate) fn names(pod: &Pod) -> (&str, &str) {
    (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.name.as_deref().unwrap_or_default())
}
