//! Objects of whatever kind: what informers do with them is the same for all kinds, and compiled once.

use std::any::{Any, TypeId};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Kind;
use super::transform::Transform;
use crate::resource_ref::ResourceRef;

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

/// The type of a kind's objects, as informers know it.
#[derive(Clone, Copy)]
pub(super) struct ObjectType {
    pub(super) id: TypeId,
    pub(super) decoder: Decoder,
    pub(super) resource: fn() -> ResourceRef,
}

impl ObjectType {
    pub(super) fn of<K: Kind>() -> Self {
        let decoder: Decoder = |text, transform| Ok(Arc::new(K::decode(text, transform)?));
        Self { id: TypeId::of::<K>(), decoder, resource: ResourceRef::of::<K> }
    }
}

/// The object by its type; `None` if it is of another.
pub(super) fn typed<K: Kind>(object: Arc<dyn Object>) -> Option<Arc<K>> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object.downcast().ok()
}

pub(super) fn all_typed<K: Kind>(objects: Vec<Arc<dyn Object>>) -> Vec<Arc<K>> {
    objects.into_iter().filter_map(typed).collect()
}
