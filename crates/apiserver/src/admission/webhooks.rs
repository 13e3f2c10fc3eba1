//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: asks the administrator's webhooks about what is written,
//! deleted and opened.
//!
//! What the server writes on its own account is not asked about: it is part of a client's request that was, or of the
//! server's own start, which must not wait for a webhook that runs in the cluster. (Upstream asks about some of it.)

use std::borrow::Cow;
use std::sync::Arc;

use machinery::metadata::Metadata;
use resources::ScalePaths;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Context, Effect, Operation, Step};
use crate::cluster::Cluster;
use crate::deadline;
use crate::kinds::Part;
use crate::request::Authorized;
use crate::rounds::Rounds;
use crate::scale;
use crate::status::{Error, Result};
use crate::webhooks::attributes::{Attributes, TypeName};
use crate::webhooks::call::Environment;
use crate::webhooks::hooks::{Hook, Hooks};
use crate::webhooks::mutating;
use crate::webhooks::rules::Operation as Asked;
use crate::webhooks::validating;

/// The names of the two plugins.
pub const MUTATING: &str = "MutatingAdmissionWebhook";
/// As [`MUTATING`].
pub const VALIDATING: &str = "ValidatingAdmissionWebhook";

type All = Option<Arc<[Arc<Hook>]>>;

/// Asks those that may change the object.
pub(super) fn mutate<'a>(
    context: &'a Context<'a>,
    object: &'a mut Value,
    rounds: &'a mut Rounds,
) -> Step<'a> {
    let hooks = match to_ask(context, &context.cluster.webhooks.mutating) {
        Ok(hooks) => hooks,
        Err(done) => return Step::Done(done),
    };
    Step::Later(Box::pin(async move {
        let options = options_of(context);
        let about = About::of(context, &options);
        let old = context.old.map(|old| about.shown(old));
        let attributes = about.attributes(context.request, object, old.as_deref());
        let environment = environment(context.cluster, context.request);
        let mut shown = Some(about.shown(object).into_owned());
        mutating::admit(&environment, &hooks, &attributes, &mut shown, rounds).await?;
        if let Some(new) = shown {
            about.take(object, new);
        }
        Ok(())
    }))
}

/// Asks those that only refuse.
pub(super) fn validate<'a>(context: &'a Context<'a>, object: &'a Value) -> Step<'a> {
    let hooks = match to_ask(context, &context.cluster.webhooks.validating) {
        Ok(hooks) => hooks,
        Err(done) => return Step::Done(done),
    };
    Step::Later(Box::pin(async move {
        let options = options_of(context);
        let about = About::of(context, &options);
        let (shown, old) = (about.shown(object), context.old.map(|old| about.shown(old)));
        let attributes = about.attributes(context.request, object, old.as_deref());
        let environment = environment(context.cluster, context.request);
        validating::validate(&environment, &hooks, &attributes, Some(&shown)).await
    }))
}

/// Whom to ask; or, if that is nobody, what comes of it.
fn to_ask(context: &Context<'_>, hooks: &Hooks) -> Result<Arc<[Arc<Hook>]>, Result<()>> {
    match hooks.current() {
        Ok(Some(hooks)) if is_asked_about(context) => Ok(hooks),
        Ok(_) => Err(Ok(())),
        Err(failure) => Err(unready(context.request, &failure)),
    }
}

/// Whether this is the write that the client asked for, and not one that comes of it. Deletions and what is posted below
/// an object are asked about by [`delete`] and [`post`].
fn is_asked_about(context: &Context<'_>) -> bool {
    let is_write = matches!(context.operation, Operation::Create | Operation::Update(_));
    let is_raw = context.operation == Operation::Update(Part::Raw);
    is_write && !is_raw && !context.request.is_servers()
}

