//! A server's account of its resources: the documents of aggregated discovery, `/api` and `/apis`.
//!
//! A group whose server is away is told as failed: that its resources are not named does not mean that there are none.
//! A server that does not know the aggregated form is one whose resources cannot be known. Names become paths of requests
//! that are sent with a controller's rights, so what is no name of a group, a version or a resource is not taken.
//! Source: KEP-3352, `k8s.io/client-go/discovery`.

use std::collections::{BTreeMap, HashSet};

use machinery::names::{dns1123_label, dns1123_subdomain};
use serde::Deserialize;

use crate::ask_error::AskError;
use crate::resource_ref::ResourceRef;

/// What one group-version may have; one with more is told as failed, and takes nothing from others.
const RESOURCES_PER_VERSION_MAX: usize = 5_000;

/// The resources that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Each once, in the version in which it is stored, or else the one that the server prefers, in the server's order.
    pub resources: Vec<Discovered>,
    /// Groups and versions of which nothing can be known, and why.
    pub failed: BTreeMap<String, String>,
    /// Groups and versions whose names are none.
    pub unreadable: Vec<String>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// The resource that its objects are at.
    pub resource: ResourceRef,
    /// The verbs that it allows, such as `deletecollection`.
    pub verbs: Vec<String>,
    /// The subresources of its objects, such as `scale`.
    pub subresources: Vec<String>,
}

impl Discovered {
    /// `true` if it allows all of this.
    pub fn allows(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|own| own == verb))
    }
}

impl Discovery {
    /// The resource of this group and kind, whatever its version.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&Discovered> {
        self.resources.iter().find(|found| found.resource.group == group && found.resource.kind == kind)
    }

    /// The failure of discovery, as clients report it; none if all is known.
    pub fn failure(&self) -> Option<String> {
        failure(&self.failed)
    }

    /// Takes in what another document says.
    pub(super) fn extend(&mut self, other: &Self) {
        self.resources.extend(other.resources.iter().cloned());
        self.failed.extend(other.failed.iter().map(|(place, why)| (place.clone(), why.clone())));
        self.unreadable.extend(other.unreadable.iter().cloned());
    }
}

/// Source: `ErrGroupDiscoveryFailed`.
pub(super) fn failure(failed: &BTreeMap<String, String>) -> Option<String> {
    let all: Vec<String> = failed.iter().map(|(place, why)| format!("{place}: {why}")).collect();
    let list = all.join(", ");
    (!all.is_empty()).then(|| format!("unable to retrieve the complete list of server APIs: {list}"))
}

/// Which of the two documents: the core group has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    Core,
    Groups,
}

impl Root {
    pub(super) const ALL: [Self; 2] = [Self::Core, Self::Groups];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Core => "/api",
            Self::Groups => "/apis",
        }
    }

    /// Whether a group of this name can stand here: nobody else speaks for the core group.
    fn can_have(self, group: &str) -> bool {
        match self {
            Self::Core => group.is_empty(),
            Self::Groups => dns1123_subdomain(group).is_empty(),
        }
    }
}

#[derive(Deserialize)]
struct List {
    kind: String,
    #[serde(default)]
    items: Option<Vec<Group>>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Name,
    #[serde(default)]
    versions: Option<Vec<Version>>,
}

#[derive(Default, Deserialize)]
struct Name {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Option<Vec<Resource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    #[serde(default)]
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Option<Vec<String>>,
    #[serde(default)]
    subresources: Option<Vec<Subresource>>,
}

#[derive(Default, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct Subresource {
    subresource: String,
}

/// What a document says.
#[derive(Debug)]
pub(super) struct Told {
    /// Each resource in the preferred version.
    pub(super) found: Discovery,
    /// The same resources in other versions.
    pub(super) others: Vec<Discovered>,
}

/// Reads a document.
///
/// # Errors
/// If it is none.
pub(super) fn read(body: &[u8], root: Root) -> Result<Told, AskError> {
    let list: List = serde_json::from_slice(body)?;
    if list.kind != "APIGroupDiscoveryList" {
        return Err(AskError::NoDiscovery(list.kind));
    }
    let (mut found, mut others) = (Discovery::default(), Vec::new());
    for group in list.items.into_iter().flatten() {
        let name = group.metadata.name;
        let mut seen: HashSet<String> = HashSet::new();
        for version in group.versions.into_iter().flatten() {
            let place =
                if name.is_empty() { version.version.clone() } else { format!("{name}/{}", version.version) };
            if !root.can_have(&name) || !dns1123_label(&version.version).is_empty() {
                found.unreadable.push(place);
                continue;
            }
            if let Some(why) = version.flaw(&place) {
                found.failed.insert(place, why);
                continue;
            }
            // Versions come in the order of preference.
            for resource in version.resources.into_iter().flatten() {
                let is_new = seen.insert(resource.resource.clone());
                let all = if is_new { &mut found.resources } else { &mut others };
                all.push(resource.in_group(&name, &version.version));
            }
        }
    }
    Ok(Told { found, others })
}

impl Version {
    /// Why nothing of it counts, if so.
    fn flaw(&self, place: &str) -> Option<String> {
        if self.freshness == "Stale" {
            return Some(format!("stale GroupVersion discovery: {place}"));
        }
        let resources = self.resources.as_deref().unwrap_or_default();
        if resources.len() > RESOURCES_PER_VERSION_MAX {
            return Some(format!("it has more than {RESOURCES_PER_VERSION_MAX} resources"));
        }
        let misnamed = resources.iter().find(|one| !dns1123_subdomain(&one.resource).is_empty());
        misnamed.map(|other| format!("{:?} is no name of a resource", other.resource))
    }
}

