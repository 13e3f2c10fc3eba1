//! The difference, removed, changed and added parts, between two values of a type.
//!
//! A field that Go writes even when it is not set counts as there, so that ownership is what upstream's would be.
//! Source: `typed.Compare` of `sigs.k8s.io/structured-merge-diff`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::Element;
use super::set::Set;
use super::typed::{Associative, Atom, Typed, implied};

/// Three sets; no path is in more than one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison<'a> {
    /// Only on the left.
    pub(super) removed: Set<'a>,
    /// On both sides, with different values.
    pub(super) modified: Set<'a>,
    /// Only on the right.
    pub(super) added: Set<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Removed,
    Modified,
    Added,
}

impl<'a> Comparison<'a> {
    /// Whether the values are the same.
    pub(super) fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Takes these paths and all below them out.
    pub(super) fn exclude(&mut self, trees: &Set<'_>) {
        for set in [&mut self.removed, &mut self.modified, &mut self.added] {
            set.subtract_trees(trees);
        }
    }

    fn attach(&mut self, element: Element<'a>, (change, below): (Option<Change>, Self)) {
        if change.is_none() && below.is_same() {
            return;
        }
        self.removed.attach(element.clone(), change == Some(Change::Removed), below.removed);
        self.modified.attach(element.clone(), change == Some(Change::Modified), below.modified);
        self.added.attach(element, change == Some(Change::Added), below.added);
    }
}

type Side<'a> = Option<&'a Value>;
type Outcome<'a> = (Option<Change>, Comparison<'a>);

/// Compares two values of a type.
///
/// `skips` says which paths of named fields are not looked at; it is asked for fields of structs only.
pub(super) fn compare<'a>(
    typed: Typed<'a>,
    left: &'a Value,
    right: &'a Value,
    skips: &dyn Fn(&[&str], &str) -> bool,
) -> Comparison<'a> {
    Walk { skips, path: Vec::new() }.value(typed, Some(left), Some(right)).1
}

struct Walk<'a, 'f> {
    skips: &'f dyn Fn(&[&str], &str) -> bool,
    /// The named fields on the way; only the outermost two matter to anybody.
    path: Vec<&'a str>,
}

