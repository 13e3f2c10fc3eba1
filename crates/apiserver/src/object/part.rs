//! Part of an object's JSON: only what some pointers lead to is built, all that lies beside is passed over.
//!
//! Most of who looks at an object that is only bytes wants a field or two of it, and a tree of all of a Pod costs ten
//! times as much.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The values that `pointers` (RFC 6901, through objects, without escapes) lead to in `json`, each where it is there;
/// null if `json` is no object.
pub fn part(json: &[u8], pointers: &[&str]) -> Value {
    let paths: Vec<&str> = pointers.iter().map(|pointer| pointer.trim_start_matches('/')).collect();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Paths(&paths).deserialize(&mut deserializer).unwrap_or_default()
}

/// Which ways lead on from a place.
struct Paths<'a>(&'a [&'a str]);

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl Paths<'_> {
    /// The ways that lead on from `key`: an empty one ends there.
    fn below(&self, key: &str) -> Vec<&str> {
        let rests = self.0.iter().filter_map(|path| path.strip_prefix(key));
        rests.filter_map(|rest| if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }).collect()
    }
}

impl<'de> DeserializeSeed<'de> for Paths<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// What is no object leads nowhere.
impl<'de> Visitor<'de> for Paths<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        while let Some(Key(key)) = map.next_key()? {
            let below = self.below(&key);
            if below.is_empty() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value =
                if below.contains(&"") { map.next_value()? } else { map.next_value_seed(Paths(&below))? };
            found.insert(key.into_owned(), value);
        }
        Ok(Value::Object(found))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"metadata":{"name":"a","labels":{"name":"b"}},"spec":{"nodeName":"n","nodeNames":[1],
        "containers":[{"nodeName":"c"}],"hostNetwork":true},"status":null,"x":["y",{"z":1.5}]}"#;

    fn check(pointers: &[&str], expect: &str) {
        assert_eq!(part(POD.as_bytes(), pointers).to_string(), expect, "{pointers:?}");
        let whole: Value = serde_json::from_str(POD).unwrap();
        let some = part(POD.as_bytes(), pointers);
        for pointer in pointers {
            let text = |value: &Value| value.pointer(pointer).filter(|found| !found.is_null()).cloned();
            assert_eq!(text(&some), text(&whole), "{pointer}");
        }
    }

    #[test]
    fn only_what_is_asked_for_is_there_and_it_is_what_the_whole_has() {
        check(&[], "{}");
        check(&["/spec/nodeName"], r#"{"spec":{"nodeName":"n"}}"#);
        check(
            &["/metadata/labels", "/spec/hostNetwork"],
            r#"{"metadata":{"labels":{"name":"b"}},"spec":{"hostNetwork":true}}"#,
        );
        check(&["/metadata", "/metadata/name"], r#"{"metadata":{"labels":{"name":"b"},"name":"a"}}"#);
    }

    #[test]
    fn what_is_no_object_leads_nowhere() {
        check(
            &["/status/phase", "/spec/nodeName/x", "/spec/none", "/x/z"],
            r#"{"spec":{"nodeName":null},"status":null,"x":null}"#,
        );
        assert_eq!(part(b"[1]", &["/a"]), Value::Null);
        assert_eq!(part(b"{", &["/a"]), Value::Null);
    }
}
