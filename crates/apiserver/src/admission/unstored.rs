//! Requests that are asked about though nothing that they send is stored: deletions, what is posted below an object,
//! and streams. All phases of webhooks and policies come one after the other.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::Value;

use super::attributes::{About, sent_as, unready, write_options};
use super::webhooks::{MUTATING, VALIDATING, environment};
use super::{Context, Effect, policies};
use crate::cluster::Cluster;
use crate::deadline;
use crate::policies::mutation::Mutations;
use crate::policies::source::Hooks as Policies;
use crate::policies::validation::Validations;
use crate::policies::{mutating as mutating_policies, validating as validating_policies};
use crate::reinvocation::Reinvocation;
use crate::request::Authorized;
use crate::status::Result;
use crate::webhooks::attributes::Attributes;
use crate::webhooks::hooks::Hook;
use crate::webhooks::mutating;
use crate::webhooks::rules::Operation as Asked;
use crate::webhooks::validating;

/// Asks whether an object may be deleted. `options` are the `DeleteOptions`.
///
/// # Errors
/// What a webhook or policy says, or that one could not be asked.
pub async fn delete(context: &Context<'_>, object: &Value, options: impl FnOnce() -> Value) -> Result<()> {
    let request = context.request;
    // An eviction is asked about as what it is.
    if request.is_servers() || !request.resource.subresource.is_empty() {
        return Ok(());
    }
    let Some(all) = All::current(context.cluster, request)? else { return Ok(()) };
    let is_dry_run = context.effect == Effect::DryRun;
    let about = About {
        operation: Asked::Delete,
        sent_as: None,
        paths: &request.kind.row().scale,
        options: options(),
        is_dry_run,
    };
    let attributes = about.attributes(request, object, Some(object));
    all.ask(context.cluster, request, &attributes, None).await.map(drop)
}

/// Asks about what is posted and never stored, such as an Eviction; answers what is left of it.
///
/// # Errors
/// As [`delete`].
pub async fn post(cluster: &Cluster, request: &Authorized, object: Value) -> Result<Value> {
    if request.is_servers() {
        return Ok(object);
    }
    let Some(all) = All::current(cluster, request)? else { return Ok(object) };
    let (operation, is_dry_run) = (Asked::Create, request.is_dry_run());
    let about = About {
        operation,
        sent_as: sent_as(request),
        paths: &request.kind.row().scale,
        options: write_options("CreateOptions", request),
        is_dry_run,
    };
    let attributes = about.attributes(request, &object, None);
    let left = all.ask(cluster, request, &attributes, Some(object.clone())).await?;
    Ok(left.unwrap_or(object))
}

/// Asks whether a stream may be opened, with its options as they are in the query; answers what is left of them.
///
/// # Errors
/// As [`delete`].
pub async fn connect(
    cluster: &Cluster,
    request: &Authorized,
    options: impl FnOnce() -> Value,
) -> Result<Option<Value>> {
    let Some(all) = All::current(cluster, request)? else { return Ok(None) };
    let (operation, options) = (Asked::Connect, options());
    let about = About {
        operation,
        sent_as: sent_as(request),
        paths: &request.kind.row().scale,
        options: Value::Null,
        is_dry_run: false,
    };
    let attributes = about.attributes(request, &options, None);
    all.ask(cluster, request, &attributes, Some(options.clone())).await
}

/// Whom to ask, in this order.
#[derive(Default)]
struct All {
    changing: Option<Policies<Mutations>>,
    mutating: Option<Arc<[Arc<Hook>]>>,
    policies: Option<Policies<Validations>>,
    validating: Option<Arc<[Arc<Hook>]>>,
}

impl All {
    /// Those that there are now; `None` if there is nobody.
    fn current(cluster: &Cluster, request: &Authorized) -> Result<Option<Self>> {
        let all = Self::of(cluster).or_else(|why| unready(request, &why).map(|()| Self::default()))?;
        let changes = all.changing.is_some() || all.mutating.is_some();
        let has_some = changes || all.policies.is_some() || all.validating.is_some();
        Ok(has_some.then_some(all))
    }

    fn of(cluster: &Cluster) -> Result<Self> {
        let chosen = &cluster.config.options.admission_plugins;
        let mut all = Self::default();
        if chosen.has(policies::MUTATING, true) {
            all.changing = cluster.policies.mutating.current()?;
        }
        if chosen.has(MUTATING, true) {
            all.mutating = cluster.webhooks.mutating.current()?;
        }
        if chosen.has(policies::VALIDATING, true) {
            all.policies = cluster.policies.validating.current()?;
        }
        if chosen.has(VALIDATING, true) {
            all.validating = cluster.webhooks.validating.current()?;
        }
        Ok(all)
    }

    async fn ask(
        &self,
        cluster: &Cluster,
        request: &Authorized,
        attributes: &Attributes<'_>,
        mut object: Option<Value>,
    ) -> Result<Option<Value>> {
        let environment = environment(cluster, request);
        let asking = async {
            let mut rounds = Reinvocation::default();
            self.change(cluster, request, attributes, &mut object, &mut rounds).await?;
            if rounds.needs_second() {
                rounds.begin_second();
                self.change(cluster, request, attributes, &mut object, &mut rounds).await?;
            }
            if let Some(hooks) = &self.policies {
                let environment = policies::validating_environment(cluster, request);
                let passing = validating_policies::validate(&environment, hooks, attributes, object.as_ref());
                passing.boxed().await?;
            }
            if let Some(hooks) = &self.validating {
                validating::validate(&environment, hooks, attributes, object.as_ref()).await?;
            }
            Ok(object)
        };
        deadline::before(environment.deadline, asking).await
    }

    /// One round of those that change. There is nothing to change of what is deleted, and policies are not asked about it.
    async fn change(
        &self,
        cluster: &Cluster,
        request: &Authorized,
        attributes: &Attributes<'_>,
        object: &mut Option<Value>,
        rounds: &mut Reinvocation,
    ) -> Result<()> {
        if let Some(hooks) = self.changing.as_ref().filter(|_| attributes.operation != Asked::Delete) {
            let environment = policies::mutating_environment(cluster, request);
            let changing = mutating_policies::admit(&environment, hooks, attributes, object, rounds);
            changing.boxed().await?;
        }
        if let Some(hooks) = &self.mutating {
            let environment = environment(cluster, request);
            mutating::admit(&environment, hooks, attributes, object, rounds).await?;
        }
        Ok(())
    }
}
