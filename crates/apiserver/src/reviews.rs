//! Kinds that are never stored: a POST asks a question and gets the object back with its answer.
//!
//! Source: `pkg/registry/authorization`, `pkg/registry/authentication`.

use auth::{Attributes, Decision, UserInfo};
use http::StatusCode;
use machinery::field::{FieldError, FieldErrors, Path};
use serde_json::{Value, json};

use crate::admission::unstored;
use crate::answer::Answer;
use crate::api::Api;
use crate::audit::user_info;
use crate::request::Authorized;
use crate::status::{Error, Result};
use crate::tree::text;
use crate::write::decoding;

/// Answers a review.
///
/// # Errors
/// 400 when the question cannot be understood.
pub async fn review(api: &Api, request: &Authorized) -> Result<Answer> {
    let mut object = unstored::post(api, request, decoding::unstored(request)?).await?;
    let status = match request.kind.kind() {
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            access(api, request, &object).await?
        }
        "SelfSubjectRulesReview" => {
            let namespace = text(&object, "/spec/namespace");
            if namespace.is_empty() {
                return Err(Error::bad_request("no namespace on request"));
            }
            api.security.rules(request.user(), namespace)
        }
        "SelfSubjectReview" => json!({"userInfo": user_info(request.user())}),
        "TokenReview" => token(api, &object).await?,
        _ => return Err(Error::method_not_allowed()),
    };
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
    Ok(Answer::Value { code: StatusCode::CREATED, value: object })
}

/// What a question is about, or every field of it that makes no sense.
fn attributes(object: &Value) -> Result<Attributes, FieldErrors> {
    let path = Path::new("spec");
    let given = |name: &str| object.pointer(&format!("/spec/{name}")).filter(|value| !value.is_null());
    match (given("resourceAttributes"), given("nonResourceAttributes")) {
        (Some(resource), None) => resource_attributes(resource, &path.child("resourceAttributes")),
        (None, Some(other)) => Ok(Attributes {
            verb: text(other, "/verb").to_owned(),
            path: text(other, "/path").to_owned(),
            ..Attributes::default()
        }),
        (Some(_), Some(other)) => Err(FieldErrors::from(FieldError::invalid(
            &path.child("nonResourceAttributes"),
            other,
            "cannot be specified in combination with resourceAttributes",
        ))),
        (None, None) => Err(FieldErrors::from(FieldError::invalid(
            &path.child("resourceAttributes"),
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ))),
    }
}

fn resource_attributes(resource: &Value, path: &Path) -> Result<Attributes, FieldErrors> {
    let field = |name: &str| text(resource, &format!("/{name}")).to_owned();
    let mut errors = FieldErrors::new();
    for name in ["fieldSelector", "labelSelector"] {
        let Some(selector) = resource.get(name).filter(|selector| !selector.is_null()) else { continue };
        let path = path.child(name);
        let requirements = selector.get("requirements").and_then(Value::as_array).map_or(0, Vec::len);
        match (text(selector, "/rawSelector").is_empty(), requirements) {
            (true, 0) => errors.push(FieldError::required(
                &path.child("requirements"),
                &format!("when {path} is specified, requirements or rawSelector is required"),
            )),
            (false, n) if n > 0 => errors.push(FieldError::invalid(
                &path.child("rawSelector"),
                text(selector, "/rawSelector"),
                "may not specified at the same time as requirements",
            )),
            _ => {}
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Attributes {
        verb: field("verb"),
        group: field("group"),
        version: field("version"),
        resource: field("resource"),
        subresource: field("subresource"),
        namespace: field("namespace"),
        name: field("name"),
        field_selector: field_selector(resource.get("fieldSelector")),
        label_selector: label_selector(resource.get("labelSelector")),
        is_resource: true,
        ..Attributes::default()
    })
}

/// The text of a field selector; requirements that it cannot say are left out, which asks for more.
fn field_selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    let raw = text(selector, "/rawSelector");
    if !raw.is_empty() {
        return raw.to_owned();
    }
    let requirements = selector.get("requirements").and_then(Value::as_array).into_iter().flatten();
    let texts = requirements.filter_map(|requirement| {
        let key = text(requirement, "/key");
        match (text(requirement, "/operator"), words(requirement.get("values")).as_slice()) {
            ("In", [one]) => Some(format!("{key}={one}")),
            ("NotIn", [one]) => Some(format!("{key}!={one}")),
            _ => None,
        }
    });
    texts.collect::<Vec<_>>().join(",")
}

