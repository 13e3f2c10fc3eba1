//! EventRateLimit: Events beyond a rate are refused, per server, namespace, user, or source and object. Off by default; it
//! needs a configuration.
//!
//! Events of both groups count: they are the same objects. Source: `plugin/pkg/admission/eventratelimit`.

use serde_json::Value;

use super::{Context, Operation, text};
pub use crate::event_rate_limits::EventRateLimits;
use crate::event_rate_limits::Kind;
use crate::status::{Error, Result};

/// Refuses Events beyond the limits.
pub(super) fn validate(context: &Context<'_>, event: &Value) -> Result<()> {
    let kind = &context.request.kind;
    let is_event = kind.resource() == "events" && matches!(kind.group(), "" | "events.k8s.io");
    if !is_event || context.operation == Operation::Delete {
        return Ok(());
    }
    let limits = &context.cluster.config.options.event_rate_limits;
    let key = |kind: Kind| match kind {
        Kind::Server => String::new(),
        Kind::Namespace => context.request.resource.namespace.clone(),
        Kind::User => context.request.user().name.clone(),
        Kind::SourceAndObject => source_and_object(event),
    };
    limits.take(context.cluster.clock.now(), key).map_err(|why| {
        let mut error = Error::too_many_requests(format!("Too many requests: {why}"), 1);
        error.details = Value::Null;
        error
    })
}

/// Whom an event is from and what it is about, whichever group names the fields.
fn source_and_object(event: &Value) -> String {
    let either = |one: &str, other: &str| match text(event, one) {
        "" => text(event, other).to_owned(),
        found => found.to_owned(),
    };
    let mut key = either("/source/component", "/deprecatedSource/component");
    key += &either("/source/host", "/deprecatedSource/host");
    for field in ["kind", "namespace", "name", "uid", "apiVersion"] {
        key += &either(&format!("/involvedObject/{field}"), &format!("/regarding/{field}"));
    }
    key
}
