//! The options of writes: `DeleteOptions`, preconditions, who the field manager may be.

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::metadata::Metadata;
use resources::Propagation;
use serde_json::{Value, json};

use super::decoding;
use crate::request::Authorized;
use crate::status::{Error, Result, Subject};

/// `DeleteOptions`, from the body or the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// The time that the object may take to go.
    pub grace_period_seconds: Option<i64>,
    /// The treatment of dependents; the kind's default if absent.
    pub propagation: Option<Policy>,
    /// `true` if the client is told by 202 if the object is not gone yet: only who says `orphanDependents: false`.
    pub is_waited_for: bool,
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
    /// Reads the options of a DELETE: from the body, and if there is none from the query. Warns where the kind's default
    /// is not what one expects.
    ///
    /// # Errors
    /// 400 when an option cannot be read, 422 when it has no meaning.
    pub fn of(request: &Authorized) -> Result<Self> {
        let body = decoding::options_body(request)?;
        let query = &request.info.query;
        let text = |name: &str| match &body {
            Some(body) => body.get(name).and_then(Value::as_str),
            None => query.get(name),
        };
        let grace = match &body {
            Some(body) => body.get("gracePeriodSeconds").and_then(Value::as_i64),
            None => query.number("gracePeriodSeconds")?,
        };
        let orphan = match &body {
            Some(body) => body.get("orphanDependents").and_then(Value::as_bool),
            None => query.has("orphanDependents").then(|| query.flag("orphanDependents")),
        };
        let dry_run: Vec<&str> = match &body {
            Some(body) => body
                .get("dryRun")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect(),
            None => Vec::new(),
        };
        let policy = text("propagationPolicy");
        check_deletion(policy, orphan, &dry_run)?;
        let warning = request.kind.strategy().warning_on_delete;
        if policy.is_none() && orphan.is_none() && !warning.is_empty() {
            request.notes.warn(warning);
        }
        let precondition = |name: &str| {
            let preconditions = body.as_ref().and_then(|body| body.get("preconditions"));
            preconditions.and_then(|p| p.get(name)).and_then(Value::as_str).map(str::to_owned)
        };
        Ok(Self {
            // As fast as possible, but not by force.
            grace_period_seconds: grace.map(|seconds| if seconds < 0 { 1 } else { seconds }),
            propagation: policy.and_then(Policy::parse).or(match orphan {
                Some(true) => Some(Policy::Orphan),
                Some(false) => Some(Policy::Background),
                None => None,
            }),
            is_waited_for: orphan == Some(false),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            is_dry_run: request.is_dry_run() || dry_run.contains(&"All"),
        })
    }

    /// The options as an object, for whoever is asked about the deletion.
    pub(super) fn shown(&self) -> Value {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        let mut set = |name: &str, value: Value| {
            if !value.is_null() {
                options[name] = value;
            }
        };
        set("gracePeriodSeconds", json!(self.grace_period_seconds));
        set("propagationPolicy", json!(self.propagation.map(Policy::as_str)));
        if self.uid.is_some() || self.resource_version.is_some() {
            let mut preconditions = json!({});
            for (name, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
                if let Some(value) = value {
                    preconditions[name] = value.as_str().into();
                }
            }
            set("preconditions", preconditions);
        }
        if self.is_dry_run {
            set("dryRun", json!(["All"]));
        }
        options
    }

    /// Checks the preconditions against an object.
    ///
    /// # Errors
    /// 409 with upstream's text.
    pub fn check(&self, request: &Authorized, object: &Value) -> Result<()> {
        let metadata = Metadata::of(object);
        let pairs = [
            (&self.uid, metadata.uid(), "UID", "deleted and then recreated"),
            (&self.resource_version, metadata.resource_version(), "ResourceVersion", "modified"),
        ];
        for (wanted, found, what, fate) in pairs {
            if let Some(wanted) = wanted
                && wanted != found
            {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
                     The object might have been {fate}"
                );
                return Err(Error::conflict(request.kind.kind_subject(), metadata.name(), &why));
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
pub fn precondition_failed(request: &Authorized, name: &str, what: &str, wanted: &str, found: &str) -> Error {
    let why =
        format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
    Error::conflict(request.subject(), name, &why)
}

impl Policy {
    fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "Background" => Self::Background,
            "Foreground" => Self::Foreground,
            "Orphan" => Self::Orphan,
            _ => return None,
        })
    }
}

/// Checks what the options of a DELETE say. Source: `ValidateDeleteOptions`.
fn check_deletion(policy: Option<&str>, orphan: Option<bool>, dry_run: &[&str]) -> Result<()> {
    let mut errors = FieldErrors::new();
    let path = Path::new("propagationPolicy");
    if let Some(policy) = policy {
        if orphan.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&path, policy, why));
        }
        if Policy::parse(policy).is_none() {
            errors.push(FieldError::not_supported(
                &path,
                policy,
                &["Foreground", "Background", "Orphan", "nil"],
            ));
        }
    }
    for other in dry_run.iter().filter(|stage| **stage != "All") {
        errors.push(FieldError::not_supported(&Path::new("dryRun"), *other, &["All"]));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(Subject { group: "meta.k8s.io", resource: "DeleteOptions" }, "", &errors))
}
