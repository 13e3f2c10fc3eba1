//! Admission: mutating plugins, then validation by the kind's rules, then validating plugins.
//!
//! Only [`admit`] makes an [`Admitted`], and only an `Admitted` can be stored. Plugins are rows of [`PLUGINS`], in
//! upstream's order; they are synchronous and read what they need from the watch cache.

pub mod limit_ranger;
pub mod namespace_lifecycle;
pub mod node_restriction;
pub mod node_taints;
pub mod priority;
pub mod rbac_escalation;
pub mod service_account;
pub mod service_addresses;
pub mod tolerations;

use std::borrow::Cow;
use std::sync::Arc;

use machinery::metadata::Metadata;
use serde_json::Value;

use crate::api::Api;
use crate::cache::CachedObject;
use crate::cache::object::encode_stored;
use crate::door::Committed;
use crate::kinds::Kind;
use crate::status::{Error, Result};
use crate::verbs::Request;
use crate::verbs::update::Part;

/// What is being done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// This part of it is changed.
    Update(Part),
    /// It is removed, or marked to be.
    Delete,
}

/// What a plugin may look at.
pub struct Context<'a> {
    /// The cache and the configuration.
    pub api: &'a Api,
    /// Who asks for what.
    pub request: &'a Request,
    /// What is being done.
    pub operation: Operation,
    /// The object before, for updates.
    pub old: Option<&'a Value>,
}

impl Context<'_> {
    /// Whether the request is about core/v1 `resource` itself, not a subresource.
    pub fn is_core(&self, resource: &str) -> bool {
        let kind = &self.request.kind;
        kind.group().is_empty() && kind.resource() == resource && self.request.resource.subresource.is_empty()
    }

    /// 403 in a plugin's name.
    pub fn forbidden(&self, name: &str, why: &str) -> Error {
        Error::forbidden(self.request.subject(), name, why)
    }

    /// The cached object of another kind, as a value.
    pub fn lookup(
        &self,
        group: &str,
        version: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let kind = Kind::find(group, version, resource)?;
        let object = kind.cache(self.api).get(&kind.key(namespace, name))?;
        Some(kind.value(&object))
    }
}

