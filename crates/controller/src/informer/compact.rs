//! Decoding into lists that take no more room than they need.
//!
//! JSON does not say how long a list is, so a vector of items below 1 KiB is given room for four of them as soon as there
//! is one. Most lists of a Pod have one item, of hundreds of bytes: half of the memory of a Pod would be such room. Here
//! each list says that it has one item; vectors begin with room for it, and grow as ever if there are more. What nobody reads
//! (`transform.rs`) is passed over.
//!
//! Hundreds of types are decoded: what is written here for a visitor is compiled for each of them, so it is short.

use std::borrow::Cow;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Error;

use super::json::{Reader, Token};
use super::transform::Transform;

/// Decodes JSON, without what nobody reads.
///
/// # Errors
/// What is no JSON, and what the type does not take.
pub(super) fn decode<T: DeserializeOwned>(text: &str, transform: Option<&Transform>) -> Result<T, Error> {
    let mut reader = Reader::new(text);
    let value = T::deserialize(Compact { reader: &mut reader, transform });
    let value = value.map_err(|error| reader.placed(error))?;
    reader.end()?;
    Ok(value)
}

/// The value that begins where the reader is, without what nobody reads.
struct Compact<'r, 'de> {
    reader: &'r mut Reader<'de>,
    transform: Option<&'r Transform>,
}

/// The items of a list.
struct Items<'r, 'de> {
    reader: &'r mut Reader<'de>,
    transform: Option<&'r Transform>,
    is_first: bool,
}

/// The fields of an object.
struct Fields<'r, 'de> {
    reader: &'r mut Reader<'de>,
    transform: Option<&'r Transform>,
    /// The name that was read last.
    name: Cow<'de, str>,
    /// Of the field of that name.
    of_field: Option<&'r Transform>,
    is_first: bool,
}

impl<'de> Compact<'_, 'de> {
    // These two are never inlined, nor is `next_value_seed`: the types of a kind lie in each other, most of them in one place
    // only, and would all be one function.
    #[inline(never)]
    fn list<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let depth = self.reader.open()?;
        let Self { reader, transform } = self;
        let value = visitor.visit_seq(Items { reader: &mut *reader, transform, is_first: true });
        reader.leave(depth, b']');
        value
    }

    #[inline(never)]
    fn object<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let depth = self.reader.open()?;
        let Self { reader, transform } = self;
        let name = Cow::default();
        let fields = Fields { reader: &mut *reader, transform, name, of_field: None, is_first: true };
        let value = visitor.visit_map(fields);
        reader.leave(depth, b'}');
        value
    }

    fn number<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = self.reader.number()?;
        match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => visitor.visit_u64(number),
            (None, Some(number)) => visitor.visit_i64(number),
            (None, None) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
        }
    }

    fn string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.reader.string()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }
}

/// Methods that take a value of one kind and no other.
macro_rules! deserialize {
    ($($token:ident: $with:ident => $($method:ident($($argument:ident: $type:ty),*))*;)*) => {$($(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, Error> {
            match self.reader.token()? {
                Token::$token => self.$with(visitor),
                _ => Err(self.reader.unexpected(&visitor)),
            }
        }
    )*)*};
}

impl<'de> Deserializer<'de> for Compact<'_, 'de> {
    type Error = Error;

