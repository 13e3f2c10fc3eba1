//! What Go calls the types of fields, where it is more than a description of the API says: the names of types that are
//! texts or lists or maps, and of the structs that are embedded.
//!
//! They are seen in errors only, so the rows stay text until somebody asks. A row is a message, with a `+` the structs
//! embedded in it, from the outside in, and the fields whose types have names.
//! Source: the types of `k8s.io/api` and of `k8s.io/apimachinery/pkg/apis/meta/v1`.

use crate::rows::{Field, Message};

const ROWS: &str = include_str!("names.txt");

/// The words of a message's row.
fn row(message: &Message) -> impl Iterator<Item = &'static str> {
    let mut parts = message.name.rsplitn(4, '.');
    let [name, version, group] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let head = format!("{group}/{version} {name} ");
    ROWS.lines().find_map(|line| line.strip_prefix(&head)).unwrap_or_default().split(' ')
}

/// What Go calls the type of a field, or of what is so many lists and maps within it; `None` if that has no name.
pub(crate) fn name_of(message: &Message, field: &str, levels: usize) -> Option<&'static str> {
    let whole = row(message).find_map(|word| word.strip_prefix(field)?.strip_prefix('='))?;
    (0..levels).try_fold(whole, |name, _| match name.strip_prefix("[]") {
        Some(item) => Some(item),
        None => name.strip_prefix("map[")?.split_once(']').map(|(_, value)| value),
    })
}

/// The embedded structs that lead to a field, from the outside in.
pub(crate) fn embedded(message: &Message, field: &Field) -> impl Iterator<Item = &'static str> {
    row(message).filter_map(|word| word.strip_prefix('+')).take(field.via.len())
}

#[cfg(test)]
mod tests;
