//! A small map as a list, which takes up what is in it: the first node of a `BTreeMap` has room for eleven entries, which is
//! half a kilobyte for a Pod's one request.

use std::collections::BTreeMap;
use std::slice;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Values by name, in the order of names.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs<T>(Box<[(String, T)]>);

/// Shows a pair's name and value.
type Parts<T> = fn(&(String, T)) -> (&String, &T);

impl<T> Pairs<T> {
    /// The value of that name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// `true` if there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<'a, T> IntoIterator for &'a Pairs<T> {
    type Item = (&'a String, &'a T);
    type IntoIter = std::iter::Map<slice::Iter<'a, (String, T)>, Parts<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let parts: Parts<T> = |(name, value)| (name, value);
        self.0.iter().map(parts)
    }
}

impl<T: Serialize> Serialize for Pairs<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(from).map(|all| Self(all.into_iter().collect()))
    }
}