    deserialize! {
        Number: number => deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_u8()
            deserialize_u16() deserialize_u32() deserialize_u64() deserialize_f32() deserialize_f64();
        String: string => deserialize_str() deserialize_string() deserialize_identifier();
        List: list => deserialize_seq();
        Object: object => deserialize_map()
            deserialize_struct(_name: &'static str, _fields: &'static [&'static str]);
    }

    forward_to_deserialize_any! {
        bool i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.reader.token()? {
            Token::Null => self.reader.word("null").and_then(|()| visitor.visit_unit()),
            Token::True => self.reader.word("true").and_then(|()| visitor.visit_bool(true)),
            Token::False => self.reader.word("false").and_then(|()| visitor.visit_bool(false)),
            Token::Number => self.number(visitor),
            Token::String => self.string(visitor),
            Token::List => self.list(visitor),
            Token::Object => self.object(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.reader.token()? {
            Token::Null => self.reader.word("null").and_then(|()| visitor.visit_none()),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.reader.token()?;
        serde_json::Deserializer::from_str(self.reader.skip()?).deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.reader.token()?;
        self.reader.skip()?;
        visitor.visit_unit()
    }
}

impl Items<'_, '_> {
    /// Whether the reader stands before an item that is kept.
    fn find(&mut self) -> Result<bool, Error> {
        let choosing = self.transform.filter(|transform| transform.chooses());
        while self.reader.has_more(b']', std::mem::take(&mut self.is_first))? {
            let Some(transform) = choosing else { return Ok(true) };
            self.reader.token()?;
            let item = self.reader.skip()?;
            if transform.keeps(item) {
                self.reader.back(item);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if !self.find()? {
            return Ok(None);
        }
        seed.deserialize(Compact { reader: self.reader, transform: self.transform }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        // Of a list that is chosen from perhaps nothing is kept.
        Some(usize::from(!self.transform.is_some_and(Transform::chooses)))
    }
}

impl Fields<'_, '_> {
    /// Whether there is one more field that is kept, whose name is read then.
    fn find(&mut self) -> Result<bool, Error> {
        while self.reader.has_more(b'}', std::mem::take(&mut self.is_first))? {
            self.name = self.reader.name()?;
            self.of_field = self.transform.and_then(|transform| transform.of(&self.name));
            if !self.of_field.is_some_and(Transform::is_all) {
                return Ok(true);
            }
            self.reader.skip()?;
        }
        Ok(false)
    }
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if !self.find()? {
            return Ok(None);
        }
        seed.deserialize(StrDeserializer::new(&self.name)).map(Some)
    }

    #[inline(never)]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(Compact { reader: self.reader, transform: self.of_field })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

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

    /// What is said of a value, without the place.
    fn cause(error: &Error) -> String {
        let said = error.to_string();
        said.rsplit_once(" at line ").map_or(said.clone(), |(cause, _)| cause.to_owned())
    }

    /// What is no JSON is refused as by `serde_json`, if not in the same words.
    fn check<T: DeserializeOwned + PartialEq + fmt::Debug>(text: &str) {
        let plain = serde_json::from_str::<T>(text);
        // Where something is left out that is not there, all is there.
        let some = transform(&["spec.nothing", "spec.containers.nothing", "nothing[a]"]);
        for transform in [None, Some(&some)] {
            match (decode::<T>(text, transform), &plain) {
                (Ok(compact), Ok(plain)) => assert_eq!(compact, *plain, "{text}"),
                (Err(compact), Err(plain)) if plain.is_data() => {
                    assert_eq!(cause(&compact), cause(plain), "{text}")
                }
                (Err(compact), Err(_)) => assert!(compact.line() > 0, "{compact}: {text}"),
                (compact, plain) => panic!("{compact:?}, and not {plain:?}: {text}"),
            }
        }
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
        // Their visitors take two items and do not ask for more.
        for text in [
            "[[1,2],[3,4]]",
            "[[1,2,3],[4,5]]",
            "[[1,2,3]]",
            "[[1,[2,3]]]",
            "[[1,2]",
            "[[1,2",
            "[[1,2}]",
            "[[1,2],[3]]",
            "[[1,2]]]",
        ] {
            check::<Vec<(u8, u8)>>(text);
        }
    }

    /// Each byte of a good text becomes another, is missing, or is the last: upstream's clients read what is good, and nothing else.
    #[test]
    fn a_broken_text_is_refused_wherever_it_is_broken() {
        let good = r#"{"metadata":{"name":"a\"é\u00e9\ud83d\ude00","labels":{"x":"y"},"generation":-12,"finalizers":["f", "g"]},
            "spec" : {"containers":[{"name":"c","tty":true,"ports":[{"containerPort":8080}]}],"hostPID":false,"hostIPC":null,
            "terminationGracePeriodSeconds":0,"overhead":{}},"more":[1.5e3,{"a":[]}]}"#;
        check::<Pod>(good);
        let others = b"\"\\{}[],:0-.n \x01";
        for at in 0..good.len() {
            let (before, after) = good.as_bytes().split_at(at);
            let changed = others.iter().map(|other| [before, &[*other], &after[1..]].concat());
            let broken = changed.chain([before.to_vec(), [before, &after[1..]].concat()]);
            for text in broken.filter_map(|bytes| String::from_utf8(bytes).ok()) {
                check::<Pod>(&text);
            }
        }
    }

    #[test]
    fn numbers_strings_and_depths_are_those_of_serde_json() {
        use serde_json::Value;
        for number in
            "0 -0 00 01 1. .5 1.5 -1 +1 1e2 1E+2 1e 9007199254740993 18446744073709551615 18446744073709551616 -9223372036854775808 \
             -9223372036854775809 1e400 - -a 0x1 NaN Infinity".split(' ')
        {
            check::<Value>(number);
            check::<Vec<Option<i32>>>(&format!("[{number}]"));
            check::<std::collections::BTreeMap<String, f64>>(&format!("{{\"a\":{number}}}"));
        }
        for string in [
            r#""""#,
            r#""\\""#,
            r#""\"#,
            r#""\\\""#,
            r#""\x""#,
            r#""\u12""#,
            r#""\ud800""#,
            "\"\t\"",
            "\"é\"",
            "'a'",
            "\"",
        ] {
            check::<Value>(string);
            check::<Option<String>>(string);
            check::<Value>(&format!("{{{string}:1}}"));
        }
        for depth in [126, 127, 128, 10_000] {
            check::<Value>(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
            check::<Value>(&"{\"a\":".repeat(depth));
        }
        for text in [
            "",
            " ",
            " null ",
            "nul",
            "nulll",
            "true",
            "tru",
            "[1,]",
            "[,]",
            "[1 2]",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\" 1}",
            "[]x",
            "\u{feff}{}",
        ] {
            check::<Value>(text);
            check::<Option<bool>>(text);
        }
    }

    #[test]
    fn variants_are_read_as_ever() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        enum Either {
            Neither,
            This(Vec<u8>),
            That { a: u8 },
        }
        for text in [
            r#" "Neither""#,
            r#"{"This":[1]}"#,
            r#"{"That":{"a":1}}"#,
            r#""This""#,
            r#""Other""#,
            "7",
            "{}",
            r#"["Neither"]"#,
        ] {
            check::<Either>(text);
            check::<Vec<Option<Either>>>(&format!("[{text}, null]"));
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