/// Asks whether an object may be deleted. `options` are the `DeleteOptions`.
///
/// # Errors
/// What a webhook says, or that one could not be asked.
pub async fn delete(context: &Context<'_>, object: &Value, options: impl FnOnce() -> Value) -> Result<()> {
    let request = context.request;
    // An eviction is asked about as what it is.
    if request.is_servers() || !request.resource.subresource.is_empty() {
        return Ok(());
    }
    let (mutating, validating) = hooks(context.cluster, request)?;
    if mutating.is_none() && validating.is_none() {
        return Ok(());
    }
    let options = options();
    let is_dry_run = context.effect == Effect::DryRun;
    let about = About {
        operation: Asked::Delete,
        sent_as: None,
        paths: &request.kind.row().scale,
        options: &options,
        is_dry_run,
    };
    let attributes = about.attributes(request, object, Some(object));
    ask_both(context.cluster, request, (mutating, validating), &attributes, None).await.map(drop)
}

/// Asks about what is posted and never stored, such as an Eviction; answers what is left of it.
///
/// # Errors
/// As [`delete`].
pub async fn post(cluster: &Cluster, request: &Authorized, object: Value) -> Result<Value> {
    let both = hooks(cluster, request)?;
    if request.is_servers() || (both.0.is_none() && both.1.is_none()) {
        return Ok(object);
    }
    let options = write_options("CreateOptions", request);
    let (operation, is_dry_run) = (Asked::Create, request.is_dry_run());
    let about = About {
        operation,
        sent_as: sent_as(request),
        paths: &request.kind.row().scale,
        options: &options,
        is_dry_run,
    };
    let attributes = about.attributes(request, &object, None);
    let left = ask_both(cluster, request, both, &attributes, Some(object.clone())).await?;
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
    let both = hooks(cluster, request)?;
    if both.0.is_none() && both.1.is_none() {
        return Ok(None);
    }
    let (operation, options) = (Asked::Connect, options());
    let about = About {
        operation,
        sent_as: sent_as(request),
        paths: &request.kind.row().scale,
        options: &Value::Null,
        is_dry_run: false,
    };
    let attributes = about.attributes(request, &options, None);
    ask_both(cluster, request, both, &attributes, Some(options.clone())).await
}

fn hooks(cluster: &Cluster, request: &Authorized) -> Result<(All, All)> {
    let chosen = &cluster.config.options.admission_plugins;
    let (mutating, validating) = (&cluster.webhooks.mutating, &cluster.webhooks.validating);
    let current = |name, hooks: &Hooks| match chosen.has(name, true) {
        true => hooks.current(),
        false => Ok(None),
    };
    let both = current(MUTATING, mutating).and_then(|one| Ok((one, current(VALIDATING, validating)?)));
    both.or_else(|failure| unready(request, &failure).map(|()| (None, None)))
}

/// Without all configurations nobody knows what they would refuse; but they themselves can always be repaired.
fn unready(request: &Authorized, failure: &Error) -> Result<()> {
    if request.kind.group() == "admissionregistration.k8s.io" || request.is_servers() {
        return Ok(());
    }
    tracing::error!(%failure, "webhook configurations cannot be read");
    Err(Error::forbidden(request.subject(), &request.resource.name, "not yet ready to handle request"))
}

async fn ask_both(
    cluster: &Cluster,
    request: &Authorized,
    (mutating, validating): (All, All),
    attributes: &Attributes<'_>,
    mut object: Option<Value>,
) -> Result<Option<Value>> {
    let environment = environment(cluster, request);
    let asking = async {
        if let Some(hooks) = &mutating {
            let mut rounds = Rounds::default();
            mutating::admit(&environment, hooks, attributes, &mut object, &mut rounds).await?;
            if rounds.needs_second() {
                rounds.begin_second();
                mutating::admit(&environment, hooks, attributes, &mut object, &mut rounds).await?;
            }
        }
        if let Some(hooks) = &validating {
            validating::validate(&environment, hooks, attributes, object.as_ref()).await?;
        }
        Ok(object)
    };
    deadline::before(environment.deadline, asking).await
}

