//! What is sent for each request of a plan.

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

fn map(namespace: &str, name: &str) -> ConfigMap {
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        resource_version: Some("7".to_owned()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Method, path, type and body of what is sent.
fn sent(request: &ApiRequest) -> String {
    let http = request.to_http().expect("a request");
    let kind = http.headers()["content-type"].to_str().expect("text");
    let body = String::from_utf8_lossy(http.body());
    assert_eq!(http.headers()["accept"], "application/json");
    format!("{} {} {} {}", http.method(), http.uri(), kind.trim_start_matches("application/"), body)
}

#[test]
fn every_verb_has_its_method_path_and_body() {
    let of = |verb, namespace, name, body| {
        ApiRequest::new(verb, ResourceRef::of::<ConfigMap>(), namespace, name, "", body)
    };
    let (none, body) = (Value::Null, json!({"a": 1}));
    for (name, request, expect) in [
        (
            "a create is of the collection",
            of(Verb::Create, "shop", "web", body.clone()),
            r#"POST /api/v1/namespaces/shop/configmaps json {"a":1}"#,
        ),
        (
            "a create of a subresource is of the object",
            ApiRequest::new(Verb::Create, ResourceRef::of::<Pod>(), "shop", "web", "eviction", body.clone()),
            r#"POST /api/v1/namespaces/shop/pods/web/eviction json {"a":1}"#,
        ),
        (
            "an update",
            of(Verb::Update, "shop", "web", body.clone()),
            r#"PUT /api/v1/namespaces/shop/configmaps/web json {"a":1}"#,
        ),
        (
            "what must not be there is looked for, without a body",
            of(Verb::RequireAbsent, "shop", "web", json!({"preconditions": {"uid": "u"}})),
            "GET /api/v1/namespaces/shop/configmaps/web json ",
        ),
        (
            "of all a collection has",
            of(Verb::Delete, "shop", "", none.clone()),
            "DELETE /api/v1/namespaces/shop/configmaps json null",
        ),
        (
            "of what has no namespace",
            ApiRequest::new(Verb::Delete, ResourceRef::of::<Node>(), "", "a", "", none),
            "DELETE /api/v1/nodes/a json null",
        ),
    ] {
        assert_eq!(sent(&request), expect, "{name}");
    }
    assert_eq!(of(Verb::Update, "shop", "web", body.clone()).key(), "shop/web");
    assert_eq!(of(Verb::Update, "", "web", body).key(), "web");
}

#[test]
fn patches_say_what_they_are() {
    let body = json!([{"op": "remove", "path": "/data"}]);
    for (patch, kind) in [
        (Patch::Merge(body.clone()), "merge-patch+json"),
        (Patch::Strategic(body.clone()), "strategic-merge-patch+json"),
        (Patch::Json(body.clone()), "json-patch+json"),
    ] {
        let told = sent(&ApiRequest::patch_object::<ConfigMap>("shop", "web", patch.clone()));
        assert_eq!(told, format!("PATCH /api/v1/namespaces/shop/configmaps/web {kind} {body}"));
        let told = sent(&ApiRequest::patch_status::<Pod>("shop", "web", patch));
        assert_eq!(told, format!("PATCH /api/v1/namespaces/shop/pods/web/status {kind} {body}"));
    }
}

#[test]
fn objects_are_sent_whole_where_they_are() {
    let object = map("shop", "web");
    let create = ApiRequest::create(&object);
    assert_eq!((create.verb, create.key().as_str()), (Verb::Create, "shop/web"));
    assert_eq!(create.body["metadata"]["resourceVersion"], "7");
    assert_eq!(create.body["kind"], "ConfigMap");
    let update = ApiRequest::update(&object);
    assert_eq!((update.verb, update.body), (Verb::Update, create.body));
}

#[test]
fn deletions_say_whose_and_how() {
    for (uid, propagation, seconds, expect) in [
        (None, Propagation::Background, None, json!({"propagationPolicy": "Background"})),
        (
            Some("u"),
            Propagation::Foreground,
            Some(0),
            json!({"propagationPolicy": "Foreground", "preconditions": {"uid": "u"}, "gracePeriodSeconds": 0}),
        ),
        (
            Some("u"),
            Propagation::Orphan,
            Some(30),
            json!({"propagationPolicy": "Orphan", "preconditions": {"uid": "u"}, "gracePeriodSeconds": 30}),
        ),
    ] {
        let request = ApiRequest::delete::<ConfigMap>("shop", "web", uid, propagation, seconds);
        let mut expect = expect;
        expect["apiVersion"] = "v1".into();
        expect["kind"] = "DeleteOptions".into();
        assert_eq!(request.body, expect, "{propagation:?}");
        assert!(sent(&request).starts_with("DELETE /api/v1/namespaces/shop/configmaps/web json {"));
    }
}

#[test]
fn a_name_that_cannot_stand_in_a_url_is_an_error() {
    for name in ["a b", "a\nb", "a\u{7f}", "ä"] {
        let request = ApiRequest::delete::<ConfigMap>("shop", name, None, Propagation::Background, None);
        let is_right = match request.to_http() {
            Ok(http) => !http.uri().path().contains([' ', '\n']),
            Err(_) => true,
        };
        assert!(is_right, "{name:?}");
    }
}
