//! An Event about an object, as data. Source: `core/v1.Event`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;

use crate::metadata::Object;

/// An Event to record.
#[derive(Clone, Debug, PartialEq)]
pub struct EventAction {
    /// The component that it comes from; that which carries the plan out, if empty.
    pub component: Cow<'static, str>,
    /// The object that the event is about.
    pub regarding: ObjectReference,
    /// Normal or Warning.
    pub event_type: EventType,
    /// CamelCase, for machines.
    pub reason: String,
    /// A sentence, for people.
    pub message: String,
    /// Data for machines beside that: `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}

/// Source: `core/v1.Event.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Information only.
    Normal,
    /// Something may be wrong.
    Warning,
}

impl EventType {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The reference that events carry.
pub fn reference_to<K: Object>(object: &K) -> ObjectReference {
    let meta = object.metadata();
    ObjectReference {
        api_version: Some(K::API_VERSION.to_owned()),
        kind: Some(K::KIND.to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}
