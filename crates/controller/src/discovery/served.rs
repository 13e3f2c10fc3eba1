//! The resources that a server serves, as far as it has ever said: what one answer of discovery means beside the ones
//! before.
//!
//! Invariant: a resource goes only when the server says of its group-version what there is, and does not name it.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::document::{self, Discovered, Discovery};
use crate::ask_error::AskError;
use crate::resource_ref::ResourceRef;

/// The name of what failed when the server said nothing at all.
const EVERYTHING: &str = "*";

/// The resources that a server serves. See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    resources: Vec<Discovered>,
    /// Places in `resources`, by group and kind.
    by_kind: HashMap<String, HashMap<String, usize>>,
    by_plural: HashMap<String, HashMap<String, usize>>,
    failed: BTreeMap<String, String>,
    has_answered: bool,
}

impl Served {
    /// The served resources after an answer.
    pub fn after(&self, answer: &Result<Discovery, AskError>) -> Self {
        match answer {
            // A server of nothing has not come up yet.
            Ok(found) if found.resources.is_empty() && found.failed.is_empty() => {
                self.failing("the server names no resources")
            }
            Ok(found) => self.told(found),
            Err(error) => self.failing(&error.to_string()),
        }
    }

    fn failing(&self, why: &str) -> Self {
        Self { failed: [(EVERYTHING.to_owned(), why.to_owned())].into(), ..self.clone() }
    }

    fn told(&self, found: &Discovery) -> Self {
        let mut failed = found.failed.clone();
        let no_name = |place: &String| (place.clone(), format!("unexpected GroupVersion string: {place}"));
        failed.extend(found.unreadable.iter().map(no_name));
        let named: HashSet<(&str, &str)> = found.resources.iter().map(|one| names(&one.resource)).collect();
        let kept = self.resources.iter().filter(|one| {
            failed.contains_key(&one.resource.api_version()) && !named.contains(&names(&one.resource))
        });
        let resources: Vec<Discovered> = found.resources.iter().chain(kept).cloned().collect();
        let mut served = Self { failed, has_answered: true, ..Self::default() };
        for (place, one) in resources.iter().enumerate() {
            let ResourceRef { group, kind, plural, .. } = &one.resource;
            // Of two resources of one kind the first one is meant, as by the server's own order.
            served.by_kind.entry(group.clone()).or_default().entry(kind.clone()).or_insert(place);
            served.by_plural.entry(group.clone()).or_default().entry(plural.clone()).or_insert(place);
        }
        Self { resources, ..served }
    }

    /// Every resource, in the server's order.
    pub fn resources(&self) -> impl Iterator<Item = &Discovered> {
        self.resources.iter()
    }

    /// The resource of this group and kind.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&Discovered> {
        self.resources.get(*self.by_kind.get(group)?.get(kind)?)
    }

    /// The resource of this group and plural.
    pub fn by_plural(&self, group: &str, plural: &str) -> Option<&Discovered> {
        self.resources.get(*self.by_plural.get(group)?.get(plural)?)
    }

    /// `true` if this resource is served, in this version.
    pub fn has(&self, resource: &ResourceRef) -> bool {
        self.by_plural(&resource.group, &resource.plural).is_some_and(|found| found.resource == *resource)
    }

    /// `true` if the server has ever said what there is.
    pub fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Groups and versions of which nothing new can be known, and why.
    pub fn failed(&self) -> &BTreeMap<String, String> {
        &self.failed
    }

    /// The same as clients tell it; nothing if all is known.
    pub fn failure(&self) -> Option<String> {
        document::failure(&self.failed)
    }
}

fn names(resource: &ResourceRef) -> (&str, &str) {
    (&resource.group, &resource.plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> Discovered {
        let parts: Vec<&str> = path.split('/').collect();
        let [group, version, plural] = parts.as_slice() else { panic!("{path}") };
        let resource = ResourceRef {
            group: (*group).to_owned(),
            version: (*version).to_owned(),
            kind: plural.to_uppercase(),
            plural: (*plural).to_owned(),
            namespaced: true,
        };
        Discovered { resource, verbs: Vec::new(), subresources: Vec::new() }
    }

    fn answer(resources: &[&str], failed: &[&str]) -> Result<Discovery, AskError> {
        let failed = failed.iter().map(|place| ((*place).to_owned(), "stale".to_owned())).collect();
        let resources = resources.iter().map(|path| resource(path)).collect();
        Ok(Discovery { resources, failed, unreadable: Vec::new() })
    }

    fn check(answers: &[Result<Discovery, AskError>], expect: &[&str], failed: &[&str]) {
        let served = answers.iter().fold(Served::default(), |before, answer| before.after(answer));
        let shown = |one: &Discovered| format!("{}/{}", one.resource.api_version(), one.resource.plural);
        assert_eq!(served.resources().map(shown).collect::<Vec<_>>(), expect, "{answers:?}");
        assert_eq!(served.failed().keys().collect::<Vec<_>>(), failed, "{answers:?}");
        for one in served.resources() {
            let ResourceRef { group, kind, plural, .. } = &one.resource;
            assert_eq!(
                (served.by_kind(group, kind), served.by_plural(group, plural)),
                (Some(one), Some(one))
            );
            assert!(served.has(&one.resource));
        }
    }

    #[test]
    fn what_is_named_is_served_and_what_is_not_is_gone() {
        let two = || answer(&["a/v1/x", "b/v1/y"], &[]);
        check(&[two()], &["a/v1/x", "b/v1/y"], &[]);
        check(&[two(), answer(&["a/v1/x"], &[])], &["a/v1/x"], &[]);
        check(&[two(), answer(&["a/v1/x"], &[]), two()], &["a/v1/x", "b/v1/y"], &[]);
    }

    #[test]
    fn a_group_version_that_fails_keeps_what_it_had_and_others_change() {
        let two = || answer(&["a/v1/x", "b/v1/y"], &[]);
        check(&[two(), answer(&["a/v1/z"], &["b/v1"])], &["a/v1/z", "b/v1/y"], &["b/v1"]);
        // Another version of the group speaks for its own resources only.
        check(&[two(), answer(&["b/v2/z"], &["b/v1"])], &["b/v2/z", "b/v1/y"], &["b/v1"]);
        check(&[two(), answer(&["b/v2/y"], &["b/v1"])], &["b/v2/y"], &["b/v1"]);
        // It can flap for ever.
        let flaps = [two(), answer(&["a/v1/x"], &["b/v1"]), two(), answer(&["a/v1/x"], &["b/v1"])];
        check(&flaps, &["a/v1/x", "b/v1/y"], &["b/v1"]);
    }

    #[test]
    fn a_server_that_says_nothing_takes_nothing_away() {
        let two = || answer(&["a/v1/x", "b/v1/y"], &[]);
        check(&[two(), Err(AskError::TooLate(30))], &["a/v1/x", "b/v1/y"], &["*"]);
        check(&[two(), answer(&[], &[])], &["a/v1/x", "b/v1/y"], &["*"]);
        check(&[Err(AskError::TooLate(30))], &[], &["*"]);
        check(&[two(), Err(AskError::TooLate(30)), answer(&["a/v1/x"], &[])], &["a/v1/x"], &[]);
        let served = Served::default().after(&Err(AskError::TooLate(30)));
        assert!(!served.has_answered() && served.after(&two()).has_answered());
        let told =
            "unable to retrieve the complete list of server APIs: *: the server did not answer for 30 s";
        assert_eq!(served.failure().as_deref(), Some(told));
    }
}
