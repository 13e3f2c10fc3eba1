//! The target of a JSON pointer, at which an operation of a JSON patch is at work: an object or a list, and a key in it.

use serde_json::{Map, Value};

/// A field of an object or an index of a list, whether something is there or not.
pub(super) struct Target<'a> {
    container: Container<'a>,
    key: String,
}

enum Container<'a> {
    Object(&'a mut Map<String, Value>),
    List(&'a mut Vec<Value>),
}

/// The target that a path leads to; `None` if what it should be in is not there. What is before the first slash does not
/// count.
pub(super) fn find<'a>(target: &'a mut Value, path: &str) -> Option<Target<'a>> {
    let mut parts = path.split('/').skip(1).map(decoded);
    let mut key = parts.next()?;
    let mut at = target;
    for next in parts {
        at = match at {
            Value::Object(map) => map.get_mut(&key)?,
            Value::Array(list) => {
                let index = index(&key, list.len()).ok()?;
                list.get_mut(index)?
            }
            _ => return None,
        };
        key = next;
    }
    let container = match at {
        Value::Object(map) => Container::Object(map),
        Value::Array(list) => Container::List(list),
        _ => return None,
    };
    Some(Target { container, key })
}

fn decoded(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// How deeply a value is nested; 0 if it is no container.
pub(super) fn depth(value: &Value) -> usize {
    let below = |depth: Option<usize>| depth.unwrap_or_default().saturating_add(1);
    match value {
        Value::Array(items) => below(items.iter().map(depth).max()),
        Value::Object(members) => below(members.values().map(depth).max()),
        _ => 0,
    }
}

/// The reason why something cannot be done at a target.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    #[error("Unable to remove nonexistent key: {0}: missing value")]
    Missing(String),
    #[error("Unable to access invalid index: {0}: invalid index referenced")]
    Index(i64),
    #[error(transparent)]
    NoNumber(#[from] NoNumber),
    #[error("value was not a proper array index: '{key}': {0}", key = .0.text)]
    NoIndex(NoNumber),
}

/// A text that Go's `strconv.Atoi` does not read.
#[derive(Debug, thiserror::Error)]
#[error("strconv.Atoi: parsing {text:?}: {}", if *is_out_of_range { "value out of range" } else { "invalid syntax" })]
pub(super) struct NoNumber {
    text: String,
    is_out_of_range: bool,
}

impl Target<'_> {
    /// The last step to it.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// What is there; `None` for an object that lacks the field.
    pub(super) fn get(&self) -> Result<Option<&Value>, TargetError> {
        match &self.container {
            Container::Object(map) => Ok(map.get(&self.key)),
            Container::List(list) => index(&self.key, list.len()).map(|index| list.get(index)),
        }
    }

    /// Puts a value there instead of what there is.
    pub(super) fn set(self, value: Value) -> Result<(), TargetError> {
        match self.container {
            Container::Object(map) => {
                map.insert(self.key, value);
            }
            Container::List(list) => {
                let index = index(&self.key, list.len())?;
                if let Some(old) = list.get_mut(index) {
                    *old = value;
                }
            }
        }
        Ok(())
    }

    /// Puts a value there; in a list before what there is.
    pub(super) fn add(self, value: Value) -> Result<(), TargetError> {
        let Container::List(list) = self.container else { return self.set(value) };
        if self.key == "-" {
            list.push(value);
            return Ok(());
        }
        number(&self.key).map_err(TargetError::NoIndex)?;
        let index = index(&self.key, list.len().saturating_add(1))?;
        list.insert(index, value);
        Ok(())
    }

    /// Takes away what is there.
    pub(super) fn remove(self) -> Result<Value, TargetError> {
        match self.container {
            Container::Object(map) => map.remove(&self.key).ok_or(TargetError::Missing(self.key)),
            Container::List(list) => {
                let index = index(&self.key, list.len())?;
                Ok(list.remove(index))
            }
        }
    }
}

/// An index of a list of this length; below zero it is counted from the end.
fn index(key: &str, length: usize) -> Result<usize, TargetError> {
    let wanted = number(key)?;
    let index = match usize::try_from(wanted) {
        Ok(index) => Some(index),
        Err(_) => usize::try_from(wanted.unsigned_abs()).ok().and_then(|back| length.checked_sub(back)),
    };
    index.filter(|index| *index < length).ok_or(TargetError::Index(wanted))
}

/// A number as Go's `strconv.Atoi` reads it.
fn number(key: &str) -> Result<i64, NoNumber> {
    key.parse().map_err(|failure: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let is_out_of_range = matches!(failure.kind(), PosOverflow | NegOverflow);
        NoNumber { text: key.to_owned(), is_out_of_range }
    })
}
