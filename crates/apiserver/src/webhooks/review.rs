//! The review that a webhook is sent, and its answer.
//!
//! An answer is believed as far as it says what was asked: its own uid, its own version, a patch only where one can be
//! used. Source: `plugin/webhook/request/admissionreview.go`, `plugin/webhook/errors`.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::attributes::{Attributes, Form, TypeName};
use super::hooks::ReviewVersion;
use crate::codec;
use crate::kinds::Kind;
use crate::negotiate::Format;
use crate::status::Error;

const REVIEW: &str = "AdmissionReview";
/// How many audit annotations of one answer are kept.
const ANNOTATIONS_MAX: usize = 64;

impl ReviewVersion {
    /// `admission.k8s.io/v1`
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: Request<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: &'a str,
    kind: KindName<'a>,
    resource: ResourceName<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: KindName<'a>,
    request_resource: ResourceName<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'static str,
    user_info: User<'a>,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
    dry_run: bool,
    options: &'a Value,
}

#[derive(Serialize)]
struct KindName<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

#[derive(Serialize)]
struct ResourceName<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

#[derive(Serialize)]
struct User<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

impl<'a> From<TypeName<'a>> for KindName<'a> {
    fn from(TypeName { group, version, kind }: TypeName<'a>) -> Self {
        Self { group, version, kind }
    }
}

impl<'a> From<&'a Kind> for ResourceName<'a> {
    fn from(kind: &'a Kind) -> Self {
        Self { group: kind.group(), version: kind.version(), resource: kind.resource() }
    }
}

/// The object as a webhook is shown it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// As it is to be.
    pub object: Option<&'a Value>,
    /// As it was.
    pub old: Option<&'a Value>,
}

/// The review that a webhook is sent.
///
/// # Errors
/// If an object cannot be written.
pub fn request(
    version: ReviewVersion,
    uid: &str,
    attributes: &Attributes<'_>,
    form: &Form,
    shown: Shown<'_>,
) -> Result<Bytes, serde_json::Error> {
    let request = request_of(uid, attributes, form, shown);
    let review = Review { kind: REVIEW, api_version: version.api_version(), request };
    serde_json::to_vec(&review).map(Bytes::from)
}

/// The request as conditions see it, without its objects: those have names of their own.
pub fn request_value(attributes: &Attributes<'_>, form: &Form) -> Value {
    let request = request_of("", attributes, form, Shown { object: None, old: None });
    let mut value = serde_json::to_value(&request).unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, field| !field.is_null());
        map.remove("uid");
    }
    value
}

fn request_of<'a>(
    uid: &'a str,
    attributes: &'a Attributes<'_>,
    form: &'a Form,
    shown: Shown<'a>,
) -> Request<'a> {
    let user = attributes.user;
    Request {
        uid,
        kind: attributes.type_name(&form.0).into(),
        resource: (&form.0).into(),
        sub_resource: attributes.subresource,
        request_kind: attributes.type_name(attributes.kind).into(),
        request_resource: attributes.kind.into(),
        request_sub_resource: attributes.subresource,
        name: attributes.name,
        namespace: attributes.namespace,
        operation: attributes.operation.as_str(),
        user_info: User { username: &user.name, uid: &user.uid, groups: &user.groups, extra: &user.extra },
        object: shown.object,
        old_object: shown.old,
        dry_run: attributes.is_dry_run,
        options: attributes.options,
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answered {
    #[serde(deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "or_default")]
    api_version: String,
    response: Option<Response>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    #[serde(deserialize_with = "or_default")]
    uid: String,
    #[serde(deserialize_with = "or_default")]
    allowed: bool,
    status: Option<Status>,
    #[serde(deserialize_with = "or_default")]
    patch: String,
    patch_type: Option<String>,
    #[serde(deserialize_with = "or_default")]
    audit_annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    warnings: Vec<String>,
}

/// The reason why a webhook refuses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Status {
    #[serde(deserialize_with = "or_default")]
    message: String,
    #[serde(deserialize_with = "or_default")]
    reason: String,
    #[serde(deserialize_with = "or_default")]
    code: i64,
    details: Value,
}