/// One plugin.
pub struct Plugin {
    /// Upstream's name.
    pub name: &'static str,
    /// Changes the object.
    pub mutate: Option<fn(&Context<'_>, &mut Value) -> Result<()>>,
    /// Refuses the object.
    pub validate: Option<fn(&Context<'_>, &Value) -> Result<()>>,
}

/// All plugins, in upstream's order.
pub const PLUGINS: &[Plugin] = &[
    Plugin {
        name: "NamespaceLifecycle",
        mutate: Some(namespace_lifecycle::mutate),
        validate: Some(namespace_lifecycle::validate),
    },
    Plugin { name: "LimitRanger", mutate: Some(limit_ranger::mutate), validate: None },
    Plugin {
        name: "ServiceAccount",
        mutate: Some(service_account::mutate),
        validate: Some(service_account::validate),
    },
    Plugin { name: "NodeRestriction", mutate: None, validate: Some(node_restriction::validate) },
    Plugin { name: "TaintNodesByCondition", mutate: Some(node_taints::mutate), validate: None },
    Plugin { name: "Priority", mutate: Some(priority::mutate), validate: None },
    Plugin { name: "DefaultTolerationSeconds", mutate: Some(tolerations::mutate), validate: None },
    Plugin { name: "RBACEscalation", mutate: None, validate: Some(rbac_escalation::validate) },
];

/// An object that passed every check; the only thing that can be stored.
#[derive(Debug)]
pub struct Admitted {
    kind: Kind,
    key: String,
    name: String,
    object: Value,
}

impl Admitted {
    /// The kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The store's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The object in its stored form.
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// What a dry run answers.
    ///
    /// # Errors
    /// 500 if it cannot be encoded.
    pub fn as_if_committed(&self, revision: u64) -> Result<Committed> {
        let stored = encode_stored(&self.object).map_err(Error::internal)?;
        let mut object = CachedObject::from_stored(self.key.as_str().into(), &stored, revision)
            .ok_or_else(|| Error::internal("the object could not be encoded"))?;
        if revision == 0 {
            // A dry run's object has no revision.
            object.json = stored;
        }
        Ok(Committed { revision, object: Arc::new(object) })
    }
}

/// Runs the mutating plugins.
///
/// # Errors
/// What the first plugin that refuses says.
pub fn mutate(
    api: &Api,
    request: &Request,
    operation: Operation,
    mut object: Value,
    old: Option<&Value>,
) -> Result<Value> {
    let context = Context { api, request, operation, old };
    for plugin in PLUGINS {
        if let Some(mutate) = plugin.mutate {
            mutate(&context, &mut object)?;
        }
    }
    Ok(object)
}

/// Validates by the kind's rules, allocates what must be unique in the cluster, runs the validating plugins.
///
/// # Errors
/// 422 with every broken field, or what the first plugin that refuses says.
pub fn admit(
    api: &Api,
    request: &Request,
    operation: Operation,
    mut object: Value,
    old: Option<&Value>,
) -> Result<Admitted> {
    let kind = request.kind;
    let context = Context { api, request, operation, old };
    let allocated = service_addresses::allocate(&context, &mut object)?;
    let checked = check(&context, &object);
    if let Err(error) = checked {
        api.services.release(&allocated);
        return Err(error);
    }
    let metadata = Metadata::of(&object);
    let name = metadata.name().to_owned();
    let key = kind.key(metadata.namespace(), &name);
    Ok(Admitted { kind, key, name, object: kind.to_stored(object) })
}

fn check(context: &Context<'_>, object: &Value) -> Result<()> {
    let kind = context.request.kind;
    let errors = match (context.operation, context.old) {
        (Operation::Create, _) => kind.validate_create(object),
        (Operation::Update(part), Some(old)) => kind.validate_update(object, old, part),
        _ => Vec::new(),
    };
    if !errors.is_empty() {
        return Err(Error::invalid(kind.kind_subject(), Metadata::of(object).name(), &errors));
    }
    for plugin in PLUGINS {
        if let Some(validate) = plugin.validate {
            validate(context, object)?;
        }
    }
    Ok(())
}

/// Gives back what [`admit`] allocated, when the object was not stored after all.
pub fn undo(api: &Api, admitted: &Admitted) {
    deleted_value(api, &admitted.kind, &admitted.object);
}

/// Gives back what a deleted object held.
pub fn deleted(api: &Api, kind: &Kind, object: &CachedObject) {
    if kind.resource() == "services" {
        deleted_value(api, kind, &object.value());
    }
}

fn deleted_value(api: &Api, kind: &Kind, object: &Value) {
    if kind.resource() == "services" && kind.group().is_empty() {
        api.services.release(&service_addresses::held(object));
    }
}

/// Waits for what a controller is about to make and a create needs: the namespace's default service account.
///
/// # Errors
/// 504 when the cache lags.
pub async fn wait_for_prerequisites(api: &Api, request: &Request, object: &Value) -> Result<()> {
    if request.kind.resource() == "pods" && request.kind.group().is_empty() {
        service_account::wait(api, request, object).await?;
    }
    namespace_lifecycle::wait(api, request).await
}

/// The object as text for plugins: `pointer`'s string, or empty.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The object under `field`, made if absent.
pub(crate) fn child<'a>(
    object: &'a mut Value,
    field: &str,
) -> Option<&'a mut serde_json::Map<String, Value>> {
    object
        .as_object_mut()?
        .entry(field.to_owned())
        .or_insert_with(|| Value::Object(Default::default()))
        .as_object_mut()
}

/// The served form of a stored object, for plugins that look others up.
pub(crate) fn served(kind: Kind, object: &CachedObject) -> Value {
    kind.to_served(Cow::Owned(object.value())).into_owned()
}
