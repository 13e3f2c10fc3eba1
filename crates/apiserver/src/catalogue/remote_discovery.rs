//! The report of a server elsewhere: the resources of its group-version, read so that nothing it says can spoil what is
//! told of others. Pure.
//!
//! Only fields that discovery has are taken over, and only of types that they have; a resource without a name or verbs is
//! left out. Source: KEP-3352, `ConvertGroupVersionIntoToDiscovery` of `k8s.io/apiserver/pkg/endpoints`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::specification::Specification;
use crate::tree::text;

/// How many resources of a group-version are told of.
const RESOURCES_MAX: usize = 4096;

/// The knowledge of whoever serves a group-version.
#[derive(Clone, Debug, Default)]
pub struct RemoteDiscovery {
    /// Its resources, as aggregated discovery has them; nothing before it has told.
    pub resources: Option<Arc<Vec<Value>>>,
    /// `true` if it did not answer when it was last asked.
    pub is_stale: bool,
    /// The ETag of the form of its resources that is known.
    pub etag: Option<String>,
    /// The hash of its OpenAPI document of version 3.
    pub third: Option<String>,
    /// Its part of OpenAPI version 2.
    pub second: Option<Arc<Specification>>,
}

impl RemoteDiscovery {
    /// The version in aggregated discovery.
    pub fn aggregated(&self, version: &str) -> Value {
        let freshness = match self.is_stale || self.resources.is_none() {
            true => "Stale",
            false => "Current",
        };
        let mut entry = json!({"version": version, "freshness": freshness});
        if let Some(resources) = self.resources.as_deref().filter(|resources| !resources.is_empty()) {
            entry["resources"] = json!(resources);
        }
        entry
    }

    /// `true` if clients would be told the same.
    pub fn is_same(&self, other: &Self) -> bool {
        let same_second = match (&self.second, &other.second) {
            (Some(one), Some(other)) => one.hash() == other.hash(),
            (one, other) => one.is_none() && other.is_none(),
        };
        same_second
            && self.resources == other.resources
            && self.is_stale == other.is_stale
            && self.third == other.third
    }
}

/// The resources of a group-version in a document of aggregated discovery; none if it is not there.
///
/// `None` if that is no such document.
pub fn of_aggregated(document: &Value, group: &str, version: &str) -> Option<Vec<Value>> {
    if text(document, "/kind") != "APIGroupDiscoveryList" {
        return None;
    }
    let of_group = items(document, "items").filter(|item| text(item, "/metadata/name") == group);
    let mut versions = of_group.flat_map(|item| items(item, "versions"));
    let found = versions.find(|entry| text(entry, "/version") == version);
    let resources = found.into_iter().flat_map(|found| items(found, "resources"));
    Some(resources.filter_map(resource).take(RESOURCES_MAX).collect())
}

/// The resources of an `APIResourceList`.
///
/// `None` if that is none, or of another group-version.
pub fn of_resource_list(document: &Value, group: &str, version: &str) -> Option<Vec<Value>> {
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    if text(document, "/kind") != "APIResourceList" || text(document, "/groupVersion") != group_version {
        return None;
    }
    let mut found: Vec<Value> = Vec::new();
    for listed in items(document, "resources").take(RESOURCES_MAX) {
        let (name, subresource) =
            text(listed, "/name").split_once('/').unwrap_or((text(listed, "/name"), ""));
        let response_kind = json!({
            "group": of_or(listed, "group", group),
            "version": of_or(listed, "version", version),
            "kind": text(listed, "/kind"),
        });
        if subresource.is_empty() {
            let scope =
                if listed.get("namespaced") == Some(&Value::Bool(true)) { "Namespaced" } else { "Cluster" };
            let mut made = listed.clone();
            made["resource"] = name.into();
            made["responseKind"] = response_kind;
            made["scope"] = scope.into();
            made["singularResource"] = text(listed, "/singularName").into();
            found.extend(resource(&made));
            continue;
        }
        let made =
            json!({"subresource": subresource, "responseKind": response_kind, "verbs": listed.get("verbs")});
        let Some(made) = self::subresource(&made) else { continue };
        let Some(Value::Object(parent)) = found.iter_mut().find(|one| text(one, "/resource") == name) else {
            continue;
        };
        let all = parent.entry("subresources").or_insert_with(|| json!([]));
        if let Value::Array(all) = all {
            all.push(made);
        }
    }
    Some(found)
}

/// A resource with nothing but what discovery has.
fn resource(told: &Value) -> Option<Value> {
    let name = text(told, "/resource");
    let verbs = texts(told, "verbs");
    if name.is_empty() || name.contains('/') || verbs.is_empty() {
        return None;
    }
    let scope = match text(told, "/scope") {
        "Namespaced" => "Namespaced",
        _ => "Cluster",
    };
    let mut made = json!({
        "resource": name,
        "responseKind": response_kind(told),
        "scope": scope,
        "singularResource": text(told, "/singularResource"),
        "verbs": verbs,
    });
    for field in ["shortNames", "categories"] {
        let texts = texts(told, field);
        if !texts.is_empty() {
            made[field] = json!(texts);
        }
    }
    let subresources: Vec<Value> = items(told, "subresources").filter_map(subresource).collect();
    if !subresources.is_empty() {
        made["subresources"] = json!(subresources);
    }
    Some(made)
}

