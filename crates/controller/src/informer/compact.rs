//! Decoding into lists that take no more room than they need.
//!
//! JSON does not say how long a list is, so a vector of items below 1 KiB is given room for four of them as soon as there
//! is one. Most lists of a Pod have one item, of hundreds of bytes: half of the memory of a Pod would be such room. Here
//! each list says that it has one item; vectors begin with room for it, and grow as ever if there are more. What nobody reads
//! (`transform.rs`) is passed over.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, IntoDeserializer,
    MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::transform::Transform;

/// Decodes JSON, without what nobody reads.
///
/// # Errors
/// Those of `serde_json`.
pub(super) fn decode<T: DeserializeOwned>(
    text: &str,
    transform: Option<&Transform>,
) -> Result<T, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Compact { inner: &mut json, transform })?;
    json.end()?;
    Ok(value)
}

/// A deserializer, or what it hands on, whose lists say that they have one item; without what nobody reads.
struct Compact<'u, T> {
    inner: T,
    transform: Option<&'u Transform>,
}

/// The fields of an object.
struct Fields<'u, A> {
    inner: A,
    transform: Option<&'u Transform>,
    /// Of the field whose name was read last.
    of_field: Option<&'u Transform>,
}

/// Methods of a deserializer that hand a visitor on.
macro_rules! deserialize {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($argument,)* Compact { inner: visitor, transform: self.transform })
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Compact<'_, D> {
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
        self.inner.is_human_readable()
    }
}

/// Methods of a visitor that take a value.
macro_rules! visit {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Compact<'_, V> {
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
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Compact { inner: value, transform: self.transform })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Compact { inner: value, transform: self.transform })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(Compact { inner: items, transform: self.transform })
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Fields { inner: fields, transform: self.transform, of_field: None })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(variant)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Compact<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let Some(transform) = self.transform.filter(|transform| transform.chooses()) else {
            return self.inner.next_element_seed(Compact { inner: seed, transform: self.transform });
        };
        while let Some(item) = self.inner.next_element::<&RawValue>()? {
            if transform.keeps(item.get()) {
                let kept = seed.deserialize(Compact { inner: item, transform: self.transform });
                return kept.map(Some).map_err(A::Error::custom);
            }
        }
        Ok(None)
    }

    fn size_hint(&self) -> Option<usize> {
        // Of a list that is chosen from perhaps nothing is kept.
        let least = usize::from(!self.transform.is_some_and(Transform::chooses));
        self.inner.size_hint().or(Some(least))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let Some(transform) = self.transform else {
            return self.inner.next_key_seed(Compact { inner: seed, transform: None });
        };
        while let Some(name) = self.inner.next_key_seed(Name)? {
            self.of_field = transform.of(&name);
            if !self.of_field.is_some_and(Transform::is_all) {
                return seed.deserialize(name.into_deserializer()).map(Some);
            }
            self.inner.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(Compact { inner: seed, transform: self.of_field })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Compact<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Compact { inner: value, transform: self.transform })
    }
}

/// The name of a field.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Cow<'de, str>, D::Error> {
        name.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
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
            None,
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

    fn transform(paths: &[&'static str]) -> Transform {
        Transform::without(paths.iter().map(|path| ("", *path)))
    }

    fn check<T: DeserializeOwned + PartialEq + fmt::Debug>(text: &str) {
        let (compact, plain) = (decode::<T>(text, None), serde_json::from_str::<T>(text));
        let told = |error: serde_json::Error| error.to_string();
        let plain = plain.map_err(told);
        assert_eq!(compact.map_err(told).as_ref(), plain.as_ref(), "{text}");
        // Where something is left out that is not there, all is there.
        let some = transform(&["spec.nothing", "spec.containers.nothing", "nothing[a]"]);
        assert_eq!(decode::<T>(text, Some(&some)).map_err(told).as_ref(), plain.as_ref(), "{text}");
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

    fn check_transform(paths: &[&'static str], text: &str, expect: &str) {
        let found: Pod = decode(text, Some(&transform(paths))).expect(text);
        let expect: Pod = serde_json::from_str(expect).expect(expect);
        assert_eq!(found, expect, "{paths:?} of {text}");
    }

    #[test]
    fn what_nobody_reads_is_passed_over() {
        let text = r#"{"kind":"Pod","metadata":{"name":"a","annotations":{"env":"b"}},"spec":{"containers":[
            {"name":"a","env":[{"name":"A","value":"}]"}],"image":"i"},{"env":null,"name":"b"}],
            "volumes":[{"name":"v","emptyDir":{}},{"name":"w","secret":{"secretName":"s","items":[]}},null]},"status":{"phase":"Running"}}"#;
        let all = [
            "spec.containers.env",
            "spec.containers.name.none",
            "metadata.annotations",
            "spec.volumes[secret|csi]",
            "spec.volumes.secret.items",
            "status",
        ];
        check_transform(
            &all,
            text,
            r#"{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"i"},{"name":"b"}],
                "volumes":[{"name":"w","secret":{"secretName":"s"}}]}}"#,
        );
        // Only where it stands: names elsewhere are others.
        check_transform(
            &["env", "containers", "name", "secret"],
            text.replace(",null]", "]").as_str(),
            &text.replace(",null]", "]"),
        );
        let found: Pod =
            decode(r#"{"spec":{"containers":[],"volumes":[{"name":"a"}]}}"#, Some(&transform(&all))).unwrap();
        assert_eq!(found.spec.unwrap().volumes.unwrap().capacity(), 0);
    }

    #[test]
    fn what_is_wrong_is_told_wherever_it_is_kept() {
        let some = transform(&["spec.containers.env", "spec.volumes[secret]"]);
        let is_good = |text: &str| decode::<Pod>(text, Some(&some)).is_ok();
        assert!(is_good(r#"{"spec":{"containers":[{"name":"a","env":7}],"volumes":[7]}}"#));
        for text in [
            r#"{"spec":{"containers":[{"name":7}]}}"#,
            r#"{"spec":{"containers":[],"volumes":[{"name":7,"secret":{}}]}}"#,
            r#"{"spec":{"containers":[],"volumes":[{"name":]}}"#,
            r#"{"spec":{"containers":[{"env":[}]}}"#,
            r#"{"spec":{"containers":[]}} {}"#,
        ] {
            assert!(!is_good(text), "{text}");
        }
    }
}
