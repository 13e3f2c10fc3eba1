//! ValidatingAdmissionPolicy: has what is written pass the administrator's policies. What is deleted, posted and opened is
//! `unstored`'s.

use serde_json::Value;
use tokio::time::Instant;

use super::about::{About, is_asked_about, options_of, unready};
use super::{Context, Step};
use crate::cluster::Cluster;
use crate::policies::is_exempt_kind;
use crate::policies::policy::Hook;
use crate::policies::validating::{self, Environment};
use crate::policies::validation::Validations;
use crate::request::Authorized;
use crate::status::Result;
use crate::webhooks::attributes::Attributes;

/// The name of the plugin.
pub const VALIDATING: &str = "ValidatingAdmissionPolicy";

/// Has an object pass all policies.
pub(super) fn validate<'a>(context: &'a Context<'a>, object: &'a Value) -> Step<'a> {
    if !is_asked_about(context) || is_exempt_kind(&context.request.kind) {
        return Step::Done(Ok(()));
    }
    let hooks = match context.cluster.policies.validating.current() {
        Ok(Some(hooks)) => hooks,
        Ok(None) => return Step::Done(Ok(())),
        Err(failure) => return Step::Done(unready(context.request, &failure)),
    };
    Step::Later(Box::pin(async move {
        let options = options_of(context);
        let about = About::of(context, &options);
        let (shown, old) = (about.shown(object), context.old.map(|old| about.shown(old)));
        let attributes = about.attributes(context.request, object, old.as_deref());
        pass((context.cluster, context.request), &hooks, &attributes, Some(&shown)).await
    }))
}

/// Has a request pass all policies.
///
/// # Errors
/// What the first policy says that refuses it.
pub(super) async fn pass(
    (cluster, request): (&Cluster, &Authorized),
    hooks: &[Hook<Validations>],
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<()> {
    let latest = || Instant::now() + cluster.config.options.request_timeout;
    let environment = Environment {
        notes: &request.notes,
        metrics: &cluster.policies.validations,
        webhooks: &cluster.webhooks.metrics,
        security: &cluster.security,
        deadline: request.deadline.unwrap_or_else(latest),
    };
    validating::validate(&environment, hooks, attributes, object).await
}
