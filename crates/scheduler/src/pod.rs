//! What is read of every Pod, and how one is found by its uid.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use controller::pod::Pod;

/// The Pod's uid.
pub(crate) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Its namespace and name.
pub(crate) fn names(pod: &Pod) -> (&str, &str) {
    (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.name.as_deref().unwrap_or_default())
}

/// A Pod that is compared and found by its uid alone, which is so kept once.
#[derive(Clone, Debug)]
pub(crate) struct ByUid(pub(crate) Arc<Pod>);

impl Borrow<str> for ByUid {
    fn borrow(&self) -> &str {
        uid(&self.0)
    }
}

impl Hash for ByUid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        uid(&self.0).hash(state);
    }
}

impl PartialEq for ByUid {
    fn eq(&self, other: &Self) -> bool {
        uid(&self.0) == uid(&other.0)
    }
}

impl Eq for ByUid {}

impl Ord for ByUid {
    fn cmp(&self, other: &Self) -> Ordering {
        uid(&self.0).cmp(uid(&other.0))
    }
}

impl PartialOrd for ByUid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
