//! Kinds, and how one of them is found.

use std::collections::HashMap;

use crate::kinds::Kind;

/// Kinds in discovery's order, with what they are found by. What is in it never changes.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    all: Vec<Kind>,
    by_plural: ByName,
    by_kind: ByName,
}

/// Indexes in the list of all kinds, by a name that few of them share.
type ByName = HashMap<String, Vec<usize>>;

impl Kinds {
    /// These kinds, in this order.
    pub fn new(all: Vec<Kind>) -> Self {
        let by_name = |name: fn(&Kind) -> &str| {
            let mut by_name = ByName::new();
            for (at, kind) in all.iter().enumerate() {
                by_name.entry(name(kind).to_owned()).or_default().push(at);
            }
            by_name
        };
        let (by_plural, by_kind) = (by_name(Kind::resource), by_name(Kind::kind));
        Self { all, by_plural, by_kind }
    }

    /// The kind behind a URL.
    pub fn find(&self, group: &str, version: &str, resource: &str) -> Option<&Kind> {
        self.look_up(self.by_plural.get(resource)?, group, version)
    }

    /// The kind that an object says it is of.
    pub fn of_name(&self, group: &str, version: &str, name: &str) -> Option<&Kind> {
        self.look_up(self.by_kind.get(name)?, group, version)
    }

    /// The same kind in another version, or in another group that shares its objects.
    pub fn in_version(&self, kind: &Kind, api_version: &str) -> Option<&Kind> {
        let (group, version) = machinery::group::split_api_version(api_version)?;
        self.of_name(group, version, kind.kind()).filter(|found| found.prefix() == kind.prefix())
    }

    /// The kind in whose form objects are stored below a prefix.
    pub fn stored_below(&self, prefix: &str) -> Option<&Kind> {
        self.iter().find(|kind| kind.prefix() == prefix && kind.is_stored_form())
    }

    /// All of them, in discovery's order.
    pub fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.all.iter()
    }

    fn look_up(&self, by_name: &[usize], group: &str, version: &str) -> Option<&Kind> {
        let mut kinds = by_name.iter().filter_map(|at| self.all.get(*at));
        kinds.find(|kind| kind.group() == group && kind.version() == version)
    }
}

/// The built-in kinds with caches of their own that nothing feeds.
#[cfg(test)]
pub(crate) fn builtin() -> Kinds {
    use crate::cache::{Keys, ResourceCache};
    let served = resources::table().iter().filter(|row| row.is_served());
    Kinds::new(
        served
            .map(|row| {
                let schema = schema::builtin().kind(&row.group, &row.version, &row.kind);
                Kind::new(
                    row.clone(),
                    schema.map(Into::into),
                    ResourceCache::new(Keys::of_row(row), 0).into(),
                )
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_plural_by_name_and_in_other_versions() {
        let kinds = builtin();
        let deployments = kinds.find("apps", "v1", "deployments").unwrap();
        assert!(kinds.of_name("apps", "v1", "Deployment").unwrap().is(deployments));
        assert!(
            kinds.find("apps", "v1", "nope").is_none() && kinds.find("apps", "v9", "deployments").is_none()
        );
        let events = kinds.find("", "v1", "events").unwrap();
        let newer = kinds.in_version(events, "events.k8s.io/v1").unwrap();
        assert_eq!((newer.group(), newer.prefix()), ("events.k8s.io", events.prefix()));
        assert!(kinds.in_version(events, "apps/v1").is_none());
        assert!(kinds.stored_below("/registry/events/").unwrap().is(events));
    }
}
