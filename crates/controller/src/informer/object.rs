//! Objects of whatever kind: what informers do with them is the same for all kinds, and compiled once.

use std::any::Any;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Kind;
use super::transform::Transform;

/// An object whose type only those know who read it.
pub(crate) trait Object: Any + Send + Sync {
    /// Its metadata.
    fn meta(&self) -> &ObjectMeta;
}

impl<K: Kind> Object for K {
    fn meta(&self) -> &ObjectMeta {
        self.metadata()
    }
}

/// The decoder of a kind's objects, as [`Decode`](super::Decode) has it.
pub(super) type Decoder = fn(&str, &Transform) -> Result<Arc<dyn Object>, serde_json::Error>;

pub(super) fn decoder<K: Kind>() -> Decoder {
    |text, transform| Ok(Arc::new(K::decode(text, transform)?))
}

/// The object by its type; `None` if it is of another.
pub(super) fn typed<K: Kind>(object: Arc<dyn Object>) -> Option<Arc<K>> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().ok()
}

pub(super) fn all_typed<K: Kind>(objects: Vec<Arc<dyn Object>>) -> Vec<Arc<K>> {
    objects.into_iter().filter_map(typed).collect()
}
