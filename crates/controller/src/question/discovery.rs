//! Which resources an API server has: its aggregated discovery, `/api` and `/apis`.
//!
//! A group whose server is away is told as failed: that its resources are not named does not mean that there are none.
//! A server that does not know the aggregated form is one whose resources cannot be known.
//! Source: KEP-3352, `k8s.io/client-go/discovery`.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;

use super::get;
use crate::resource_ref::ResourceRef;
use crate::sender::Sender;

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// Which resources there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Each once, in the version that the server prefers, in the server's order.
    pub resources: Vec<Discovered>,
    /// Groups and versions of which nothing can be known, and why.
    pub failed: BTreeMap<String, String>,
    /// Groups and versions whose names are none.
    pub unreadable: Vec<String>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// Where its objects are.
    pub resource: ResourceRef,
    /// What it allows, such as `deletecollection`.
    pub verbs: Vec<String>,
}

impl Discovered {
    /// Whether it allows all of this.
    pub fn allows(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|own| own == verb))
    }
}

impl Discovery {
    /// The resource of this group and kind, whatever its version.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&ResourceRef> {
        let mut all = self.resources.iter().map(|found| &found.resource);
        all.find(|resource| resource.group == group && resource.kind == kind)
    }

    /// What could not be known, as clients tell it; nothing if all is known.
    pub fn failure(&self) -> Option<String> {
        let failed: Vec<String> = self.failed.iter().map(|(place, why)| format!("{place}: {why}")).collect();
        let list = failed.join(", ");
        (!failed.is_empty()).then(|| format!("unable to retrieve the complete list of server APIs: {list}"))
    }
}

/// Asks the server.
pub(super) async fn ask(sender: &Sender) -> Result<Discovery, String> {
    let mut found = Discovery::default();
    for path in ["/api", "/apis"] {
        read(&get(sender, path, ACCEPT).await?.found()?, &mut found)?;
    }
    Ok(found)
}

#[derive(Deserialize)]
struct List {
    kind: String,
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Name,
    #[serde(default)]
    versions: Vec<Version>,
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
    resources: Vec<Resource>,
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
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

fn read(body: &[u8], found: &mut Discovery) -> Result<(), String> {
    let list: List = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if list.kind != "APIGroupDiscoveryList" {
        return Err(format!("the server has no aggregated discovery: it answered a {}", list.kind));
    }
    for group in list.items {
        let name = group.metadata.name;
        let mut seen: HashSet<String> = HashSet::new();
        for version in group.versions {
            let place =
                if name.is_empty() { version.version.clone() } else { format!("{name}/{}", version.version) };
            if name.contains('/') || version.version.contains('/') {
                found.unreadable.push(place);
                continue;
            }
            if version.freshness == "Stale" {
                let why = format!("stale GroupVersion discovery: {place}");
                found.failed.insert(place, why);
                continue;
            }
            // Versions come in the order of preference.
            let new = version.resources.into_iter().filter(|one| seen.insert(one.resource.clone()));
            found.resources.extend(new.map(|one| one.in_group(&name, &version.version)));
        }
    }
    Ok(())
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
        Discovered { resource, verbs: self.verbs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(items: &str) -> Discovery {
        let mut found = Discovery::default();
        let body = format!(r#"{{"kind":"APIGroupDiscoveryList","items":{items}}}"#);
        read(body.as_bytes(), &mut found).unwrap();
        found
    }

    const WIDGETS: &str = r#"{"resource":"widgets","responseKind":{"group":"example.com","version":"v2","kind":"Widget"},
        "scope":"Namespaced","verbs":["delete","list"]}"#;

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
        assert_eq!(found.by_kind("example.com", "Widget"), Some(&widgets.resource));
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
    fn an_answer_in_another_form_is_no_discovery() {
        let mut found = Discovery::default();
        for body in [r#"{"kind":"APIGroupList","groups":[]}"#, "{}", "[]", "", r#"{"kind":"Status"}"#] {
            assert!(read(body.as_bytes(), &mut found).is_err(), "{body}");
        }
        assert_eq!(found, Discovery::default());
    }
}
