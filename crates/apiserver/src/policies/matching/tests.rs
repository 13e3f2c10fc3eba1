//! Rules, names, exclusions, selectors and equivalent versions, put together.

use auth::UserInfo;
use serde_json::json;

use super::*;
use crate::kinds::Kinds;
use crate::kinds::all::builtin;
use crate::webhooks::rules::Operation;

/// A request for an object of that name.
struct Asked<'a> {
    at: (&'a str, &'a str, &'a str),
    below: &'a str,
    namespace: &'a str,
    operation: Operation,
    object: Option<Value>,
    old: Option<Value>,
}

fn create<'a>(at: (&'a str, &'a str, &'a str), namespace: &'a str) -> Asked<'a> {
    let object = Some(json!({"metadata": {"name": "a", "labels": {"app": "web"}}}));
    Asked { at, below: "", namespace, operation: Operation::Create, object, old: None }
}

const MAPS: (&str, &str, &str) = ("", "v1", "configmaps");
const NODES: (&str, &str, &str) = ("", "v1", "nodes");
const NAMESPACES: (&str, &str, &str) = ("", "v1", "namespaces");

fn check(kinds: &Kinds, constraints: Value, asked: &Asked<'_>, expect: Result<&str, &str>) {
    let mut written = json!({"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
        "resourceRules": [rule(json!({}))]});
    written.as_object_mut().unwrap().extend(constraints.as_object().unwrap().clone());
    let (group, version, resource) = asked.at;
    let (options, user) = (Value::Null, UserInfo::default());
    let attributes = Attributes {
        kinds,
        kind: kinds.find(group, version, resource).unwrap(),
        subresource: asked.below,
        sent_as: None,
        operation: asked.operation,
        name: "a",
        namespace: asked.namespace,
        old: asked.old.as_ref(),
        options: &options,
        is_dry_run: false,
        user: &user,
    };
    let found = Matching::new(&attributes, asked.object.as_ref()).form(&Constraints::of(&written));
    let found = found.map(|form| form.map(|form| form.0.api_version().to_owned()).unwrap_or_default());
    assert_eq!(
        found.as_deref().map_err(|failure| failure.message.as_str()),
        expect,
        "{constraints} of {resource}"
    );
}

/// A rule about everything, unless fields say otherwise.
fn rule(fields: Value) -> Value {
    let mut rule =
        json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
    rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    rule
}

#[test]
fn rules_names_and_exclusions() {
    let kinds = builtin();
    let asked = create(MAPS, "default");
    let about = |resource: &str| rule(json!({"resources": [resource]}));
    let named = |names: Value| rule(json!({"resources": ["configmaps"], "resourceNames": names}));
    for (constraints, expect) in [
        (json!({}), "v1"),
        // A binding without rules takes whatever its policy takes.
        (json!({"resourceRules": []}), "v1"),
        (json!({"resourceRules": null}), "v1"),
        (json!({"resourceRules": [about("secrets")]}), ""),
        (json!({"resourceRules": [about("secrets"), about("configmaps")]}), "v1"),
        (json!({"resourceRules": [named(json!([]))]}), "v1"),
        (json!({"resourceRules": [named(json!(["b", "a"]))]}), "v1"),
        (json!({"resourceRules": [named(json!(["b"]))]}), ""),
        (json!({"resourceRules": [named(json!(["b"])), about("configmaps")]}), "v1"),
        (json!({"excludeResourceRules": [about("configmaps")]}), ""),
        (json!({"excludeResourceRules": [named(json!(["a"]))]}), ""),
        (json!({"excludeResourceRules": [named(json!(["b"]))]}), "v1"),
        (json!({"resourceRules": [], "excludeResourceRules": [about("configmaps")]}), ""),
        (json!({"excludeResourceRules": [rule(json!({"operations": ["DELETE"]}))]}), "v1"),
        (json!({"excludeResourceRules": [rule(json!({"scope": "Cluster"}))]}), "v1"),
        (json!({"excludeResourceRules": [rule(json!({"scope": "Namespaced"}))]}), ""),
    ] {
        check(&kinds, constraints, &asked, Ok(expect));
    }
    let below = Asked { below: "status", ..create(("apps", "v1", "deployments"), "default") };
    check(&kinds, json!({"resourceRules": [about("deployments")]}), &below, Ok(""));
    check(&kinds, json!({"resourceRules": [about("deployments/status")]}), &below, Ok("apps/v1"));
}