impl<'a> Walk<'a, '_> {
    fn value(&mut self, typed: Typed<'a>, left: Side<'a>, right: Side<'a>) -> Outcome<'a> {
        match typed.atom() {
            Atom::Leaf => leaf(left, right),
            Atom::List(list) => {
                let (Some(lefts), Some(rights)) = (items(left), items(right)) else {
                    return leaf(left, right);
                };
                if left == right || lefts.is_empty() && rights.is_empty() {
                    return leaf(left, right);
                }
                (presence(left, right), self.list(list, lefts, rights))
            }
            Atom::Struct(_) | Atom::Map(_) | Atom::Any => {
                let (Some(lefts), Some(rights)) = (entries(left), entries(right)) else {
                    return self.changed_kind(typed, left, right);
                };
                if lefts.is_none_or(Map::is_empty) && rights.is_none_or(Map::is_empty) {
                    return leaf(left, right);
                }
                (presence(left, right), self.entries(typed, left, right))
            }
        }
    }

    /// Free-form JSON that was or becomes something else than an object.
    fn changed_kind(&mut self, typed: Typed<'a>, left: Side<'a>, right: Side<'a>) -> Outcome<'a> {
        let (change, mut below) = leaf(left, right);
        if let Some(Some(_)) = entries(left) {
            below.removed.unite(self.entries(typed, left, None).removed);
        }
        if let Some(Some(_)) = entries(right) {
            below.added.unite(self.entries(typed, None, right).added);
        }
        (change, below)
    }

    fn entries(&mut self, typed: Typed<'a>, left: Side<'a>, right: Side<'a>) -> Comparison<'a> {
        let mut comparison = Comparison::default();
        for (name, mut old, mut new) in zip(entries(left).flatten(), entries(right).flatten()) {
            let item = match typed.atom() {
                Atom::Struct(schema) => {
                    if (self.skips)(&self.path, name) {
                        continue;
                    }
                    match schema.field(name) {
                        Some(field) => {
                            let is_there = |side: Side<'_>| side.is_some_and(|value| !value.is_null());
                            if old.is_none() && is_there(left) {
                                old = implied(field);
                            }
                            if new.is_none() && is_there(right) {
                                new = implied(field);
                            }
                            Typed::field(schema, field)
                        }
                        None if schema.message().is_open() => typed.any(),
                        None => continue,
                    }
                }
                Atom::Map(item) => item,
                _ => typed.any(),
            };
            self.path.push(name);
            let outcome = self.value(item, old, new);
            self.path.pop();
            comparison.attach(Element::field(name), outcome);
        }
        comparison
    }

    fn list(&mut self, list: Associative<'a>, lefts: &'a [Value], rights: &'a [Value]) -> Comparison<'a> {
        let mut all: BTreeMap<Element<'a>, (Vec<&'a Value>, Vec<&'a Value>)> = BTreeMap::new();
        for item in lefts {
            if let Ok(element) = list.element(item) {
                all.entry(element).or_default().0.push(item);
            }
        }
        for item in rights {
            if let Ok(element) = list.element(item) {
                all.entry(element).or_default().1.push(item);
            }
        }
        let mut comparison = Comparison::default();
        for (element, (old, new)) in all {
            let outcome = match (old.as_slice(), new.as_slice()) {
                ([], [new]) => self.value(list.item, None, Some(new)),
                ([old], []) => self.value(list.item, Some(old), None),
                ([old], [new]) => self.value(list.item, Some(old), Some(new)),
                // Elements that cannot be told apart change hands together.
                ([_, _, ..], [_, _, ..]) => ((old != new).then_some(Change::Modified), Comparison::default()),
                ([_, _, ..], [new]) => {
                    let (_, below) = self.value(list.item, None, Some(new));
                    comparison.attach(element.clone(), (Some(Change::Added), below));
                    continue;
                }
                ([_, _, ..], []) => (Some(Change::Removed), Comparison::default()),
                ([old], [_, _, ..]) => {
                    let (_, below) = self.value(list.item, Some(old), None);
                    comparison.attach(element.clone(), (Some(Change::Added), below));
                    continue;
                }
                ([], [_, _, ..]) => (Some(Change::Added), Comparison::default()),
                ([], []) => continue,
            };
            comparison.attach(element, outcome);
        }
        comparison
    }
}

fn leaf<'a>(left: Side<'a>, right: Side<'a>) -> Outcome<'a> {
    let change = presence(left, right).or_else(|| (!is_equal(left, right)).then_some(Change::Modified));
    (change, Comparison::default())
}

fn presence(left: Side<'_>, right: Side<'_>) -> Option<Change> {
    match (left, right) {
        (None, Some(_)) => Some(Change::Added),
        (Some(_), None) => Some(Change::Removed),
        _ => None,
    }
}

/// Whether both are the same value; `1` is `1.0`.
fn is_equal(left: Side<'_>, right: Side<'_>) -> bool {
    match (left, right) {
        (Some(Value::Number(left)), Some(Value::Number(right))) => {
            left == right || left.as_f64() == right.as_f64()
        }
        _ => left == right,
    }
}

/// The elements of a list; null and absence are a list without any, anything else is none.
fn items(side: Side<'_>) -> Option<&[Value]> {
    match side {
        None | Some(Value::Null) => Some(&[]),
        Some(Value::Array(items)) => Some(items),
        Some(_) => None,
    }
}

/// The entries of an object; null and absence are one without any, anything else is none.
#[expect(clippy::option_option, reason = "what is no object differs from one without entries")]
fn entries(side: Side<'_>) -> Option<Option<&Map<String, Value>>> {
    match side {
        None | Some(Value::Null) => Some(None),
        Some(Value::Object(map)) => Some(Some(map)),
        Some(_) => None,
    }
}

/// All keys of two objects in order, with both values.
fn zip<'a>(
    left: Option<&'a Map<String, Value>>,
    right: Option<&'a Map<String, Value>>,
) -> impl Iterator<Item = (&'a str, Side<'a>, Side<'a>)> {
    let mut left = left.into_iter().flatten().peekable();
    let mut right = right.into_iter().flatten().peekable();
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return None,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let old = if order.is_le() { left.next() } else { None };
        let new = if order.is_ge() { right.next() } else { None };
        let name = old.or(new).map(|(name, _)| name.as_str())?;
        Some((name, old.map(|(_, value)| value), new.map(|(_, value)| value)))
    })
}

#[cfg(test)]
mod tests;