fn environment<'a>(cluster: &'a Cluster, request: &'a Authorized) -> Environment<'a> {
    let latest = Instant::now() + cluster.config.options.request_timeout;
    Environment {
        notes: &request.notes,
        metrics: &cluster.webhooks.metrics,
        random: &cluster.random,
        deadline: request.deadline.unwrap_or(latest),
    }
}

/// What all webhooks of one phase are told.
struct About<'a> {
    operation: Asked,
    sent_as: Option<TypeName<'a>>,
    /// Where the parts of a Scale are.
    paths: &'a ScalePaths,
    options: &'a Value,
    is_dry_run: bool,
}

impl<'a> About<'a> {
    fn of(context: &Context<'a>, options: &'a Value) -> Self {
        let operation = match context.operation {
            Operation::Create => Asked::Create,
            Operation::Update(_) => Asked::Update,
            Operation::Delete => Asked::Delete,
        };
        let is_dry_run = context.effect == Effect::DryRun;
        let paths = &context.request.kind.row().scale;
        Self { operation, sent_as: sent_as(context.request), paths, options, is_dry_run }
    }

    fn attributes<'b>(
        &'b self,
        request: &'b Authorized,
        object: &'b Value,
        old: Option<&'b Value>,
    ) -> Attributes<'b> {
        let given = request.resource.name.as_str();
        let name = if given.is_empty() { Metadata::of(object).name() } else { given };
        let kind = &request.kind;
        let is_namespace = kind.group().is_empty() && kind.resource() == "namespaces";
        Attributes {
            kinds: &request.catalogue,
            kind,
            subresource: &request.resource.subresource,
            sent_as: self.sent_as,
            operation: self.operation,
            name,
            namespace: if is_namespace { name } else { &request.resource.namespace },
            old,
            options: self.options,
            is_dry_run: self.is_dry_run,
            user: request.user(),
        }
    }

    fn is_scale(&self) -> bool {
        self.sent_as.is_some_and(|name| name.kind == "Scale")
    }

    /// What is shown of an object: itself, or its Scale where that is what was sent.
    fn shown<'b>(&self, object: &'b Value) -> Cow<'b, Value> {
        if self.is_scale() { Cow::Owned(scale::of(self.paths, object)) } else { Cow::Borrowed(object) }
    }

    fn take(&self, object: &mut Value, new: Value) {
        if self.is_scale() {
            scale::put(self.paths, object, &new);
        } else {
            *object = new;
        }
    }
}

/// What is sent to a subresource, if it is not of the resource's own kind.
fn sent_as(request: &Authorized) -> Option<TypeName<'_>> {
    let row = request.kind.row();
    let below = row.subresource(&request.resource.subresource).filter(|below| !below.kind.is_empty())?;
    let (group, version) = match below.version {
        "" => (request.kind.group(), request.kind.version()),
        version => (below.group, version),
    };
    (below.kind != request.kind.kind()).then_some(TypeName { group, version, kind: below.kind })
}

fn options_of(context: &Context<'_>) -> Value {
    let kind = match context.operation {
        Operation::Create => "CreateOptions",
        _ => "UpdateOptions",
    };
    write_options(kind, context.request)
}

/// `CreateOptions` and `UpdateOptions`, also for a PATCH: what is done counts, not how it was asked for.
fn write_options(kind: &str, request: &Authorized) -> Value {
    let query = &request.info.query;
    let mut options = Map::new();
    options.insert("kind".to_owned(), kind.into());
    options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
    if request.is_dry_run() {
        options.insert("dryRun".to_owned(), json!(["All"]));
    }
    for name in ["fieldManager", "fieldValidation"] {
        if let Some(value) = query.get(name) {
            options.insert(name.to_owned(), value.into());
        }
    }
    Value::Object(options)
}
