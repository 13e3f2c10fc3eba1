//! The facts about a request for administrators' webhooks and policies: the same in all phases.

use std::borrow::Cow;

use futures::future::BoxFuture;
use machinery::metadata::Metadata;
use resources::ScalePaths;
use serde_json::{Map, Value, json};

use super::{Context, Effect, Operation, Step};
use crate::kinds::Part;
use crate::request::Authorized;
use crate::scale;
use crate::status::{Error, Result};
use crate::webhooks::attributes::{Attributes, TypeName};
use crate::webhooks::rules::Operation as Asked;

/// Whether this is the write that the client asked for, and not one that comes of it. Deletions and what is posted below
/// an object are asked about by `unstored`.
pub(super) fn is_asked_about(context: &Context<'_>) -> bool {
    let is_write = matches!(context.operation, Operation::Create | Operation::Update(_));
    let is_raw = context.operation == Operation::Update(Part::Raw);
    is_write && !is_raw && !context.request.is_servers()
}

/// Without all configurations nobody knows what they would refuse; but they themselves can always be repaired.
pub(super) fn unready(request: &Authorized, failure: &Error) -> Result<()> {
    if request.kind.group() == "admissionregistration.k8s.io" || request.is_servers() {
        return Ok(());
    }
    tracing::error!(%failure, "webhook configurations or policies cannot be read");
    Err(Error::forbidden(request.subject(), &request.resource.name, "not yet ready to handle request"))
}

/// Asks those whom a request concerns; if that is nobody, what comes of it is known at once.
pub(super) fn asking<'a, Hooks>(
    found: Result<Hooks, Result<()>>,
    ask: impl FnOnce(Hooks) -> BoxFuture<'a, Result<()>>,
) -> Step<'a> {
    match found {
        Ok(hooks) => Step::Later(ask(hooks)),
        Err(done) => Step::Done(done),
    }
}

/// What all webhooks and policies of one phase are told.
pub(super) struct About<'a> {
    pub(super) operation: Asked,
    pub(super) sent_as: Option<TypeName<'a>>,
    /// Where the parts of a Scale are.
    pub(super) paths: &'a ScalePaths,
    pub(super) options: Value,
    pub(super) is_dry_run: bool,
}

impl<'a> About<'a> {
    pub(super) fn of(context: &Context<'a>) -> Self {
        let (operation, options) = match context.operation {
            Operation::Create => (Asked::Create, "CreateOptions"),
            Operation::Update(_) => (Asked::Update, "UpdateOptions"),
            Operation::Delete => (Asked::Delete, "UpdateOptions"),
        };
        let options = write_options(options, context.request);
        let is_dry_run = context.effect == Effect::DryRun;
        let paths = &context.request.kind.row().scale;
        Self { operation, sent_as: sent_as(context.request), paths, options, is_dry_run }
    }

    pub(super) fn attributes<'b>(
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
            options: &self.options,
            is_dry_run: self.is_dry_run,
            user: request.user(),
        }
    }

    fn is_scale(&self) -> bool {
        self.sent_as.is_some_and(|name| name.kind == "Scale")
    }

    /// What is shown of an object: itself, or its Scale where that is what was sent.
    pub(super) fn shown<'b>(&self, object: &'b Value) -> Cow<'b, Value> {
        if self.is_scale() { Cow::Owned(scale::of(self.paths, object)) } else { Cow::Borrowed(object) }
    }

    /// What is shown of the object as it was.
    pub(super) fn old<'b>(&self, context: &Context<'b>) -> Option<Cow<'b, Value>> {
        context.old.map(|old| self.shown(old))
    }

    pub(super) fn take(&self, object: &mut Value, new: Value) {
        if self.is_scale() {
            scale::put(self.paths, object, &new);
        } else {
            *object = new;
        }
    }
}

/// What is sent to a subresource, if it is not of the resource's own kind.
pub(super) fn sent_as(request: &Authorized) -> Option<TypeName<'_>> {
    let row = request.kind.row();
    let below = row.subresource(&request.resource.subresource).filter(|below| !below.kind.is_empty())?;
    let (group, version) = match below.version {
        "" => (request.kind.group(), request.kind.version()),
        version => (below.group, version),
    };
    (below.kind != request.kind.kind()).then_some(TypeName { group, version, kind: below.kind })
}

/// `CreateOptions` and `UpdateOptions`, also for a PATCH: what is done counts, not how it was asked for.
pub(super) fn write_options(kind: &str, request: &Authorized) -> Value {
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
