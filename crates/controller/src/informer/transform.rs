//! The transform of an informer: it keeps an object without the fields that nobody in the process reads, and without items of
//! lists of which nothing is needed. Source: `SetTransform` of client-go's informers.
//!
//! Most of a Pod is what only its kubelet reads. Whoever leaves fields out must not write such objects back: requests that
//! would replace one are refused (`engine/execute.rs`).

use std::collections::BTreeMap;

/// The fields that are left out of a kind's objects, as a tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Transform {
    fields: BTreeMap<&'static str, Transform>,
    /// All of it is.
    is_all: bool,
    /// Of the items of this list, those are that have none of these fields, however deep.
    only_with: Vec<&'static str>,
}

impl Transform {
    /// The transform that leaves out these paths, such as `spec.containers.env`: what is behind the last name is left out.
    /// Lists count as their items. With names in brackets, `spec.volumes[secret|csi]`, only those items of a list are left out
    /// in which no field has one of these names. Each path stands in the object that the one before it leads to.
    pub fn without(paths: impl IntoIterator<Item = (&'static str, &'static str)>) -> Self {
        let mut root = Self::default();
        for (place, path) in paths {
            let (path, only_with) = match path.trim_end_matches(']').split_once('[') {
                Some((path, names)) => (path, names.split('|').collect()),
                None => (path, Vec::new()),
            };
            let names = place.split('.').chain(path.split('.')).filter(|name| !name.is_empty());
            let of = names.fold(&mut root, |of, name| of.fields.entry(name).or_default());
            of.is_all |= only_with.is_empty();
            of.only_with.extend(only_with);
        }
        root
    }

    /// The same without managed fields: no decider reads them, and they are a third of what there is of a Pod. Who writes an
    /// object back without them changes nobody's: a server takes absent ones for those that it has.
    /// Source: `TrimManagedFields`, the transform of upstream's controller manager and scheduler.
    pub(super) fn and_managed_fields(mut self) -> Self {
        let metadata = self.fields.entry("metadata").or_default();
        metadata.fields.entry("managedFields").or_default().is_all = true;
        self
    }

    /// The transform of a field's value.
    pub(super) fn of(&self, field: &str) -> Option<&Self> {
        self.fields.get(field)
    }

    pub(super) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Whether some items of a list are left out.
    pub(super) fn chooses(&self) -> bool {
        !self.only_with.is_empty()
    }

    /// Whether an item is kept. Values that look like a name keep it, too; nobody writes names with escapes.
    pub(super) fn keeps(&self, item: &str) -> bool {
        let is_quoted = |(start, name): (usize, &str)| {
            item.get(..start).is_some_and(|before| before.ends_with('"'))
                && item.get(start + name.len()..).is_some_and(|after| after.starts_with('"'))
        };
        self.only_with.iter().any(|name| item.match_indices(name).any(is_quoted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_a_tree() {
        let transform = Transform::without([("", "a.b"), ("a", "c.d"), ("", "e[x|y]"), ("e", "f")]);
        let of = |path: &str| path.split('.').try_fold(&transform, |of, name| of.of(name));
        let is_all = |path: &str| of(path).map(Transform::is_all);
        assert_eq!(
            ["a", "a.b", "a.c", "a.c.d", "e", "e.f"].map(is_all),
            [Some(false), Some(true), Some(false), Some(true), Some(false), Some(true)]
        );
        assert_eq!(["b", "a.d", "a.b.c"].map(is_all), [None; 3]);
        assert_eq!(
            (of("e").map(Transform::chooses), of("a").map(Transform::chooses)),
            (Some(true), Some(false))
        );
    }

    #[test]
    fn an_item_is_kept_if_it_has_a_field_of_the_names() {
        let transform = Transform::without([("", "e[secret|csi]")]);
        let keeps = |item: &str| transform.of("e").unwrap().keeps(item);
        for item in [
            r#"{"name":"a","secret":{}}"#,
            r#"{ "csi" : null}"#,
            r#"{"projected":{"sources":[{"secret":{"name":"a"}}]}}"#,
            // It only looks like one.
            r#"{"name":"secret","emptyDir":{}}"#,
        ] {
            assert!(keeps(item), "{item}");
        }
        for item in [
            r#"{"name":"a","secrets":{}}"#,
            r#"{"name":"my-secret","hostPath":{"path":"/csi"}}"#,
            "{}",
            "null",
        ] {
            assert!(!keeps(item), "{item}");
        }
    }
}
