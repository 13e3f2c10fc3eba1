//! Errors and the one place that turns them into a Kubernetes `Status`.
//!
//! Every failure a client can see is made here, with upstream's reason, code, details and text. Storage keys,
//! Rust names and addresses never appear; they go to the log.
//! Source: `k8s.io/apimachinery/pkg/api/errors`.

use std::collections::HashSet;

use http::StatusCode;
use machinery::field::{FieldErrors, Reason};
use serde_json::{Value, json};
use store::StoreError;

/// The result of every stage of a request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed request, ready to be shown.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The HTTP status.
    pub code: StatusCode,
    /// `Status.reason`; clients branch on it.
    pub reason: StatusReason,
    /// `Status.message`.
    pub message: String,
    /// `Status.details`, or null.
    pub details: Value,
    /// `Status.metadata.continue`: how a list whose revision is gone can go on.
    pub continue_token: Option<String>,
}

/// `Status.reason`. Whoever branches on one means what this server found: a stranger's is equal to none.
#[derive(Clone, Debug)]
pub enum StatusReason {
    /// This server's.
    Own(&'static str),
    /// What somebody else says, such as a webhook.
    Foreign(String),
}

impl StatusReason {
    /// The reason that clients are told.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Own(reason) => reason,
            Self::Foreign(reason) => reason,
        }
    }
}

impl PartialEq<&str> for StatusReason {
    fn eq(&self, reason: &&str) -> bool {
        matches!(self, Self::Own(own) if own == reason)
    }
}

/// The resource (or kind) that an error is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The API group; empty for core.
    pub group: &'a str,
    /// The plural, or the kind where upstream names the kind.
    pub resource: &'a str,
}

impl Subject<'_> {
    /// `deployments.apps`, or `pods`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self, name: &str) -> Value {
        let mut details = serde_json::Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !self.group.is_empty() {
            details.insert("group".into(), self.group.into());
        }
        if !self.resource.is_empty() {
            details.insert("kind".into(), self.resource.into());
        }
        Value::Object(details)
    }
}

impl Error {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        let reason = StatusReason::Own(reason);
        Self { code, reason, message: message.into(), details: Value::Null, continue_token: None }
    }

    fn about(mut self, subject: Subject<'_>, name: &str) -> Self {
        self.details = subject.details(name);
        self
    }

    /// 404 for an object.
    pub fn not_found(subject: Subject<'_>, name: &str) -> Self {
        let message = format!("{} {name:?} not found", subject.qualified());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(subject, name)
    }

    /// 404 for a path or resource type that is not served.
    pub fn unknown_path() -> Self {
        let mut error =
            Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource");
        error.details = json!({});
        error
    }

    /// `true` if no path or resource type was found, as opposed to an object.
    pub fn is_unknown_path(&self) -> bool {
        self.code == StatusCode::NOT_FOUND && self.details.get("name").is_none()
    }

    /// 409: create of what is there.
    pub fn already_exists(subject: Subject<'_>, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", subject.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(subject, name)
    }

    /// 409: create of what is there, under a name that the server has made up.
    pub fn name_not_generated(subject: Subject<'_>, name: &str) -> Self {
        let mut error = Self::already_exists(subject, name);
        error.message += ", the server was not able to generate a unique name for the object";
        error.details["retryAfterSeconds"] = 1.into();
        error
    }

    /// 409: the object changed in between.
    pub fn modified(subject: Subject<'_>, name: &str) -> Self {
        Self::conflict(
            subject,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 with a reason of one's own.
    pub fn conflict(subject: Subject<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", subject.qualified());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(subject, name)
    }

    /// 422 with every broken field; `kind.resource` is the kind.
    pub fn invalid(kind: Subject<'_>, name: &str, errors: &FieldErrors) -> Self {
        let mut seen = HashSet::new();
        let shown = errors.iter();
        let mut texts: Vec<String> =
            shown.clone().map(ToString::to_string).filter(|text| seen.insert(text.clone())).collect();
        if errors.left_out() > 0 {
            texts.push(format!("and {} more", errors.left_out()));
        }
        let joined = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {name:?} is invalid: {joined}", kind.qualified());
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(kind, name);
        error.details["causes"] = shown
            .map(|e| {
                json!({"reason": cause_reason(e.reason), "message": e.message, "field": e.path.to_string()})
            })
            .collect();
        error
    }

    /// 403 for an object or a collection.
    pub fn forbidden(subject: Subject<'_>, name: &str, why: &str) -> Self {
        let qualified = subject.qualified();
        let message = if name.is_empty() {
            format!("{qualified} is forbidden: {why}")
        } else {
            format!("{qualified} {name:?} is forbidden: {why}")
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(subject, name)
    }

    /// 403 for a path.
    pub fn forbidden_path(why: &str) -> Self {
        let mut error = Self::new(StatusCode::FORBIDDEN, "Forbidden", format!("forbidden: {why}"));
        error.details = json!({});
        error
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        let text = "the server does not allow this method on the requested resource";
        let mut error = Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", text);
        error.details = json!({});
        error
    }

    /// 406.
    pub fn not_acceptable() -> Self {
        let text = "only the following media types are accepted: application/json, application/yaml, \
                    application/vnd.kubernetes.protobuf";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", text)
    }

    /// 406: what there is cannot be seen in this way.
    pub fn no_such_view(message: String) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 415; `accepted` is the list of media types.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        let text = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", text)
    }

    /// 405: the kind is about to go.
    pub fn ending(verb: &str) -> Self {
        let text = format!("{verb} not allowed while custom resource definition is terminating");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", text)
    }

    /// 410: the revision asked for is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 410 for a resourceVersion below what is kept.
    pub fn too_old(requested: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// 504 for a resourceVersion that has not happened yet.
    pub fn too_large(requested: u64, current: u64) -> Self {
        let text = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", text);
        error.details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        error
    }

    /// 504: it took too long.
    pub fn timeout(what: &str) -> Self {
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {what}"));
        error.details = json!({});
        error
    }

    /// 429; clients wait for as many seconds.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        error.details = json!({"retryAfterSeconds": retry_after_seconds});
        error
    }

    /// 413.
    pub fn too_large_body(limit_bytes: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit_bytes}"),
        )
    }

    /// 413 with a text of one's own.
    pub fn entity_too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 422: a patch that does not fit. Upstream does not say why; that is a cause here, which kubectl shows.
    pub fn unprocessable(why: impl Into<String>) -> Self {
        let text = "the server rejected our request due to an error in our request";
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text);
        error.details = json!({"causes": [{"message": why.into()}]});
        error
    }

    /// 500; `message` is shown, so it says nothing of the inside.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let text = format!("Internal error occurred: {message}");
        let mut error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", text);
        error.details = json!({"causes": [{"message": message.to_string()}]});
        error
    }

    /// 500 without a reason, as upstream tells of what it has no kind of error for.
    pub fn of_unknown_reason(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// The store could not commit: 507 when there is no room, 503 when it may work again, 500 otherwise.
    ///
    /// Upstream has no reason of its own for 507. client-go shows the message and tries again only where a
    /// `Retry-After` says so, which would not make room.
    pub fn of_store(failure: StoreError) -> Self {
        match failure {
            StoreError::NoSpace => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", failure.to_string())
            }
            StoreError::Refused(_) => Self::unavailable(failure.to_string()),
            StoreError::Failed(_) => Self::unavailable(
                "the store failed and nothing more is written; the API server starts over from what is on disk",
            ),
            StoreError::Damaged(_) => Self::internal("what the store has of this object is damaged"),
            _ => Self::internal("the store could not commit the change"),
        }
    }

    /// A refusal in somebody else's words.
    pub fn foreign(code: StatusCode, reason: String, message: String, details: Value) -> Self {
        Self { code, reason: StatusReason::Foreign(reason), message, details, continue_token: None }
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.as_str().is_empty() {
            status["reason"] = self.reason.as_str().into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"] = json!({"continue": token});
        }
        status
    }

    /// The value of `Retry-After`, if clients should wait.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }
}

