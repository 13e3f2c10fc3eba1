//! The names of the types that expressions make objects of: `Object.spec` is the type of the field `spec`.
//!
//! Source: `CheckTypeNamesMatchFieldPathNames` of `k8s.io/apiserver/pkg/cel/mutation/dynamic`.

use expressions::{List, Map, Object, Value as Cel};

/// Types that are told of at most.
const WRONG_MAX: usize = 20;

/// Objects of other types than the fields have that they are in.
#[derive(Debug, thiserror::Error)]
#[error("type mismatch: {}", .0.join("\n"))]
pub(super) struct WrongNames(Vec<String>);

/// Checks that objects below an object have the types of the fields that they are in. Lists and maps on the way do not
/// count.
///
/// # Errors
/// What is of another type, in upstream's words.
pub(super) fn check(made: &Cel<'_>) -> Result<(), WrongNames> {
    let Cel::Object(Object::Shared(root)) = made else { return Ok(()) };
    let mut wrong = Vec::new();
    below(made, &root.name, &mut wrong);
    if wrong.is_empty() { Ok(()) } else { Err(WrongNames(wrong)) }
}

fn below(value: &Cel<'_>, expected: &str, wrong: &mut Vec<String>) {
    if wrong.len() >= WRONG_MAX {
        return;
    }
    match value {
        Cel::Object(Object::Shared(made)) => {
            if *made.name != *expected {
                wrong.push(format!(
                    "unexpected type name {:?}, expected {expected:?}, which matches field name path from root Object \
                     type",
                    &*made.name
                ));
            }
            for (field, value) in &made.fields {
                below(value, &format!("{expected}.{field}"), wrong);
            }
        }
        // What comes of an object has no such types.
        Cel::List(list @ (List::Shared(_) | List::Kept { .. })) => {
            list.iter().for_each(|element| below(&element, expected, wrong));
        }
        Cel::Map(Map::Shared(entries)) => {
            entries.by_key.values().for_each(|value| below(value, expected, wrong));
        }
        _ => {}
    }
}