fn subresource(told: &Value) -> Option<Value> {
    let name = text(told, "/subresource");
    if name.is_empty() {
        return None;
    }
    let mut made =
        json!({"subresource": name, "responseKind": response_kind(told), "verbs": texts(told, "verbs")});
    let accepted: Vec<Value> = items(told, "acceptedTypes").map(kind).collect();
    if !accepted.is_empty() {
        made["acceptedTypes"] = json!(accepted);
    }
    Some(made)
}

fn response_kind(told: &Value) -> Value {
    kind(told.get("responseKind").unwrap_or(&Value::Null))
}

/// A kind; it is never absent, which older clients do not survive.
fn kind(told: &Value) -> Value {
    json!({"group": text(told, "/group"), "version": text(told, "/version"), "kind": text(told, "/kind")})
}

fn of_or<'a>(told: &'a Value, field: &str, otherwise: &'a str) -> &'a str {
    match told.get(field).and_then(Value::as_str).unwrap_or_default() {
        "" => otherwise,
        text => text,
    }
}

fn items<'a>(told: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    let found: Option<&Map<String, Value>> = told.as_object();
    found.and_then(|found| found.get(field)).and_then(Value::as_array).into_iter().flatten()
}

fn texts<'a>(told: &'a Value, field: &str) -> Vec<&'a str> {
    items(told, field).filter_map(Value::as_str).filter(|text| !text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Value {
        json!({
            "kind": "APIGroupDiscoveryList",
            "items": [
                {"metadata": {"name": "other.example.com"}, "versions": [{"version": "v1", "resources": [{"resource": "others", "verbs": ["get"]}]}]},
                {"metadata": {"name": "example.com"}, "versions": [{"version": "v1", "resources": [
                    {
                        "resource": "things",
                        "responseKind": {"group": "example.com", "version": "v1", "kind": "Thing", "more": "x"},
                        "scope": "Namespaced",
                        "singularResource": "thing",
                        "verbs": ["get", "list", 7],
                        "shortNames": ["th"],
                        "subresources": [{"subresource": "scale", "verbs": ["get"]}, {"verbs": ["get"]}],
                        "freshness": "Forged",
                    },
                    {"resource": "nothing", "verbs": []},
                    {"resource": "", "verbs": ["get"]},
                    {"resource": "a/b", "verbs": ["get"]},
                    {"resource": ["x"], "verbs": ["get"]},
                    "text",
                ]}]},
            ],
        })
    }

    #[test]
    fn only_what_discovery_has_is_taken_over() {
        let found = of_aggregated(&told(), "example.com", "v1").unwrap();
        let expect = json!([{
            "resource": "things",
            "responseKind": {"group": "example.com", "version": "v1", "kind": "Thing"},
            "scope": "Namespaced",
            "singularResource": "thing",
            "verbs": ["get", "list"],
            "shortNames": ["th"],
            "subresources": [{"subresource": "scale", "responseKind": {"group": "", "version": "", "kind": ""}, "verbs": ["get"]}],
        }]);
        assert_eq!(Value::Array(found), expect);
        assert_eq!(of_aggregated(&told(), "example.com", "v2").unwrap(), Vec::<Value>::new());
        for garbage in [json!(null), json!([]), json!("x"), json!({"kind": "Pod"}), json!({"items": 1})] {
            assert_eq!(of_aggregated(&garbage, "example.com", "v1"), None, "{garbage}");
        }
        let odd = json!({"kind": "APIGroupDiscoveryList", "items": {"metadata": 1}});
        assert_eq!(of_aggregated(&odd, "example.com", "v1").unwrap(), Vec::<Value>::new());
    }

    #[test]
    fn a_list_of_an_older_server_becomes_the_same() {
        let list = json!({"kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": [
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"], "storageVersionHash": "x"},
            {"name": "things/scale", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get"]},
            {"name": "gone/scale", "kind": "Scale", "verbs": ["get"]},
            {"kind": "Nameless", "verbs": ["get"]},
        ]});
        let found = of_resource_list(&list, "example.com", "v1").unwrap();
        let expect = json!([{
            "resource": "things",
            "responseKind": {"group": "example.com", "version": "v1", "kind": "Thing"},
            "scope": "Namespaced",
            "singularResource": "thing",
            "verbs": ["get"],
            "subresources": [{"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["get"]}],
        }]);
        assert_eq!(Value::Array(found), expect);
        assert_eq!(of_resource_list(&list, "example.com", "v2"), None);
        assert_eq!(of_resource_list(&json!({"kind": "Status"}), "example.com", "v1"), None);
    }

    #[test]
    fn what_nobody_has_told_is_stale() {
        let mut discovery = RemoteDiscovery::default();
        assert_eq!(discovery.aggregated("v1"), json!({"version": "v1", "freshness": "Stale"}));
        discovery.resources = Some(Arc::new(vec![json!({"resource": "things"})]));
        let current = json!({"version": "v1", "freshness": "Current", "resources": [{"resource": "things"}]});
        assert_eq!(discovery.aggregated("v1"), current);
        discovery.is_stale = true;
        assert_eq!(discovery.aggregated("v1")["freshness"], "Stale");
    }
}