/// A `Status` that says that all went well.
pub fn success(details: Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

fn cause_reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Required => "FieldValueRequired",
        Reason::Invalid => "FieldValueInvalid",
        Reason::NotSupported => "FieldValueNotSupported",
        Reason::Forbidden => "FieldValueForbidden",
        Reason::Duplicate => "FieldValueDuplicate",
        Reason::NotFound => "FieldValueNotFound",
        Reason::TooLong => "FieldValueTooLong",
        Reason::TooMany => "FieldValueTooMany",
        Reason::TypeInvalid => "FieldValueTypeInvalid",
        Reason::Internal => "InternalError",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use machinery::field::{FieldError, Path};

    fn check(error: &Error, expect: Expect) {
        expect.assert_eq(&error.status().to_string());
    }

    #[test]
    fn a_missing_object_is_named_with_its_group() {
        check(
            &Error::not_found(Subject { group: "apps", resource: "deployments" }, "web"),
            expect![[
                r#"{"apiVersion":"v1","code":404,"details":{"group":"apps","kind":"deployments","name":"web"},"kind":"Status","message":"deployments.apps \"web\" not found","metadata":{},"reason":"NotFound","status":"Failure"}"#
            ]],
        );
    }

    #[test]
    fn a_store_that_cannot_write_says_why() {
        let check = |failure: StoreError, code: u16, message: &str| {
            let error = Error::of_store(failure);
            assert_eq!((error.code.as_u16(), error.message.as_str()), (code, message));
        };
        check(StoreError::NoSpace, 507, "no space is left for the store");
        let refused = StoreError::Refused("Input/output error (os error 5)".to_owned());
        check(refused, 503, "the disk refuses writes: Input/output error (os error 5)");
        let damaged = StoreError::Damaged("revision 3 in /secret/place".to_owned());
        check(damaged, 500, "Internal error occurred: what the store has of this object is damaged");
    }

    #[test]
    fn every_broken_field_is_a_cause() {
        let field = |name: &str, message: &str| FieldError {
            path: Path::new("spec").child(name),
            reason: Reason::Required,
            message: message.into(),
        };
        let errors = [field("a", "Required value"), field("b", "Required value")].into_iter().collect();
        check(
            &Error::invalid(Subject { group: "", resource: "Pod" }, "x", &errors),
            expect![[
                r#"{"apiVersion":"v1","code":422,"details":{"causes":[{"field":"spec.a","message":"Required value","reason":"FieldValueRequired"},{"field":"spec.b","message":"Required value","reason":"FieldValueRequired"}],"kind":"Pod","name":"x"},"kind":"Status","message":"Pod \"x\" is invalid: [spec.a: Required value, spec.b: Required value]","metadata":{},"reason":"Invalid","status":"Failure"}"#
            ]],
        );
    }
}
