//! Texts to values without a schema: JSON and YAML, bounded in depth and in the memory that the value takes.
//!
//! What a body claims to be is read without reading the rest. Nothing is dropped: nulls stay, and of keys that come
//! twice the last one counts, with a warning.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::walk::budget::Allowance;
use crate::walk::decode::{DecodeError, Decoded, FieldValidation, go_float, in_words_of_go, untyped};
use crate::walk::stack::with_stack;
use crate::walk::syntax;

/// What all aliases of a YAML document together may expand to, in parser events; a document that multiplies itself is
/// refused early.
const YAML_ALIAS_EVENTS_MAX: usize = 10_000;
/// How deep YAML may nest: half of what JSON may, because its parser needs far more of the stack for a level.
const YAML_DEPTH_MAX: usize = 64;
/// How many values YAML may have: its parser takes many times as long for each as JSON's.
const YAML_NODES_MAX: usize = 100_000;
/// What anchors may hold for later.
const YAML_ANCHOR_BYTES_MAX: usize = 1024 * 1024;
/// How much of a parser's complaint is shown.
const COMPLAINT_BYTES_MAX: usize = 200;

/// Reads JSON; with warnings about duplicate keys.
///
/// # Errors
/// [`DecodeError::Syntax`] with Go's complaint, [`DecodeError::TooLarge`], and when strict [`DecodeError::Strict`].
pub fn json(bytes: &[u8], allowance: Allowance, validation: FieldValidation) -> Result<Decoded, DecodeError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let decoded = untyped(&mut deserializer, bytes.len(), allowance, validation);
    let decoded = match (decoded, deserializer.end()) {
        (Ok(_), Err(failure)) => Err(DecodeError::Syntax(failure.to_string())),
        (decoded, _) => decoded,
    };
    decoded.map_err(|failure| in_words_of_go(failure, bytes))
}

/// Reads the first document of a YAML text; with warnings about duplicate keys.
///
/// # Errors
/// As [`json`], with the complaint of the parser.
pub fn yaml(bytes: &[u8], allowance: Allowance, validation: FieldValidation) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| DecodeError::Syntax("yaml: control characters are not allowed".to_owned()))?;
    let text = first_document(text);
    let mut outcome = Err(DecodeError::Syntax("yaml: no document".to_owned()));
    let read = with_stack(|| {
        serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |deserializer| {
            outcome = untyped(deserializer, text.len(), allowance, validation);
            Ok(())
        })
    });
    match (outcome, read) {
        (Err(DecodeError::Syntax(complaint)), _) => Err(DecodeError::Syntax(first_line(&complaint))),
        (Ok(_), Err(failure)) => Err(DecodeError::Syntax(first_line(&failure.to_string()))),
        (outcome, _) => outcome.map(|decoded| Decoded { value: as_json(decoded.value), ..decoded }),
    }
}

/// A text up to where its second document begins: Go's parser does not look further.
fn first_document(text: &str) -> &str {
    let (mut begins, mut is_begun) = (0, false);
    for line in text.split_inclusive('\n') {
        let (is_end, rest) = match (line.strip_prefix("---"), line.strip_prefix("...")) {
            (Some(rest), _) if rest.is_empty() || rest.starts_with(char::is_whitespace) => (true, rest),
            (_, Some(rest)) if rest.trim().is_empty() => (true, rest),
            _ => (false, line),
        };
        if is_end && is_begun {
            return text.get(..begins).unwrap_or(text);
        }
        is_begun |= !rest.trim_start().is_empty() && !rest.trim_start().starts_with(['#', '%']);
        begins += line.len();
    }
    text
}

/// A value as Go makes JSON of it, which knows whole numbers by their having no fraction.
fn as_json(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => go_float(float, number),
            None => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(as_json).collect(),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, value)| (name, as_json(value))).collect())
        }
        other => other,
    }
}

fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: YAML_DEPTH_MAX,
            max_nodes: YAML_NODES_MAX,
            max_recorded_anchor_bytes: YAML_ANCHOR_BYTES_MAX,
            max_recorded_anchor_events: YAML_ALIAS_EVENTS_MAX,
        },
        // `0644` is what it looks like, as for Go's parser, which reads YAML 1.1.
        legacy_octal_numbers: true,
        // The walk itself warns of them.
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: YAML_ALIAS_EVENTS_MAX },
    }
}

fn first_line(complaint: &str) -> String {
    let line = complaint.lines().next().unwrap_or_default();
    let mut end = line.len().min(COMPLAINT_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    let line = line.get(..end).unwrap_or_default();
    if line.starts_with("yaml: ") { line.to_owned() } else { format!("yaml: {line}") }
}

/// The kind and version that a body claims; empty where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeMeta {
    /// Group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

impl TypeMeta {
    /// Reads it off JSON.
    ///
    /// # Errors
    /// Go's complaint, if the text is no JSON object or claims to be something that is no text.
    pub fn of_json(bytes: &[u8]) -> Result<Self, DecodeError> {
        if let Some(complaint) = syntax::complaint(bytes) {
            return Err(DecodeError::Syntax(complaint.to_string()));
        }
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let claims = deserializer.deserialize_any(Claims).map_err(|failure| match failure.classify() {
            serde_json::error::Category::Data => {
                let found = go_kind(bytes.trim_ascii_start().first().copied().unwrap_or_default());
                DecodeError::Type(format!(
                    "json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \
                     \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
                ))
            }
            _ => DecodeError::Syntax(failure.to_string()),
        })?;
        let text = |name: &str, raw: Option<&RawValue>| match raw.map(RawValue::get) {
            None | Some("null") => Ok(String::new()),
            Some(json) => serde_json::from_str(json).map_err(|_| {
                let found = go_kind(json.bytes().next().unwrap_or_default());
                let why =
                    format!("json: cannot unmarshal {found} into Go struct field .{name} of type string");
                DecodeError::Type(why)
            }),
        };
        Ok(Self { api_version: text("apiVersion", claims.0)?, kind: text("kind", claims.1)? })
    }

    /// Reads it off a value; what is no text counts as nothing.
    pub fn of_value(value: &Value) -> Self {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { api_version: text("apiVersion"), kind: text("kind") }
    }
}

fn go_kind(first: u8) -> &'static str {
    match first {
        b'{' => "object",
        b'[' => "array",
        b'"' => "string",
        b't' | b'f' => "bool",
        _ => "number",
    }
}

/// The raw values of `apiVersion` and `kind`; of those that come twice, the last.
struct Claims;

type Claimed<'de> = (Option<&'de RawValue>, Option<&'de RawValue>);

impl<'de> Visitor<'de> for Claims {
    type Value = Claimed<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Claimed<'de>, E> {
        Ok((None, None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Claimed<'de>, A::Error> {
        let mut claimed = (None, None);
        while let Some(name) = entries.next_key::<Cow<'de, str>>()? {
            match &*name {
                "apiVersion" => claimed.0 = Some(entries.next_value()?),
                "kind" => claimed.1 = Some(entries.next_value()?),
                _ => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(claimed)
    }
}

#[cfg(test)]
mod tests;
