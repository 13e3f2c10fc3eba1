//! MutatingAdmissionPolicy and ValidatingAdmissionPolicy: has administrators' policies change what is written, and has it
//! pass them. What is deleted, posted and opened is `unstored`'s.

use serde_json::Value;
use tokio::time::Instant;

use super::attributes::{About, asking, is_asked_about, unready};
use super::{Context, Step};
use crate::cluster::Cluster;
use crate::policies::is_exempt_kind;
use crate::policies::policy::Evaluator;
use crate::policies::source::{Hooks, Source};
use crate::policies::{mutating, validating};
use crate::reinvocation::Reinvocation;
use crate::request::Authorized;
use crate::status::Result;

/// The names of the two plugins.
pub const MUTATING: &str = "MutatingAdmissionPolicy";
/// The name of the validating plugin, as [`MUTATING`].
pub const VALIDATING: &str = "ValidatingAdmissionPolicy";

/// Has all policies change an object.
pub(super) fn mutate<'a>(
    context: &'a Context<'a>,
    object: &'a mut Value,
    rounds: &'a mut Reinvocation,
) -> Step<'a> {
    let found = current(context, &context.cluster.policies.mutating);
    asking(found, |hooks| {
        Box::pin(async move {
            let about = About::of(context);
            let old = about.old(context);
            let attributes = about.attributes(context.request, object, old.as_deref());
            let mut shown = Some(about.shown(object).into_owned());
            let environment = mutating_environment(context.cluster, context.request);
            mutating::admit(&environment, &hooks, &attributes, &mut shown, rounds).await?;
            if let Some(new) = shown {
                about.take(object, new);
            }
            Ok(())
        })
    })
}

/// The environment in which policies change what a request is about.
pub(super) fn mutating_environment<'a>(
    cluster: &'a Cluster,
    request: &Authorized,
) -> mutating::Environment<'a> {
    mutating::Environment {
        metrics: &cluster.policies.mutations,
        webhooks: &cluster.webhooks.metrics,
        security: &cluster.security,
        deadline: deadline(cluster, request),
    }
}

/// Has an object pass all policies.
pub(super) fn validate<'a>(context: &'a Context<'a>, object: &'a Value) -> Step<'a> {
    let found = current(context, &context.cluster.policies.validating);
    asking(found, |hooks| {
        Box::pin(async move {
            let about = About::of(context);
            let (shown, old) = (about.shown(object), about.old(context));
            let attributes = about.attributes(context.request, object, old.as_deref());
            let environment = validating_environment(context.cluster, context.request);
            validating::validate(&environment, &hooks, &attributes, Some(&shown)).await
        })
    })
}

/// The environment in which a request passes policies.
pub(super) fn validating_environment<'a>(
    cluster: &'a Cluster,
    request: &'a Authorized,
) -> validating::Environment<'a> {
    validating::Environment {
        notes: &request.notes,
        metrics: &cluster.policies.validations,
        webhooks: &cluster.webhooks.metrics,
        security: &cluster.security,
        deadline: deadline(cluster, request),
    }
}

/// The policies that count; or, if there are none, what comes of it.
fn current<E: Evaluator>(context: &Context<'_>, source: &Source<E>) -> Result<Hooks<E>, Result<()>> {
    if !is_asked_about(context) || is_exempt_kind(&context.request.kind) {
        return Err(Ok(()));
    }
    match source.current() {
        Ok(found) => found.ok_or(Ok(())),
        Err(failure) => Err(unready(context.request, &failure)),
    }
}

/// What the server does on its own account has as long as anybody.
fn deadline(cluster: &Cluster, request: &Authorized) -> Instant {
    request.deadline.unwrap_or_else(|| Instant::now() + cluster.config.options.request_timeout)
}
