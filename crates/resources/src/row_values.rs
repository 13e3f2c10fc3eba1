//! The values of a row: the program's own constants for built-in kinds, and shared values for kinds that are made while
//! it runs.
//!
//! Both are read alike, and to copy either allocates nothing. What was made goes with its last copy.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// A constant of the program, or a value made at run time.
pub enum Shared<T: ?Sized + 'static> {
    /// In the program.
    Static(&'static T),
    /// Made at run time.
    Made(Arc<T>),
}

/// A text of a row.
pub type Text = Shared<str>;

/// Sets a field of a constant. What was there is a constant too: nothing of it is to be dropped, and constants drop
/// nothing.
pub(crate) const fn set<T>(field: &mut T, value: T) {
    std::mem::forget(std::mem::replace(field, value));
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Static(value) => value,
            Self::Made(value) => value,
        }
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Static(value) => Self::Static(value),
            Self::Made(value) => Self::Made(Arc::clone(value)),
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> From<Vec<T>> for Shared<[T]> {
    fn from(values: Vec<T>) -> Self {
        Self::Made(values.into())
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self::Made(Arc::new(value))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Made(text.into())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Made(text.into())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self
    }
}

impl<T: ?Sized + PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: ?Sized + Eq> Eq for Shared<T> {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialEq<String> for Text {
    fn eq(&self, other: &String) -> bool {
        **self == **other
    }
}

impl PartialEq<Text> for &str {
    fn eq(&self, other: &Text) -> bool {
        **self == **other
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(other)
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

/// A list of names.
#[derive(Clone, Debug)]
pub enum Names {
    /// In the program.
    Static(&'static [&'static str]),
    /// Made at run time.
    Made(Arc<[Box<str>]>),
}

impl Names {
    /// The names, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let (fixed, made): (&[&'static str], &[Box<str>]) = match self {
            Self::Static(names) => (names, &[]),
            Self::Made(names) => (&[], names),
        };
        fixed.iter().copied().chain(made.iter().map(|name| &**name))
    }

    /// `true` if there is none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// `true` if `name` is among them.
    pub fn contains(&self, name: &str) -> bool {
        self.iter().any(|one| one == name)
    }
}

impl<S: AsRef<str>> FromIterator<S> for Names {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self::Made(names.into_iter().map(|name| name.as_ref().into()).collect())
    }
}

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_reads_as_what_is_built_in() {
        let (built_in, made) = (Text::Static("pods"), Text::from("pods".to_owned()));
        assert_eq!(built_in, made);
        assert_eq!(made, "pods");
        assert_eq!(made.to_string(), "pods");
        let names = [Names::Static(&["po", "p"]), ["po", "p"].into_iter().collect()];
        for names in names {
            assert_eq!(names.iter().collect::<Vec<_>>(), ["po", "p"]);
            assert_eq!(serde_json::to_value(&names).unwrap(), serde_json::json!(["po", "p"]));
            assert!(names.contains("p") && !names.contains("pods") && !names.is_empty());
        }
    }

    #[test]
    fn what_is_made_goes_with_its_last_copy() {
        let made: Arc<str> = "pods".into();
        let text = Text::Made(Arc::clone(&made));
        let copy = text.clone();
        drop(text);
        assert_eq!(Arc::strong_count(&made), 2);
        drop(copy);
        assert_eq!(Arc::strong_count(&made), 1);
    }
}
