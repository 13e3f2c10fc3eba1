//! Reviews as they are sent, and answers of all sorts.

use base64::Engine;
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::kinds::all::builtin;
use crate::webhooks::rules::Operation;

const UID: &str = "5f2a";

fn check(version: ReviewVersion, duty: Duty, answer: Value, expect: Result<bool, &str>) {
    let found = verdict(version, UID, duty, answer.to_string().as_bytes());
    let found = found.map(|verdict| verdict.is_allowed).map_err(|failure| failure.to_string());
    assert_eq!(found.as_ref().copied().map_err(String::as_str), expect, "{answer}");
}

fn answer(response: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

#[test]
fn an_answer_is_to_what_was_asked() {
    let mutating = |answer: Value, expect| check(ReviewVersion::V1, Duty::Mutating, answer, expect);
    mutating(answer(json!({"uid": UID, "allowed": true})), Ok(true));
    mutating(answer(json!({"uid": UID})), Ok(false));
    mutating(answer(json!({"uid": UID, "allowed": null, "warnings": null, "auditAnnotations": null})), Ok(false));
    mutating(answer(json!({"uid": UID, "allowed": true, "more": {"than": "is known"}})), Ok(true));
    mutating(json!({}), Err("webhook response was absent"));
    mutating(answer(Value::Null), Err("webhook response was absent"));
    mutating(
        answer(json!({"uid": "other", "allowed": true})),
        Err("expected response.uid=\"5f2a\", got \"other\""),
    );
    mutating(answer(json!({"allowed": true})), Err("expected response.uid=\"5f2a\", got \"\""));
    let response = json!({"uid": UID, "allowed": true});
    mutating(
        json!({"response": response}),
        Err("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="),
    );
    mutating(
        json!({"apiVersion": "v1", "kind": "Pod", "response": response}),
        Err("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /v1, Kind=Pod"),
    );
    mutating(
        json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "response": response}),
        Err("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got \
             admission.k8s.io/v1beta1, Kind=AdmissionReview"),
    );
}

#[test]
fn a_patch_comes_with_its_type_and_only_from_who_may_patch() {
    let patch = STANDARD.encode("[]");
    let with = |response: Value| {
        let mut all = json!({"uid": UID, "allowed": true});
        all.as_object_mut().unwrap().extend(response.as_object().unwrap().clone());
        answer(all)
    };
    let both = with(json!({"patch": patch, "patchType": "JSONPatch"}));
    for (duty, answer, expect) in [
        (Duty::Mutating, both.clone(), Ok(true)),
        (
            Duty::Mutating,
            with(json!({"patch": patch})),
            Err("webhook returned response.patch but not response.patchType"),
        ),
        (
            Duty::Mutating,
            with(json!({"patchType": "JSONPatch"})),
            Err("webhook returned response.patchType but not response.patch"),
        ),
        (
            Duty::Mutating,
            with(json!({"patch": patch, "patchType": ""})),
            Err("webhook returned invalid response.patchType of \"\""),
        ),
        (Duty::Validating, both.clone(), Err("validating webhook may not return response.patch")),
        (
            Duty::Validating,
            with(json!({"patchType": "JSONPatch"})),
            Err("validating webhook may not return response.patchType"),
        ),
    ] {
        check(ReviewVersion::V1, duty, answer, expect);
    }
    let verdict = verdict(ReviewVersion::V1, UID, Duty::Mutating, both.to_string().as_bytes()).unwrap();
    assert_eq!((verdict.patch.as_slice(), verdict.patch_type.as_str()), (&b"[]"[..], "JSONPatch"));
}

#[test]
fn the_older_version_is_not_so_strict() {
    let patch = STANDARD.encode("[]");
    let old = json!({"response": {"allowed": true, "patch": patch}});
    check(ReviewVersion::V1Beta1, Duty::Mutating, old.clone(), Ok(true));
    check(ReviewVersion::V1Beta1, Duty::Validating, old.clone(), Ok(true));
    let text = old.to_string();
    let mutating = verdict(ReviewVersion::V1Beta1, UID, Duty::Mutating, text.as_bytes()).unwrap();
    assert_eq!(mutating.patch_type, "JSONPatch");
    let validating = verdict(ReviewVersion::V1Beta1, UID, Duty::Validating, text.as_bytes()).unwrap();
    assert!(validating.patch.is_empty() && validating.patch_type.is_empty());
}

#[test]
fn what_is_no_review_is_no_answer() {
    let deep = "[".repeat(100_000);
    for body in [
        "",
        "null and void",
        "[]",
        "7",
        "<html>",
        "{\"response\": 7}",
        "{\"response\": {\"allowed\": \"yes\"}}",
        "{\"response\": {\"warnings\": [7]}}",
        "{\"response\": {\"patch\": \"%%%\"}}",
        "{\"response\": {\"patch\": {}}}",
        "{\"response\": {\"auditAnnotations\": {\"a\": 1}}}",
        "{\"response\": {\"status\": \"no\"}}",
        "{\"response\": {\"uid\": \"5f2a\"",
        deep.as_str(),
    ] {
        let found = verdict(ReviewVersion::V1, UID, Duty::Mutating, body.as_bytes());
        assert!(found.is_err(), "{}", body.get(..40).unwrap_or(body));
    }
}