/// The text of a label selector; requirements that it cannot say are left out, which asks for more.
fn label_selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    let raw = text(selector, "/rawSelector");
    if !raw.is_empty() {
        return raw.to_owned();
    }
    let is_value = |value: &String| machinery::names::label_value(value).is_empty();
    let requirements = selector.get("requirements").and_then(Value::as_array).into_iter().flatten();
    let texts = requirements.filter_map(|requirement| {
        let (key, values) = (text(requirement, "/key"), words(requirement.get("values")));
        if !machinery::names::qualified_name(key).is_empty() || !values.iter().all(is_value) {
            return None;
        }
        match (text(requirement, "/operator"), values.is_empty()) {
            ("In", false) => Some(format!("{key} in ({})", values.join(","))),
            ("NotIn", false) => Some(format!("{key} notin ({})", values.join(","))),
            ("Exists", true) => Some(key.to_owned()),
            ("DoesNotExist", true) => Some(format!("!{key}")),
            _ => None,
        }
    });
    texts.collect::<Vec<_>>().join(",")
}

fn words(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// May I, may they, may they here: each asks a little differently.
async fn access(api: &Api, request: &Authorized, object: &Value) -> Result<Value> {
    let is_self = request.kind.kind() == "SelfSubjectAccessReview";
    let path = Path::new("spec");
    let user = if is_self { request.user().clone() } else { subject(object) };
    let (attributes, mut errors) = match attributes(object) {
        Ok(attributes) => (attributes, FieldErrors::new()),
        Err(errors) => (Attributes::default(), errors),
    };
    if !is_self && user.name.is_empty() && user.groups.is_empty() {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid(&path.child("user"), "", why));
    }
    if request.kind.is_namespaced() {
        let namespace = &request.resource.namespace;
        if attributes.is_resource && attributes.namespace != *namespace {
            let path = path.child("resourceAttributes").child("namespace");
            errors.push(FieldError::invalid(
                &path,
                attributes.namespace.as_str(),
                "must match metadata.namespace",
            ));
        }
        if !attributes.is_resource && errors.is_empty() {
            let path = path.child("nonResourceAttributes");
            errors.push(FieldError::invalid(&path, &Value::Null, "disallowed on this kind of request"));
        }
    }
    if !errors.is_empty() {
        return Err(Error::invalid(request.kind.kind_subject(), "", &errors));
    }
    let verdict = api.security.decide(&user, &attributes).await;
    let mut status = match verdict.decision {
        Decision::Allow(reason) => with_reason(json!({"allowed": true}), &reason),
        Decision::NoOpinion(reason) => with_reason(json!({"allowed": false}), &reason),
        Decision::Deny(reason) => with_reason(json!({"allowed": false, "denied": true}), &reason),
    };
    if let Some(error) = verdict.error {
        status["evaluationError"] = error.into();
    }
    Ok(status)
}

fn with_reason(mut status: Value, reason: &str) -> Value {
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

fn subject(object: &Value) -> UserInfo {
    let extra = object.pointer("/spec/extra").and_then(Value::as_object);
    UserInfo {
        name: text(object, "/spec/user").to_owned(),
        uid: text(object, "/spec/uid").to_owned(),
        groups: words(object.pointer("/spec/groups")),
        extra: extra.into_iter().flatten().map(|(k, v)| (k.clone(), words(Some(v)))).collect(),
    }
}

async fn token(api: &Api, object: &Value) -> Result<Value> {
    let token = text(object, "/spec/token");
    if token.is_empty() {
        return Err(Error::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = words(object.pointer("/spec/audiences"));
    Ok(match api.security.check_token(token, &audiences).await {
        Ok(found) => {
            json!({"authenticated": true, "user": user_info(&found.user), "audiences": found.audiences})
        }
        Err(why) => json!({"error": why.to_string(), "user": {}}),
    })
}
