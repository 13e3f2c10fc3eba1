//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: asks the administrator's webhooks about what is written.
//! What is deleted, posted and opened is `unstored`'s.
//!
//! What the server writes on its own account is not asked about: it is part of a client's request that was, or of the
//! server's own start, which must not wait for a webhook that runs in the cluster. (Upstream asks about some of it.)

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::attributes::{About, asking, is_asked_about, unready};
use super::{Context, Step};
use crate::cluster::Cluster;
use crate::reinvocation::Reinvocation;
use crate::request::Authorized;
use crate::status::Result;
use crate::webhooks::call::Environment;
use crate::webhooks::hooks::{Hook, Hooks};
use crate::webhooks::mutating;
use crate::webhooks::validating;

/// The names of the two plugins.
pub const MUTATING: &str = "MutatingAdmissionWebhook";
/// The name of the validating plugin, as [`MUTATING`].
pub const VALIDATING: &str = "ValidatingAdmissionWebhook";

/// Asks those that may change the object.
pub(super) fn mutate<'a>(
    context: &'a Context<'a>,
    object: &'a mut Value,
    rounds: &'a mut Reinvocation,
) -> Step<'a> {
    let found = to_ask(context, &context.cluster.webhooks.mutating);
    asking(found, |hooks| {
        Box::pin(async move {
            let about = About::of(context);
            let old = about.old(context);
            let attributes = about.attributes(context.request, object, old.as_deref());
            let environment = environment(context.cluster, context.request);
            let mut shown = Some(about.shown(object).into_owned());
            mutating::admit(&environment, &hooks, &attributes, &mut shown, rounds).await?;
            if let Some(new) = shown {
                about.take(object, new);
            }
            Ok(())
        })
    })
}

/// Asks those that only refuse.
pub(super) fn validate<'a>(context: &'a Context<'a>, object: &'a Value) -> Step<'a> {
    let found = to_ask(context, &context.cluster.webhooks.validating);
    asking(found, |hooks| {
        Box::pin(async move {
            let about = About::of(context);
            let (shown, old) = (about.shown(object), about.old(context));
            let attributes = about.attributes(context.request, object, old.as_deref());
            let environment = environment(context.cluster, context.request);
            validating::validate(&environment, &hooks, &attributes, Some(&shown)).await
        })
    })
}

/// Whom to ask; or, if that is nobody, what comes of it.
fn to_ask(context: &Context<'_>, hooks: &Hooks) -> Result<Arc<[Arc<Hook>]>, Result<()>> {
    match hooks.current() {
        Ok(Some(hooks)) if is_asked_about(context) => Ok(hooks),
        Ok(_) => Err(Ok(())),
        Err(failure) => Err(unready(context.request, &failure)),
    }
}

/// What webhooks are asked with.
pub(super) fn environment<'a>(cluster: &'a Cluster, request: &'a Authorized) -> Environment<'a> {
    let latest = Instant::now() + cluster.config.options.request_timeout;
    Environment {
        notes: &request.notes,
        metrics: &cluster.webhooks.metrics,
        random: &cluster.random,
        deadline: request.deadline.unwrap_or(latest),
    }
}
