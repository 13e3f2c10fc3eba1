//! One step of a field path: a field's name, the keys or the value that identify an element of a list, or an index.
//!
//! Elements order like `sigs.k8s.io/structured-merge-diff` orders them: names, then keys, then values, then
//! indexes; numbers by size, before text, before booleans. The text forms are those of `FieldsV1`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element<'a> {
    /// The field or the map entry of this name.
    Field(Cow<'a, str>),
    /// The list element whose key fields have these values, in order of name.
    Key(Vec<(Cow<'a, str>, Scalar<'a>)>),
    /// The list element that is this value.
    Value(Scalar<'a>),
    /// The list element at this place.
    Index(i64),
}

/// A value that can identify an element.
#[derive(Clone, Debug)]
pub enum Scalar<'a> {
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(Cow<'a, str>),
    /// A boolean.
    Bool(bool),
    /// Anything else, as JSON.
    Other(String),
    /// Null.
    Null,
}

/// A path, outermost element first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath<'a>(pub Vec<Element<'a>>);

/// A key of `FieldsV1` that is no element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElementError {
    /// Too short, or without its colon.
    #[error("{0:?} is no path element")]
    Malformed(String),
    /// Its content is not what its type says.
    #[error("{0:?} has no valid content")]
    Content(String),
}

impl<'a> Element<'a> {
    /// A named field.
    pub fn field(name: &'a str) -> Self {
        Self::Field(Cow::Borrowed(name))
    }

    /// Reads a key of `FieldsV1`; `None` for types that only later versions know.
    ///
    /// # Errors
    /// If the key has no type, or its content cannot be read.
    pub fn parse(key: &'a str) -> Result<Option<Self>, ElementError> {
        let Some((kind, content)) = key.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(ElementError::Malformed(key.to_owned()));
        };
        let bad = || ElementError::Content(key.to_owned());
        Ok(Some(match kind {
            "f" => Self::field(content),
            "v" => Self::Value(Scalar::parse(content).ok_or_else(bad)?),
            "k" => {
                let fields: serde_json::Map<String, Value> =
                    serde_json::from_str(content).map_err(|_| bad())?;
                let scalars = fields.into_iter().map(|(name, value)| (name.into(), Scalar::owned(value)));
                Self::Key(scalars.collect())
            }
            "i" => Self::Index(content.parse().map_err(|_| bad())?),
            _ => return Ok(None),
        }))
    }

    /// The key of `FieldsV1`.
    pub fn to_key(&self) -> String {
        match self {
            // Nearly all keys are names, and every write makes many.
            Self::Field(name) => ["f:", name].concat(),
            Self::Value(value) => format!("v:{}", value.to_json()),
            Self::Index(index) => format!("i:{index}"),
            Self::Key(fields) => {
                let mut key = String::from("k:{");
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        key.push(',');
                    }
                    key.push_str(&Scalar::Text(Cow::Borrowed(name)).to_json());
                    key.push(':');
                    key.push_str(&value.to_json());
                }
                key.push('}');
                key
            }
        }
    }
}

impl<'a> Scalar<'a> {
    /// The scalar of a value.
    pub fn of(value: &'a Value) -> Self {
        match value {
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            other => Self::owned(other.clone()),
        }
    }

    fn owned(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(flag),
            Value::String(text) => Self::Text(Cow::Owned(text)),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => Self::Int(number),
                (None, Some(number)) => Self::Float(number),
                (None, None) => Self::Other(number.to_string()),
            },
            other => Self::Other(other.to_string()),
        }
    }

    /// Most values are short texts without escapes, which can be borrowed.
    fn parse(json: &'a str) -> Option<Self> {
        let plain = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match plain.filter(|text| !text.contains(['"', '\\'])) {
            Some(text) => Some(Self::Text(Cow::Borrowed(text))),
            None => serde_json::from_str(json).ok().map(Self::owned),
        }
    }

    fn to_json(&self) -> String {
        match self {
            Self::Int(number) => number.to_string(),
            Self::Float(number) => Value::from(*number).to_string(),
            Self::Text(text) => serde_json::to_string(text).unwrap_or_default(),
            Self::Bool(flag) => flag.to_string(),
            Self::Other(json) => json.clone(),
            Self::Null => "null".to_owned(),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Int(_) | Self::Float(_) => 0,
            Self::Text(_) => 1,
            Self::Bool(_) => 2,
            Self::Other(_) => 3,
            Self::Null => 4,
        }
    }
}

impl Ord for Scalar<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        #[expect(clippy::cast_precision_loss, reason = "as upstream compares them")]
        let float = |number: i64| number as f64;
        match (self, other) {
            (Self::Int(left), Self::Int(right)) => left.cmp(right),
            (Self::Float(left), Self::Float(right)) => left.total_cmp(right),
            (Self::Int(left), Self::Float(right)) => float(*left).total_cmp(right),
            (Self::Float(left), Self::Int(right)) => left.total_cmp(&float(*right)),
            (Self::Text(left), Self::Text(right)) => left.cmp(right),
            (Self::Bool(left), Self::Bool(right)) => left.cmp(right),
            (Self::Other(left), Self::Other(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Scalar<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar<'_> {}

impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(value) => write!(f, "[={}]", value.to_json()),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", value.to_json())?;
                }
                f.write_str("]")
            }
        }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, shown: &str) {
        let element = Element::parse(key).unwrap().unwrap();
        assert_eq!(element.to_key(), key);
        assert_eq!(element.to_string(), shown);
    }

    #[test]
    fn every_type_has_a_key_and_a_text() {
        check("f:metadata", ".metadata");
        check("f:app.kubernetes.io/name", ".app.kubernetes.io/name");
        check(r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"[containerPort=80,protocol="TCP"]"#);
        check(r#"v:"foregroundDeletion""#, r#"[="foregroundDeletion"]"#);
        check(r#"v:"a\"b""#, r#"[="a\"b"]"#);
        check("v:1", "[=1]");
        check("i:3", "[3]");
    }

    #[test]
    fn keys_that_cannot_be_read_are_refused_and_unknown_types_ignored() {
        assert!(Element::parse("f").is_err());
        assert!(Element::parse("metadata").is_err());
        assert!(Element::parse("k:[]").is_err());
        assert!(Element::parse("i:x").is_err());
        assert_eq!(Element::parse("z:x"), Ok(None));
    }

    #[test]
    fn elements_order_by_type_and_numbers_by_size() {
        let keys = [
            "f:a",
            "f:b",
            r#"k:{"port":80}"#,
            r#"k:{"port":443}"#,
            r#"k:{"port":"80"}"#,
            "v:9",
            "v:10",
            r#"v:"a""#,
            "v:true",
            "i:0",
        ];
        let elements: Vec<_> = keys.iter().map(|key| Element::parse(key).unwrap().unwrap()).collect();
        assert!(elements.is_sorted(), "{elements:?}");
    }
}
