//! The options of writes: `DeleteOptions`, preconditions, field validation.

use machinery::metadata::Metadata;
use resources::Propagation;
use serde_json::Value;

use super::Request;
use crate::status::{Error, Result};

/// `DeleteOptions`, from the body or the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// How long the object may take to go.
    pub grace_period_seconds: Option<i64>,
    /// What happens to dependents; the kind's default if absent.
    pub propagation: Option<Policy>,
    /// The object must have this uid.
    pub uid: Option<String>,
    /// The object must be at this revision.
    pub resource_version: Option<String>,
    /// Nothing may be stored.
    pub is_dry_run: bool,
}

/// `propagationPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The object goes first.
    Background,
    /// The object goes last.
    Foreground,
    /// Dependents stay.
    Orphan,
}

impl DeleteOptions {
    /// Reads the options of a DELETE; the body wins over the query.
    ///
    /// # Errors
    /// 400 when an option cannot be read, 422 when it has no meaning.
    pub fn of(request: &Request) -> Result<Self> {
        let body = super::decode::options_body(request)?;
        let query = &request.info.query;
        let text = |name: &str| body.get(name).and_then(Value::as_str).or_else(|| query.get(name));
        let grace = match body.get("gracePeriodSeconds").and_then(Value::as_i64) {
            Some(seconds) => Some(seconds),
            None => query.number("gracePeriodSeconds")?,
        };
        let propagation = match text("propagationPolicy") {
            None => orphan_dependents(&body, query.get("orphanDependents")),
            Some("Background") => Some(Policy::Background),
            Some("Foreground") => Some(Policy::Foreground),
            Some("Orphan") => Some(Policy::Orphan),
            Some(other) => {
                return Err(Error::bad_request(format!(
                    "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: {other:?}: \
                     supported values: \"Background\", \"Foreground\", \"Orphan\""
                )));
            }
        };
        let precondition = |name: &str| {
            body.get("preconditions").and_then(|p| p.get(name)).and_then(Value::as_str).map(str::to_owned)
        };
        let body_dry_run = body
            .get("dryRun")
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|entry| entry == "All"));
        Ok(Self {
            grace_period_seconds: grace,
            propagation,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            is_dry_run: request.is_dry_run() || body_dry_run,
        })
    }

    /// Checks the preconditions against an object.
    ///
    /// # Errors
    /// 409 with upstream's text.
    pub fn check(&self, request: &Request, object: &Value) -> Result<()> {
        let metadata = Metadata::of(object);
        let pairs = [
            (&self.uid, metadata.uid(), "UID"),
            (&self.resource_version, metadata.resource_version(), "ResourceVersion"),
        ];
        for (wanted, found, what) in pairs {
            if let Some(wanted) = wanted
                && wanted != found
            {
                return Err(precondition_failed(request, metadata.name(), what, wanted, found));
            }
        }
        Ok(())
    }

    /// The finalizer that the propagation policy asks for, given the kind's default.
    pub fn finalizer(&self, default: Propagation) -> Option<&'static str> {
        match self.propagation {
            Some(Policy::Foreground) => Some("foregroundDeletion"),
            Some(Policy::Orphan) => Some("orphan"),
            Some(Policy::Background) => None,
            None if default == Propagation::Orphan => Some("orphan"),
            None => None,
        }
    }
}

/// 409: a precondition does not hold.
pub fn precondition_failed(request: &Request, name: &str, what: &str, wanted: &str, found: &str) -> Error {
    let why =
        format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
    Error::conflict(request.subject(), name, &why)
}

fn orphan_dependents(body: &Value, query: Option<&str>) -> Option<Policy> {
    let flag = body.get("orphanDependents").and_then(Value::as_bool).or(query.map(|text| text == "true"))?;
    Some(if flag { Policy::Orphan } else { Policy::Background })
}

/// What is done about unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// A `Warning` header each; the default.
    Warn,
    /// 400.
    Strict,
}

impl FieldValidation {
    /// Reads `fieldValidation`.
    ///
    /// # Errors
    /// 400 for other words.
    pub fn of(request: &Request) -> Result<Self> {
        match request.info.query.get("fieldValidation") {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(Error::bad_request(format!(
                "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
            ))),
        }
    }
}