#[test]
fn annotations_are_bounded_and_well_named() {
    let many: serde_json::Map<String, Value> = (0..1000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let body = answer(json!({"uid": UID, "allowed": true, "auditAnnotations": many}));
    let found = verdict(ReviewVersion::V1, UID, Duty::Validating, body.to_string().as_bytes()).unwrap();
    assert_eq!(found.annotations.len(), ANNOTATIONS_MAX);
    for (key, expect) in [
        ("hook.example.com/key", true),
        ("hook.example.com/a/b", false),
        ("hook.example.com/", false),
        ("hook.example.com", false),
        ("hook.example.com/a b", false),
        ("HOOK/key", false),
        ("/key", false),
    ] {
        assert_eq!(is_annotation_key(key), expect, "{key}");
    }
}

#[test]
fn a_refusal_is_in_the_webhooks_own_words() {
    let check = |status: Value, code: u16, reason: &str, message: &str| {
        let status = serde_json::from_value(status).unwrap();
        let error = refusal("hook.example.com", status);
        let found = (error.code.as_u16(), error.reason.as_str(), error.message.as_str());
        let message = format!("admission webhook \"hook.example.com\" denied the request{message}");
        assert_eq!(found, (code, reason, message.as_str()));
    };
    check(Value::Null, 400, "", " without explanation");
    check(json!({}), 400, "", " without explanation");
    check(json!({"message": "no", "code": 403, "reason": "Forbidden"}), 403, "Forbidden", ": no");
    check(json!({"reason": "TooBig"}), 400, "TooBig", ": TooBig");
    check(json!({"code": 200, "status": "Success"}), 400, "", " without explanation");
    check(json!({"code": -7}), 400, "", " without explanation");
    check(json!({"code": 999}), 999, "", " without explanation");
    check(json!({"code": 100_000}), 500, "", " without explanation");
}

#[test]
fn nobody_takes_a_webhooks_reason_for_the_servers() {
    let status = serde_json::from_value(json!({"reason": "NotFound", "code": 404})).unwrap();
    let error = refusal("hook.example.com", status);
    assert!(error.reason != "NotFound");
    assert_eq!(error.status()["reason"], "NotFound");
}

fn check_request(sent_as: Option<TypeName<'_>>, subresource: &str, expect: Expect) {
    let kinds = builtin();
    let kind = kinds.find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
    let other = kinds.find("autoscaling", "v2", "horizontalpodautoscalers").unwrap();
    let mut user = auth::UserInfo::new("alice", &["devs"]);
    user.uid = "u1".to_owned();
    user.extra.insert("scopes".to_owned(), vec!["a".to_owned()]);
    let options = json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"});
    let attributes = Attributes {
        kinds: &kinds,
        kind,
        subresource,
        sent_as,
        operation: Operation::Update,
        name: "a",
        namespace: "default",
        old: None,
        options: &options,
        is_dry_run: true,
        user: &user,
    };
    let object = json!({"kind": "X"});
    let shown = Shown { object: Some(&object), old: None };
    let form = Form(other.clone());
    let review = request(ReviewVersion::V1, UID, &attributes, &form, shown).unwrap();
    let value: Value = serde_json::from_slice(&review).unwrap();
    let text = String::from_utf8(review.to_vec()).unwrap();
    assert!(text.starts_with(r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"#));
    expect.assert_eq(&value["request"].to_string());
}

#[test]
fn a_review_says_what_was_asked_for_and_what_it_is_shown_as() {
    check_request(
        None,
        "",
        expect![[r#"{"dryRun":true,"kind":{"group":"autoscaling","kind":"HorizontalPodAutoscaler","version":"v2"},"name":"a","namespace":"default","object":{"kind":"X"},"oldObject":null,"operation":"UPDATE","options":{"apiVersion":"meta.k8s.io/v1","kind":"UpdateOptions"},"requestKind":{"group":"autoscaling","kind":"HorizontalPodAutoscaler","version":"v1"},"requestResource":{"group":"autoscaling","resource":"horizontalpodautoscalers","version":"v1"},"resource":{"group":"autoscaling","resource":"horizontalpodautoscalers","version":"v2"},"uid":"5f2a","userInfo":{"extra":{"scopes":["a"]},"groups":["devs","system:authenticated"],"uid":"u1","username":"alice"}}"#]],
    );
    let scale = TypeName { group: "autoscaling", version: "v1", kind: "Scale" };
    check_request(
        Some(scale),
        "scale",
        expect![[r#"{"dryRun":true,"kind":{"group":"autoscaling","kind":"Scale","version":"v1"},"name":"a","namespace":"default","object":{"kind":"X"},"oldObject":null,"operation":"UPDATE","options":{"apiVersion":"meta.k8s.io/v1","kind":"UpdateOptions"},"requestKind":{"group":"autoscaling","kind":"Scale","version":"v1"},"requestResource":{"group":"autoscaling","resource":"horizontalpodautoscalers","version":"v1"},"requestSubResource":"scale","resource":{"group":"autoscaling","resource":"horizontalpodautoscalers","version":"v2"},"subResource":"scale","uid":"5f2a","userInfo":{"extra":{"scopes":["a"]},"groups":["devs","system:authenticated"],"uid":"u1","username":"alice"}}"#]],
    );
}