/// Go reads null as nothing at all.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The verdict of a webhook.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// `true` if the request may go on.
    pub is_allowed: bool,
    /// The reason of a refusal.
    pub status: Option<Status>,
    /// The patch; empty for none.
    pub patch: Vec<u8>,
    /// In which form it says so.
    pub patch_type: String,
    /// The annotations for the audit log, without the webhook's name.
    pub annotations: BTreeMap<String, String>,
    /// The warnings for the client.
    pub warnings: Vec<String>,
}

/// The duty of a webhook: whether its answer may have a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// It may.
    Mutating,
    /// It may not.
    Validating,
}

/// The defect of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It is no review.
    #[error("{0}")]
    Unreadable(String),
    /// It is not an answer to what was asked.
    #[error("{0}")]
    Invalid(String),
}

/// Reads an answer.
///
/// # Errors
/// As [`AnswerError`].
pub fn verdict(version: ReviewVersion, uid: &str, duty: Duty, body: &[u8]) -> Result<Verdict, AnswerError> {
    let value =
        codec::decode(Format::Json, body).map_err(|failure| AnswerError::Unreadable(failure.message))?;
    let invalid = |why: String| Err(AnswerError::Invalid(why));
    let answered: Answered = serde_json::from_value(value)
        .map_err(|failure| AnswerError::Unreadable(format!("json: cannot unmarshal: {failure}")))?;
    let Some(response) = answered.response else { return invalid("webhook response was absent".to_owned()) };
    let decoded = STANDARD.decode(response.patch.replace(['\r', '\n'], ""));
    let patch =
        decoded.map_err(|failure| AnswerError::Unreadable(format!("illegal base64 data: {failure}")))?;
    let mut patch_type = response.patch_type;
    if version == ReviewVersion::V1 {
        if response.uid != uid {
            return invalid(format!("expected response.uid={uid:?}, got {:?}", response.uid));
        }
        if answered.kind != REVIEW || answered.api_version != version.api_version() {
            let (group, version_sent) = split(&answered.api_version);
            return invalid(format!(
                "expected webhook response of {}, Kind={REVIEW}, got {group}/{version_sent}, Kind={}",
                version.api_version(),
                answered.kind
            ));
        }
        if let Some(why) = wrong_patch(duty, patch.is_empty(), patch_type.as_deref()) {
            return invalid(why);
        }
    } else {
        // The older version never said of what type a patch is, and nobody looked at those of validating webhooks.
        patch_type = (!patch.is_empty()).then(|| "JSONPatch".to_owned());
    }
    let is_used = duty == Duty::Mutating;
    Ok(Verdict {
        is_allowed: response.allowed,
        status: response.status,
        patch: if is_used { patch } else { Vec::new() },
        patch_type: patch_type.filter(|_| is_used).unwrap_or_default(),
        annotations: response.audit_annotations.into_iter().take(ANNOTATIONS_MAX).collect(),
        warnings: response.warnings,
    })
}

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

fn wrong_patch(duty: Duty, is_empty: bool, patch_type: Option<&str>) -> Option<String> {
    let why = match (duty, is_empty, patch_type) {
        (Duty::Mutating, false, None) => "webhook returned response.patch but not response.patchType",
        (Duty::Mutating, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (Duty::Mutating, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (Duty::Validating, false, _) => "validating webhook may not return response.patch",
        (Duty::Validating, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => return None,
    };
    Some(why.to_owned())
}

/// The error for the client about a refusal: in the webhook's own words, as an error whatever it says.
pub fn refusal(name: &str, status: Option<Status>) -> Error {
    let Status { message, reason, code, details } = status.unwrap_or_default();
    let denied = format!("admission webhook {name:?} denied the request");
    let message = match (message.as_str(), reason.as_str()) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = u16::try_from(code.max(400)).ok().and_then(|code| StatusCode::from_u16(code).ok());
    let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let details = if details.is_object() { details } else { Value::Null };
    Error::foreign(code, reason, message, details)
}

/// `true` if the audit log takes a key: a webhook's name, a slash, and a name.
pub fn is_annotation_key(key: &str) -> bool {
    key.matches('/').count() == 1 && machinery::names::qualified_name(key).is_empty()
}

#[cfg(test)]
mod tests;
