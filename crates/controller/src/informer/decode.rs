//! From the JSON of an object to its type, as Go would read it.
//!
//! What is refused is still known by its [`Identity`], so that it can be left out alone.

use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::compact;
use super::transform::Transform;
use crate::resource_ref::key_of;

/// A type with one decoder, which is compiled where [`decoded`](crate::decoded) names it, and not once more in each crate that
/// has an informer of it.
pub trait Decode: Sized {
    /// An object without what nobody reads.
    ///
    /// # Errors
    /// What the decoder says of an object that Go would not read either.
    fn decode(text: &str, transform: &Transform) -> Result<Self, serde_json::Error>;
}

impl Decode for serde_json::Value {
    fn decode(text: &str, _: &Transform) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Makes a decoder of each of these types, by its `Deserialize`.
#[macro_export]
macro_rules! decoded {
    ($($kind:ty),+ $(,)?) => {$(
        impl $crate::informer::Decode for $kind {
            fn decode(
                text: &str,
                transform: &$crate::informer::Transform,
            ) -> ::std::result::Result<Self, ::serde_json::Error> {
                $crate::informer::object(text, transform)
            }
        }
    )+};
}

/// Makes a type the part of another that is known of its objects: of the same kind, with the metadata in its field of that
/// name, and a decoder of its own.
#[macro_export]
macro_rules! part_of {
    ($part:ty, $whole:ty) => {
        $crate::decoded!($part);

        impl ::k8s_openapi::Resource for $part {
            const API_VERSION: &'static str = <$whole as ::k8s_openapi::Resource>::API_VERSION;
            const GROUP: &'static str = <$whole as ::k8s_openapi::Resource>::GROUP;
            const KIND: &'static str = <$whole as ::k8s_openapi::Resource>::KIND;
            const VERSION: &'static str = <$whole as ::k8s_openapi::Resource>::VERSION;
            const URL_PATH_SEGMENT: &'static str = <$whole as ::k8s_openapi::Resource>::URL_PATH_SEGMENT;
            type Scope = <$whole as ::k8s_openapi::Resource>::Scope;
        }

        impl ::k8s_openapi::Metadata for $part {
            type Ty = <$whole as ::k8s_openapi::Metadata>::Ty;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}

/// Decodes an object without what nobody reads: what [`decoded`](crate::decoded) is made of.
///
/// # Errors
/// As [`Decode::decode`].
pub fn object<K: Resource + DeserializeOwned>(
    text: &str,
    transform: &Transform,
) -> Result<K, serde_json::Error> {
    let filled = || schema::walk::zeros::filled([K::GROUP, K::VERSION, K::KIND], text.as_bytes());
    compact::decode(text, Some(transform)).or_else(|_| compact::decode(&filled()?, Some(transform)))
}

/// Takes an event of a watch apart: its type, and its object as text. What is read is what servers write; nothing if it is
/// anything else. Whether the object is one is seen when it is decoded.
pub(super) fn event(line: &[u8]) -> Option<(&str, &str)> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let (event_type, rest) = line.strip_prefix(r#"{"type":""#)?.split_once('"')?;
    Some((event_type, rest.strip_prefix(r#","object":"#)?.strip_suffix('}')?))
}

/// An object, or a list of some, as it is known where fields are left out.
///
/// # Errors
/// What the decoder says.
pub fn known<T: DeserializeOwned>(text: &str, transform: &Transform) -> Result<T, serde_json::Error> {
    compact::decode(text, Some(transform))
}

/// What is known even of an object that cannot be decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) revision: u64,
}

impl Identity {
    /// Reads it; `None` if the object has no name.
    pub(super) fn of(text: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            name: String,
            namespace: Option<String>,
            uid: Option<String>,
            resource_version: Option<String>,
        }
        let Object { metadata } = serde_json::from_str(text).ok()?;
        let revision = metadata.resource_version.and_then(|text| text.parse().ok()).unwrap_or(0);
        let namespace = metadata.namespace.filter(|namespace| !namespace.is_empty());
        Some(Self { namespace, name: metadata.name, uid: metadata.uid, revision })
    }

    pub(super) fn key(&self) -> String {
        key_of(self.namespace.as_deref(), &self.name)
    }

    /// Whether `known` is an earlier state of the same object, not of one that had its name.
    pub(super) fn is_of(&self, known: &ObjectMeta) -> bool {
        self.uid == known.uid
    }
}

#[cfg(test)]
mod upstream;
#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Pod, Service};

    #[test]
    fn what_go_takes_is_taken() {
        let service: Service = object(
            r#"{"metadata":{"name":"a","labels":{"b":null},"creationTimestamp":null},"future":[null],
                "spec":{"ports":[null],"selector":null},
                "status":{"conditions":[{"type":"X","lastTransitionTime":null},{"type":"Y"}]}}"#,
            &Transform::default(),
        )
        .expect("what Go takes");
        let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
        assert_eq!(conditions.iter().map(|found| found.type_.as_str()).collect::<Vec<_>>(), ["X", "Y"]);
        assert!(conditions.iter().all(|found| found.last_transition_time.0.as_second() < 0));
        assert_eq!(service.metadata.labels.and_then(|labels| labels.get("b").cloned()).as_deref(), Some(""));
        assert_eq!(service.spec.and_then(|spec| spec.ports).map(|ports| ports.len()), Some(1));
    }

    #[test]
    fn managed_fields_are_left_out_of_what_only_go_takes_too() {
        let transform = Transform::default().and_managed_fields();
        for ports in ["null", "[null]"] {
            let text = format!(
                r#"{{"metadata":{{"name":"a","managedFields":[{{"manager":"m"}}],"uid":"u"}},"spec":{{"ports":{ports}}}}}"#
            );
            let meta = object::<Service>(&text, &transform).expect(&text).metadata;
            assert_eq!((meta.managed_fields, meta.uid.as_deref()), (None, Some("u")));
        }
    }

    #[test]
    fn an_event_is_taken_apart_without_a_look_at_its_object() {
        let check = |line: &str, expect| assert_eq!(event(line.as_bytes()), expect, "{line}");
        check("{\"type\":\"ADDED\",\"object\":{\"a\":{}}}\n", Some(("ADDED", "{\"a\":{}}")));
        for other in [
            "",
            "{}",
            r#"{"object":{},"type":"ADDED"}"#,
            r#"{"type":"ADDED", "object":{}}"#,
            r#"{"type":"ADDED","more":1,"object":{}}"#,
        ] {
            check(other, None);
        }
        // That its end is cut off shows when the object is decoded.
        check(r#"{"type":"ADDED","object":{}"#, Some(("ADDED", "{")));
        assert_eq!(event(b"{\"type\":\"ADDED\",\"object\":{\"a\":\"\xff\"}}\n"), None);
    }

    #[test]
    fn what_go_refuses_is_refused_and_known_by_its_identity() {
        for (text, identity) in [
            (
                r#"{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"},"spec":[]}"#,
                Some(("n/a", Some("u"), 7)),
            ),
            (r#"{"spec":7,"metadata":{"labels":[],"name":"a","namespace":""}}"#, Some(("a", None, 0))),
            (r#"{"metadata":[],"spec":{}}"#, None),
            (r#"{"spec":7}"#, None),
            ("7", None),
        ] {
            assert!(object::<Pod>(text, &Transform::default()).is_err(), "{text}");
            let found = Identity::of(text);
            let found = found.as_ref().map(|found| (found.key(), found.uid.as_deref(), found.revision));
            assert_eq!(found, identity.map(|(key, uid, revision)| (key.to_owned(), uid, revision)), "{text}");
        }
    }
}