impl Resource {
    fn in_group(self, group: &str, version: &str) -> Discovered {
        let resource = ResourceRef {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: self.response_kind.unwrap_or_default().kind,
            plural: self.resource,
            namespaced: self.scope == "Namespaced",
        };
        let subresources = self.subresources.into_iter().flatten().map(|one| one.subresource).collect();
        Discovered { resource, verbs: self.verbs.unwrap_or_default(), subresources }
    }
}

#[cfg(test)]
mod upstream;
#[cfg(test)]
mod tests {
    use super::*;

    fn read_items(items: &str, root: Root) -> Discovery {
        read(format!(r#"{{"kind":"APIGroupDiscoveryList","items":{items}}}"#).as_bytes(), root).unwrap().found
    }

    fn check(items: &str) -> Discovery {
        read_items(items, Root::Groups)
    }

    const WIDGETS: &str = r#"{"resource":"widgets","responseKind":{"group":"example.com","version":"v2","kind":"Widget"},
        "scope":"Namespaced","verbs":["delete","list"],"subresources":[{"subresource":"scale","verbs":["get"]}]}"#;

    #[test]
    fn each_resource_is_named_once_in_the_preferred_version() {
        let found = check(&format!(
            r#"[{{"metadata":{{"name":"example.com"}},"versions":[
                {{"version":"v2","freshness":"Current","resources":[{WIDGETS}]}},
                {{"version":"v1","freshness":"Current","resources":[{WIDGETS}]}}]}}]"#
        ));
        let [widgets] = found.resources.as_slice() else { panic!("{found:?}") };
        assert_eq!(
            widgets.resource.object_path("team", "a"),
            "/apis/example.com/v2/namespaces/team/widgets/a"
        );
        assert!(widgets.allows(&["list", "delete"]) && !widgets.allows(&["list", "deletecollection"]));
        assert_eq!(widgets.subresources, ["scale"]);
        assert_eq!(found.by_kind("example.com", "Widget"), Some(widgets));
        assert_eq!((found.by_kind("example.org", "Widget"), found.failure()), (None, None));
    }

    #[test]
    fn a_group_whose_server_is_away_is_a_failure_and_no_absence() {
        let found = check(
            r#"[{"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"Stale"}]}]"#,
        );
        assert_eq!(
            found.failure().as_deref(),
            Some(
                "unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: \
                 stale GroupVersion discovery: metrics.k8s.io/v1beta1"
            )
        );
    }

    #[test]
    fn names_that_lead_elsewhere_are_not_taken() {
        let group = |group: &str, version: &str, plural: &str| {
            let widgets = WIDGETS.replace("\"widgets\"", &format!("{plural:?}"));
            format!(
                r#"[{{"metadata":{{"name":{group:?}}},"versions":[{{"version":{version:?},"resources":[{widgets}]}}]}}]"#
            )
        };
        assert_eq!(check(&group("example.com", "v1", "widgets")).resources.len(), 1);
        for (name, version) in [
            ("", "v1"),
            ("..", "v1"),
            ("a/b", "v1"),
            ("example.com", ".."),
            ("example.com", "v1/x"),
            ("a?b", "v1"),
        ] {
            let found = check(&group(name, version, "widgets"));
            assert!(found.resources.is_empty(), "{found:?}");
            assert_eq!((found.unreadable.len(), found.failed.len()), (1, 0), "{name} {version}");
        }
        assert_eq!(read_items(&group("example.com", "v1", "pods"), Root::Core).unreadable.len(), 1);
        assert_eq!(read_items(&group("", "v1", "pods"), Root::Core).resources.len(), 1);
        for plural in ["", "..", "../secrets", "widgets?limit=1", "widgets/status", "a b", "Widgets", "w#"] {
            let found = check(&group("example.com", "v1", plural));
            assert!(found.resources.is_empty() && found.failed.contains_key("example.com/v1"), "{plural}");
        }
    }

    #[test]
    fn a_group_version_with_too_many_resources_fails_alone() {
        let many: Vec<String> = (0..=RESOURCES_PER_VERSION_MAX)
            .map(|number| WIDGETS.replace("\"widgets\"", &format!("\"w{number}\"")))
            .collect();
        let found = check(&format!(
            r#"[{{"metadata":{{"name":"a.com"}},"versions":[{{"version":"v1","resources":[{}]}}]}},
                {{"metadata":{{"name":"b.com"}},"versions":[{{"version":"v1","resources":[{WIDGETS}]}}]}}]"#,
            many.join(",")
        ));
        assert_eq!((found.resources.len(), found.failed.len()), (1, 1));
        assert_eq!(found.failed["a.com/v1"], "it has more than 5000 resources");
    }

    #[test]
    fn nulls_are_nothing() {
        let found = check(
            r#"[{"metadata":{"name":"a.com"},"versions":null},{"metadata":{"name":"b.com"},
                "versions":[{"version":"v1","resources":null}]}]"#,
        );
        assert_eq!(found, Discovery::default());
    }

    #[test]
    fn an_answer_in_another_form_is_no_discovery() {
        for body in [r#"{"kind":"APIGroupList","groups":[]}"#, "{}", "[]", "", r#"{"kind":"Status"}"#] {
            assert!(read(body.as_bytes(), Root::Groups).is_err(), "{body}");
        }
    }
}