#[test]
fn selectors_are_about_the_object_before_and_after_and_errors_only_where_they_matter() {
    let kinds = builtin();
    let asked = create(MAPS, "");
    let web = json!({"matchLabels": {"app": "web"}});
    let broken = json!({"matchExpressions": [{"key": "a", "operator": "Sideways"}]});
    let wrong = "Internal error occurred: \"Sideways\" is not a valid label selector operator";
    check(&kinds, json!({"objectSelector": web}), &asked, Ok("v1"));
    check(&kinds, json!({"objectSelector": {"matchLabels": {"app": "db"}}}), &asked, Ok(""));
    let unlabelled = Some(json!({"metadata": {"name": "a"}}));
    let gone =
        Asked { object: None, old: asked.object.clone(), operation: Operation::Delete, ..create(MAPS, "") };
    check(&kinds, json!({"objectSelector": web}), &gone, Ok("v1"));
    let relabelled = Asked { object: unlabelled.clone(), old: asked.object.clone(), ..create(MAPS, "") };
    check(&kinds, json!({"objectSelector": web}), &relabelled, Ok("v1"));
    check(&kinds, json!({"objectSelector": web}), &Asked { object: unlabelled, ..create(MAPS, "") }, Ok(""));
    check(&kinds, json!({"objectSelector": null, "namespaceSelector": null}), &asked, Ok("v1"));
    check(&kinds, json!({"objectSelector": broken}), &asked, Err(wrong));
    check(
        &kinds,
        json!({"objectSelector": broken, "resourceRules": [rule(json!({"operations": ["DELETE"]}))]}),
        &asked,
        Ok(""),
    );
    check(
        &kinds,
        json!({"objectSelector": broken, "excludeResourceRules": [rule(json!({}))]}),
        &asked,
        Ok(""),
    );
}

#[test]
fn namespaces_are_selected_by_their_labels() {
    let kinds = builtin();
    let prod = json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}});
    // What is in no namespace is never left out.
    check(&kinds, prod.clone(), &create(NODES, ""), Ok("v1"));
    let missing = "namespaces \"nowhere\" not found";
    check(&kinds, prod.clone(), &create(MAPS, "nowhere"), Err(missing));
    // The object selector says no first.
    let both = json!({"namespaceSelector": prod["namespaceSelector"], "objectSelector": {"matchLabels": {"app": "db"}}});
    check(&kinds, both, &create(MAPS, "nowhere"), Ok(""));
    // A Namespace that is written has the labels that it is written with.
    let labelled = |env: &str| Some(json!({"metadata": {"name": "a", "labels": {"env": env}}}));
    check(&kinds, prod.clone(), &Asked { object: labelled("prod"), ..create(NAMESPACES, "a") }, Ok("v1"));
    check(&kinds, prod, &Asked { object: labelled("dev"), ..create(NAMESPACES, "a") }, Ok(""));
}

#[test]
fn other_versions_of_a_resource_are_equivalent() {
    let kinds = builtin();
    let hpa = |version| create(("autoscaling", version, "horizontalpodautoscalers"), "default");
    let only = |version: &str| json!([rule(json!({"apiGroups": ["autoscaling"], "apiVersions": [version]}))]);
    check(&kinds, json!({"resourceRules": only("v1")}), &hpa("v2"), Ok("autoscaling/v1"));
    check(&kinds, json!({"resourceRules": only("v2")}), &hpa("v2"), Ok("autoscaling/v2"));
    check(&kinds, json!({"resourceRules": only("v1"), "matchPolicy": "Exact"}), &hpa("v2"), Ok(""));
    check(
        &kinds,
        json!({"resourceRules": only("v1"), "matchPolicy": null}),
        &hpa("v2"),
        Ok("autoscaling/v1"),
    );
    check(&kinds, json!({"excludeResourceRules": only("v1")}), &hpa("v2"), Ok(""));
    check(
        &kinds,
        json!({"excludeResourceRules": only("v1"), "matchPolicy": "Exact"}),
        &hpa("v2"),
        Ok("autoscaling/v2"),
    );
    let events = create(("events.k8s.io", "v1", "events"), "default");
    let core = json!([rule(json!({"apiGroups": [""], "resources": ["events"]}))]);
    check(&kinds, json!({"resourceRules": core}), &events, Ok("v1"));
    let named = json!([rule(json!({"apiGroups": [""], "resources": ["events"], "resourceNames": ["b"]}))]);
    check(&kinds, json!({"resourceRules": named}), &events, Ok(""));
}
