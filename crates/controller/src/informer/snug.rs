//! Decoding into lists that take no more room than they need.
//!
//! JSON does not say how long a list is, so a vector of items below 1 KiB is given room for four of them as soon as there
//! is one. Most lists of a Pod have one item, of hundreds of bytes: half of the memory of a Pod would be such room. Here
//! each list says that it has one item; vectors begin with room for it, and grow as ever if there are more.

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor,
};

/// Decodes JSON.
///
/// # Errors
/// Those of `serde_json`.
pub(super) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Snug(&mut json))?;
    json.end()?;
    Ok(value)
}

/// A deserializer, or what it hands on, whose lists say that they have one item.
struct Snug<T>(T);

/// Methods of a deserializer that hand a visitor on.
macro_rules! deserialize {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($argument,)* Snug(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Snug<D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any() deserialize_bool()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64() deserialize_char() deserialize_str() deserialize_string()
        deserialize_bytes() deserialize_byte_buf() deserialize_option() deserialize_unit()
        deserialize_unit_struct(name: &'static str)
        deserialize_newtype_struct(name: &'static str)
        deserialize_seq() deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_map()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
        deserialize_identifier() deserialize_ignored_any()
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Methods of a visitor that take a value.
macro_rules! visit {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Snug<V> {
    type Value = V::Value;

    visit! {
        visit_bool(bool)
        visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128)
        visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128)
        visit_f32(f32) visit_f64(f64) visit_char(char)
        visit_str(&str) visit_borrowed_str(&'de str) visit_string(String)
        visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>)
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Snug(value))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Snug(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Snug(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Snug(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(variant)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Snug<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Snug(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint().or(Some(1))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Snug<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Snug(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Snug<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Snug(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Pod, Service};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

    #[test]
    fn lists_have_room_for_what_is_in_them() {
        let pod: Pod = decode(
            r#"{"metadata":{"finalizers":["a"],"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"u"}]},
                "spec":{"containers":[{"name":"a","volumeMounts":[{"name":"v","mountPath":"/"}]}],
                "volumes":[{"name":"v","projected":{"sources":[{"configMap":{"items":[{"key":"a","path":"b"}]}}]}}]},
                "status":{"containerStatuses":[{"name":"a"}],"podIPs":[{"ip":"192.0.2.1"}]}}"#,
        )
        .expect("a Pod");
        let (spec, status) = (pod.spec.expect("a spec"), pod.status.expect("a status"));
        let container = spec.containers.first().expect("a container");
        let rooms = [
            pod.metadata.finalizers.map(|list| list.capacity()),
            pod.metadata.owner_references.map(|list| list.capacity()),
            Some(spec.containers.capacity()),
            container.volume_mounts.as_ref().map(Vec::capacity),
            status.container_statuses.map(|list| list.capacity()),
            status.pod_ips.map(|list| list.capacity()),
        ];
        assert_eq!(rooms, [Some(1); 6]);
    }

    fn check<T: DeserializeOwned + PartialEq + fmt::Debug>(text: &str) {
        let (snug, plain) = (decode::<T>(text), serde_json::from_str::<T>(text));
        let told = |error: serde_json::Error| error.to_string();
        assert_eq!(snug.map_err(told), plain.map_err(told), "{text}");
    }

    #[test]
    fn everything_else_is_as_ever() {
        for text in [
            "{}",
            r#"{"metadata":{"labels":{"a":"b"},"annotations":{}},"spec":{"containers":[],"hostUsers":null}}"#,
            r#"{"metadata":{"labels":{"a":null}}}"#,
            r#"{"spec":{"containers":[null]}}"#,
            r#"{"spec":{"containers":"none"}}"#,
            r#"{"spec":{"priority":1.5}}"#,
            r#"{"status":{"startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"A"},{"type":"B"},{"type":"C"}]}}"#,
            "{} {}",
            r#"{"spec":"#,
            "[]",
        ] {
            check::<Pod>(text);
        }
        check::<Service>(
            r#"{"spec":{"ports":[{"port":80,"targetPort":"http"},{"port":81,"targetPort":8081}]}}"#,
        );
        for text in [
            r#"{"default":{"a":[1,2.5,-3,18446744073709551615,null]},"enum":["a",{"b":[]}],"items":{"type":"string"}}"#,
            r#"{"items":[{"type":"string"}],"additionalProperties":false,"example":[[]]}"#,
        ] {
            check::<JSONSchemaProps>(text);
        }
    }
}
