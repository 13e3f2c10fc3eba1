//! Rules, selectors and equivalent versions, put together.

use auth::UserInfo;
use serde_json::json;

use super::*;
use crate::kinds::Kinds;
use crate::kinds::all::builtin;
use crate::webhooks::rules::Operation;

/// A webhook with these fields, about everything unless they say otherwise.
fn hook(fields: Value) -> Hook {
    let mut all = json!({
        "name": "a.b.c",
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
        "namespaceSelector": {},
        "objectSelector": {},
        "clientConfig": {"url": "https://example.com"},
    });
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    crate::webhooks::hooks::tests::compile(&all)
}

struct Asked<'a> {
    kinds: &'a Kinds,
    at: (&'a str, &'a str, &'a str),
    namespace: &'a str,
    object: Option<Value>,
    old: Option<Value>,
}

/// The group and version in which the webhook is asked; empty if it is not.
fn check(hook: &Hook, asked: &Asked<'_>, expect: Result<&str, u16>) {
    let (group, version, resource) = asked.at;
    let options = Value::Null;
    let user = UserInfo::default();
    let attributes = Attributes {
        kinds: asked.kinds,
        kind: asked.kinds.find(group, version, resource).unwrap(),
        subresource: "",
        sent_as: None,
        operation: Operation::Create,
        name: "a",
        namespace: asked.namespace,
        old: asked.old.as_ref(),
        options: &options,
        is_dry_run: false,
        user: &user,
    };
    let found = form(hook, &attributes, asked.object.as_ref());
    let found = found.map(|form| form.map(|form| form.0.api_version().to_owned()).unwrap_or_default());
    assert_eq!(found.as_deref().map_err(|error| error.code.as_u16()), expect, "{asked:?}");
}

impl std::fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} in {:?}: {:?}", self.at, self.namespace, self.object)
    }
}

fn asked<'a>(kinds: &'a Kinds, at: (&'a str, &'a str, &'a str), namespace: &'a str) -> Asked<'a> {
    Asked { kinds, at, namespace, object: Some(json!({"metadata": {}})), old: None }
}

#[test]
fn equivalent_versions_are_asked_for_in_the_order_of_rules() {
    let kinds = builtin();
    let hpa = |version| asked(&kinds, ("autoscaling", version, "horizontalpodautoscalers"), "default");
    let rules = |versions: Value| {
        json!([{"operations": ["*"], "apiGroups": ["autoscaling"], "apiVersions": versions,
            "resources": ["horizontalpodautoscalers"]}])
    };
    let equivalent = hook(json!({"rules": rules(json!(["v1"])), "matchPolicy": "Equivalent"}));
    check(&equivalent, &hpa("v1"), Ok("autoscaling/v1"));
    check(&equivalent, &hpa("v2"), Ok("autoscaling/v1"));
    let exact = hook(json!({"rules": rules(json!(["v1"])), "matchPolicy": "Exact"}));
    check(&exact, &hpa("v1"), Ok("autoscaling/v1"));
    check(&exact, &hpa("v2"), Ok(""));
    let both = hook(json!({"rules": rules(json!(["v1", "v2"])), "matchPolicy": "Equivalent"}));
    check(&both, &hpa("v2"), Ok("autoscaling/v2"));
    let unknown = hook(json!({"rules": rules(json!(["v9"])), "matchPolicy": "Equivalent"}));
    check(&unknown, &hpa("v2"), Ok(""));
    // Events are the same objects in two groups.
    let events = json!([{"operations": ["*"], "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"],
        "resources": ["events"]}]);
    let events = hook(json!({"rules": events, "matchPolicy": "Equivalent"}));
    check(&events, &asked(&kinds, ("", "v1", "events"), "default"), Ok("events.k8s.io/v1"));
    check(&events, &asked(&kinds, ("", "v1", "pods"), "default"), Ok(""));
}

#[test]
fn the_namespaces_own_labels_decide() {
    let kinds = builtin();
    let in_prod = hook(json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}}));
    let pods = ("", "v1", "pods");
    // Nobody has made any namespace here.
    check(&in_prod, &asked(&kinds, pods, "gone"), Err(404));
    check(&hook(json!({})), &asked(&kinds, pods, "gone"), Ok("v1"));
    // What is in no namespace is always asked about.
    check(&in_prod, &asked(&kinds, ("", "v1", "nodes"), ""), Ok("v1"));
    // A Namespace is asked about by its own labels.
    let namespaces = ("", "v1", "namespaces");
    let labelled = |labels: Value| Asked {
        object: Some(json!({"metadata": {"labels": labels}})),
        ..asked(&kinds, namespaces, "a")
    };
    check(&in_prod, &labelled(json!({"env": "prod"})), Ok("v1"));
    check(&in_prod, &labelled(json!({"env": "test"})), Ok(""));
    check(&in_prod, &labelled(json!(null)), Ok(""));
}

#[test]
fn a_selector_that_cannot_be_read_matters_only_where_the_rules_match() {
    let kinds = builtin();
    let broken = json!({"matchExpressions": [{"key": "a", "operator": "Loves"}]});
    let rules = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    for field in ["namespaceSelector", "objectSelector"] {
        let hook = hook(json!({field: broken, "rules": rules}));
        check(&hook, &asked(&kinds, ("", "v1", "pods"), "default"), Err(500));
        check(&hook, &asked(&kinds, ("", "v1", "secrets"), "default"), Ok(""));
    }
}

#[test]
fn either_the_old_or_the_new_object_is_selected() {
    let kinds = builtin();
    let selecting = hook(json!({"objectSelector": {"matchLabels": {"a": "b"}}}));
    let object = |value: Option<&str>| value.map(|value| json!({"metadata": {"labels": {"a": value}}}));
    for (new, old, expect) in [
        (Some("b"), None, "v1"),
        (Some("b"), Some("c"), "v1"),
        (Some("c"), Some("b"), "v1"),
        (None, Some("b"), "v1"),
        (Some("c"), Some("c"), ""),
        (None, None, ""),
    ] {
        let pod = asked(&kinds, ("", "v1", "pods"), "default");
        check(&selecting, &Asked { object: object(new), old: object(old), ..pod }, Ok(expect));
    }
    // Options of a stream have no labels, and are not said to have none.
    let absent = hook(
        json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}),
    );
    let pod = || asked(&kinds, ("", "v1", "pods"), "default");
    check(&absent, &Asked { object: Some(json!({"kind": "PodExecOptions"})), ..pod() }, Ok(""));
    check(&absent, &pod(), Ok("v1"));
}

#[test]
fn what_decides_about_webhooks_is_exempt() {
    let kinds = builtin();
    for (group, version, resource, expect) in [
        ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", true),
        ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", true),
        ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", true),
        ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", true),
        ("", "v1", "pods", false),
    ] {
        let (options, user) = (Value::Null, UserInfo::default());
        let attributes = Attributes {
            kinds: &kinds,
            kind: kinds.find(group, version, resource).unwrap(),
            subresource: "",
            sent_as: None,
            operation: Operation::Delete,
            name: "a",
            namespace: "",
            old: None,
            options: &options,
            is_dry_run: false,
            user: &user,
        };
        assert_eq!(attributes.is_exempt(), expect, "{resource}");
    }
}
