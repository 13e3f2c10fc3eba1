//! Kinds that are never stored: a POST asks a question and gets the object back with its answer.
//!
//! Source: `pkg/registry/authorization`, `pkg/registry/authentication`.

use auth::{Attributes, Decision, UserInfo};
use http::StatusCode;
use serde_json::{Value, json};

use crate::admission::text;
use crate::api::Api;
use crate::status::{Error, Result};
use crate::verbs::{Answer, Request};

/// Answers a review.
///
/// # Errors
/// 400 when the question cannot be understood.
pub async fn review(api: &Api, request: &Request, mut object: Value) -> Result<Answer> {
    let status = match request.kind.kind() {
        "SelfSubjectAccessReview" => access(api, &request.user, &object)?,
        "SubjectAccessReview" | "LocalSubjectAccessReview" => access(api, &subject(&object), &object)?,
        "SelfSubjectRulesReview" => {
            let namespace = text(&object, "/spec/namespace");
            api.security.rules(&request.user, namespace)
        }
        "SelfSubjectReview" => json!({"userInfo": user_info(&request.user)}),
        "TokenReview" => token(api, &object),
        "Binding" => return bind(api, request, object).await,
        _ => return Err(Error::method_not_allowed()),
    };
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
    Ok(Answer::Value { code: StatusCode::CREATED, value: object, warnings: Vec::new() })
}

fn access(api: &Api, user: &UserInfo, object: &Value) -> Result<Value> {
    let attributes = match (
        object.pointer("/spec/resourceAttributes"),
        object.pointer("/spec/nonResourceAttributes"),
    ) {
        (Some(resource), None) => {
            let field =
                |name: &str| resource.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            Attributes {
                verb: field("verb"),
                group: field("group"),
                version: field("version"),
                resource: field("resource"),
                subresource: field("subresource"),
                namespace: field("namespace"),
                name: field("name"),
                is_resource: true,
                ..Attributes::default()
            }
        }
        (None, Some(path)) => Attributes {
            verb: path.get("verb").and_then(Value::as_str).unwrap_or_default().to_owned(),
            path: path.get("path").and_then(Value::as_str).unwrap_or_default().to_owned(),
            ..Attributes::default()
        },
        _ => {
            return Err(Error::bad_request(
                "spec.resourceAttributes: Invalid value: must specify exactly one of resourceAttributes or nonResourceAttributes",
            ));
        }
    };
    Ok(match api.security.decide(user, &attributes) {
        Decision::Allow(reason) => with_reason(json!({"allowed": true}), &reason),
        Decision::NoOpinion(reason) => with_reason(json!({"allowed": false}), &reason),
        Decision::Deny(reason) => with_reason(json!({"allowed": false, "denied": true}), &reason),
    })
}

fn with_reason(mut status: Value, reason: &str) -> Value {
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

fn subject(object: &Value) -> UserInfo {
    let list = |value: Option<&Value>| -> Vec<String> {
        value
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let extra = object.pointer("/spec/extra").and_then(Value::as_object);
    UserInfo {
        name: text(object, "/spec/user").to_owned(),
        uid: text(object, "/spec/uid").to_owned(),
        groups: list(object.pointer("/spec/groups")),
        extra: extra.into_iter().flatten().map(|(k, v)| (k.clone(), list(Some(v)))).collect(),
    }
}

/// A user as the API shows it.
pub fn user_info(user: &UserInfo) -> Value {
    let mut value = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        value["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        value["extra"] = json!(user.extra);
    }
    value
}

fn token(api: &Api, object: &Value) -> Value {
    let audiences: Vec<String> = object
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    match api.security.check_token(api, text(object, "/spec/token"), &audiences) {
        Ok((user, audiences)) => {
            json!({"authenticated": true, "user": user_info(&user), "audiences": audiences})
        }
        Err(why) => json!({"authenticated": false, "error": why, "user": {}}),
    }
}

/// POST of a Binding to the collection: the same as `pods/binding`.
async fn bind(api: &Api, request: &Request, object: Value) -> Result<Answer> {
    let Some(kind) = crate::kinds::Kind::find("", "v1", "pods") else { return Err(Error::unknown_path()) };
    let resource = crate::request_info::ResourceInfo {
        resource: "pods".to_owned(),
        subresource: "binding".to_owned(),
        name: text(&object, "/metadata/name").to_owned(),
        ..request.resource.clone()
    };
    let one = request.with_resource(kind, resource);
    crate::verbs::subresources::run(api, &one).await
}
