//! The parts that were read of objects: of those that have not changed they are not read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use store::Revision;

use crate::cache::CachedObject;

/// What was read of each object, by its key.
#[derive(Debug)]
pub(super) struct Parsed<T>(BTreeMap<Arc<str>, (Revision, T)>);

impl<T> Default for Parsed<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Parsed<T> {
    /// Takes in the objects that there are now. Those that are new or changed are read.
    pub(super) fn update(&mut self, objects: Vec<Arc<CachedObject>>, read: impl Fn(&CachedObject) -> T) {
        let mut before = std::mem::take(&mut self.0);
        for object in objects {
            let known = before.remove(&object.key).filter(|(revision, _)| *revision == object.revision);
            let found = known.unwrap_or_else(|| (object.revision, read(&object)));
            self.0.insert(Arc::clone(&object.key), found);
        }
    }

    /// What was read of all objects, in the order of their keys.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|(_, read)| read)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn only_what_has_changed_is_read_again() {
        let object = |name: &str, revision| {
            let stored = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
            Arc::new(CachedObject::from_stored(name.into(), stored.as_bytes(), revision).unwrap())
        };
        let mut seen = Parsed::default();
        let mut check = |objects: Vec<Arc<CachedObject>>, expect_read: &[&str], expect: &[&str]| {
            let read = RefCell::new(Vec::new());
            seen.update(objects, |object| {
                read.borrow_mut().push(object.name().to_owned());
                format!("{}{}", object.name(), object.revision)
            });
            assert_eq!(read.into_inner(), expect_read);
            assert_eq!(seen.all().collect::<Vec<_>>(), expect);
        };
        check(vec![object("b", 2), object("a", 1)], &["b", "a"], &["a1", "b2"]);
        check(vec![object("a", 1), object("b", 3)], &["b"], &["a1", "b3"]);
        check(vec![object("b", 3), object("c", 4)], &["c"], &["b3", "c4"]);
        check(vec![object("a", 1)], &["a"], &["a1"]);
        check(Vec::new(), &[], &[]);
    }
}
