//! Admission: mutating plugins, then validation by the kind's rules, then validating plugins.
//!
//! Only [`admit`] makes an [`Admitted`], and only an `Admitted` can be stored. Plugins are rows of [`PLUGINS`], in
//! upstream's order; they are synchronous and read what they need from the watch cache.

pub mod namespace_lifecycle;

pub mod limit_ranger;
pub mod service_account;

pub mod node_restriction;
pub mod node_taints;

pub mod always_pull_images;
pub mod pod_security;
pub mod priority;
pub mod tolerations;

pub mod event_rate_limit;

pub mod default_class;
pub mod device_admin;
pub mod owner_references;
pub mod pod_tolerations;
pub mod pod_topology_labels;
pub mod runtime_class;
pub mod storage;

pub mod certificates;
pub mod rbac_escalation;
pub mod resource_quota;

pub mod configuration;

pub mod deny_external_ips;
pub mod external_addresses;
pub mod service_addresses;

use std::sync::Arc;

use machinery::field::FieldErrors;
use machinery::metadata::Metadata;
use serde_json::Value;

use crate::api::Api;
use crate::cache::CachedObject;
use crate::door::Committed;
use crate::kinds::Kind;
use crate::kinds::Part;
use crate::object::encode_stored;
use crate::status::{Error, Result};
pub(crate) use crate::tree::{child, text};
use crate::verbs::Request;

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

    /// Whether the request is about core/v1 `resource`, or something below it.
    pub fn is_core_kind(&self, resource: &str) -> bool {
        let kind = &self.request.kind;
        kind.group().is_empty() && kind.resource() == resource
    }

    /// Warns the client.
    pub fn warn(&self, warning: impl Into<String>) {
        self.request.notes.warn(warning);
    }

    /// Annotates the audit event.
    pub fn annotate(&self, key: &str, value: &str) {
        self.request.notes.annotate(key, value);
    }

    /// The cached object of another kind, as it is stored.
    pub fn cached(
        &self,
        group: &str,
        version: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<CachedObject>> {
        let kind = self.api.kind(group, version, resource)?;
        kind.cache().get(&kind.key(namespace, name))
    }

    /// 403 in a plugin's name.
    pub fn forbidden(&self, name: &str, why: &str) -> Error {
        Error::forbidden(self.request.subject(), name, why)
    }

    /// What `pointers` lead to in the cached object of another kind, as it is stored.
    pub fn lookup_part(
        &self,
        (group, version, resource): (&str, &str, &str),
        (namespace, name): (&str, &str),
        pointers: &[&str],
    ) -> Option<Value> {
        self.cached(group, version, resource, namespace, name).map(|object| object.part(pointers))
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
        let kind = self.api.kind(group, version, resource)?;
        let object = kind.cache().get(&kind.key(namespace, name))?;
        Some(kind.value(&object))
    }
}

type Mutate = fn(&Context<'_>, &mut Value) -> Result<()>;
type Validate = fn(&Context<'_>, &Value) -> Result<()>;

/// One plugin.
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    /// Upstream's name.
    pub name: &'static str,
    /// Changes the object.
    pub mutate: Option<Mutate>,
    /// Refuses the object.
    pub validate: Option<Validate>,
    /// Whether it runs unless told otherwise.
    pub is_default: bool,
}

const fn plugin(name: &'static str, mutate: Option<Mutate>, validate: Option<Validate>) -> Plugin {
    Plugin { name, mutate, validate, is_default: true }
}

/// All plugins, in upstream's order.
pub const PLUGINS: &[Plugin] = &[
    plugin("NamespaceLifecycle", Some(namespace_lifecycle::mutate), Some(namespace_lifecycle::validate)),
    plugin("LimitRanger", Some(limit_ranger::mutate), Some(limit_ranger::validate)),
    plugin("ServiceAccount", Some(service_account::mutate), Some(service_account::validate)),
    plugin("NodeRestriction", None, Some(node_restriction::validate)),
    plugin("TaintNodesByCondition", Some(node_taints::mutate), None),
    Plugin {
        is_default: false,
        ..plugin("AlwaysPullImages", Some(always_pull_images::mutate), Some(always_pull_images::validate))
    },
    plugin("PodSecurity", None, Some(pod_security::validate)),
    plugin("Priority", Some(priority::mutate), Some(priority::validate)),
    plugin("DefaultTolerationSeconds", Some(tolerations::mutate), None),
    Plugin {
        is_default: false,
        ..plugin("PodTolerationRestriction", Some(pod_tolerations::mutate), Some(pod_tolerations::validate))
    },
    Plugin { is_default: false, ..plugin("EventRateLimit", None, Some(event_rate_limit::validate)) },
    plugin("DefaultStorageClass", Some(default_class::storage), None),
    plugin("StorageObjectInUseProtection", Some(storage::protect), None),
    Plugin {
        is_default: false,
        ..plugin("OwnerReferencesPermissionEnforcement", None, Some(owner_references::validate))
    },
    plugin("PersistentVolumeClaimResize", None, Some(storage::resize)),
    plugin("RuntimeClass", Some(runtime_class::mutate), Some(runtime_class::validate)),
    plugin("CertificateApproval", None, Some(certificates::approval)),
    plugin("CertificateSigning", None, Some(certificates::signing)),
    plugin("ClusterTrustBundleAttest", None, Some(certificates::attest)),
    plugin("CertificateSubjectRestriction", None, Some(certificates::subject)),
    plugin("DefaultIngressClass", Some(default_class::ingress), None),
    plugin("DenyServiceExternalIPs", None, Some(deny_external_ips::validate)),
    plugin("PodTopologyLabels", Some(pod_topology_labels::mutate), None),
    // Upstream's registry does these; they are no plugins there, and nobody may switch them off.
    plugin(REQUESTER, Some(certificates::requester), None),
    plugin(ESCALATION, None, Some(rbac_escalation::validate)),
    plugin(DEVICE_ADMIN, None, Some(device_admin::validate)),
    plugin(POD_CERTIFICATES, None, Some(certificates::pod_certificate)),
    // Upstream has no such rule.
    plugin(EXTERNAL_ADDRESSES, None, Some(external_addresses::validate)),
    plugin("ResourceQuota", None, Some(resource_quota::validate)),
];

const REQUESTER: &str = "CertificateRequester";
const ESCALATION: &str = "RBACEscalation";
const DEVICE_ADMIN: &str = "DeviceAdminAccess";
const POD_CERTIFICATES: &str = "PodCertificateSigning";
const EXTERNAL_ADDRESSES: &str = "ServiceExternalAddresses";

/// The plugins to run: the default ones and `enabled`, without `disabled`; both are upstream's names.
///
/// # Errors
/// A name that no plugin has.
pub fn chosen(enabled: &[String], disabled: &[String]) -> Result<Vec<Plugin>, String> {
    let fixed = [REQUESTER, ESCALATION, DEVICE_ADMIN, POD_CERTIFICATES, EXTERNAL_ADDRESSES];
    let is_optional = |plugin: &Plugin| !fixed.contains(&plugin.name);
    let is_known = |name: &&String| PLUGINS.iter().any(|plugin| plugin.name == **name && is_optional(plugin));
    if let Some(unknown) = enabled.iter().chain(disabled).find(|name| !is_known(name)) {
        return Err(format!("there is no admission plugin {unknown:?}"));
    }
    let has = |list: &[String], plugin: &Plugin| list.iter().any(|name| name == plugin.name);
    let is_on = |plugin: &&Plugin| !has(disabled, plugin) && (plugin.is_default || has(enabled, plugin));
    Ok(PLUGINS.iter().filter(is_on).copied().collect())
}

/// An object that passed every check; the only thing that can be stored.
#[derive(Debug)]
pub struct Admitted {
    kind: Kind,
    key: String,
    name: String,
    object: Value,
    is_relaxed: bool,
    allocation: Option<service_addresses::Allocation>,
}

impl Admitted {
    /// The kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether it may be acknowledged before it is on disk.
    pub fn is_relaxed(&self) -> bool {
        self.is_relaxed
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
    for plugin in &api.config.options.admission_plugins {
        if let Some(mutate) = plugin.mutate {
            mutate(&context, &mut object)?;
        }
    }
    Ok(object)
}

/// Validates by the kind's rules, allocates what must be unique in the cluster, runs the validating plugins. What was
/// admitted is followed by [`stored`] or [`undo`].
///
/// # Errors
/// 422 with every broken field, or what the first plugin that refuses says.
pub async fn admit(
    api: &Api,
    request: &Request,
    operation: Operation,
    mut object: Value,
    old: Option<&Value>,
) -> Result<Admitted> {
    let kind = &request.kind;
    let context = Context { api, request, operation, old };
    let allocation = service_addresses::allocate(&context, &mut object).await?;
    let checked = match check(&context, &object) {
        Ok(()) => resource_quota::record(&context, &object).await,
        Err(error) => Err(error),
    };
    if let Err(error) = checked {
        if let Some(allocation) = allocation {
            allocation.undo(api).await;
        }
        return Err(error);
    }
    let metadata = Metadata::of(&object);
    let name = metadata.name().to_owned();
    let key = kind.key(metadata.namespace(), &name);
    let is_heartbeat = || old.is_some_and(|old| (kind.row().strategy.is_heartbeat)(&object, old));
    let is_relaxed = kind.is_relaxed() || is_heartbeat();
    let mut object = kind.to_stored(object);
    crate::codec::fill_nulls(&mut object);
    Ok(Admitted { kind: kind.clone(), key, name, object, is_relaxed, allocation })
}

/// Asks the validating plugins whether an object may be deleted, before anything is said of it.
///
/// # Errors
/// What the first plugin that refuses says.
pub fn check_deletion(api: &Api, request: &Request, object: &Value) -> Result<()> {
    check(&Context { api, request, operation: Operation::Delete, old: None }, object)
}

fn check(context: &Context<'_>, object: &Value) -> Result<()> {
    let kind = &context.request.kind;
    let errors = match (context.operation, context.old) {
        (Operation::Create, _) => kind.validate_create(object),
        (Operation::Update(part), Some(old)) => kind.validate_update(object, old, part),
        _ => FieldErrors::new(),
    };
    if !errors.is_empty() {
        return Err(Error::invalid(kind.kind_subject(), Metadata::of(object).name(), &errors));
    }
    for plugin in &context.api.config.options.admission_plugins {
        if let Some(validate) = plugin.validate {
            validate(context, object)?;
        }
    }
    Ok(())
}

/// Gives back what [`admit`] allocated, when the object was not stored after all.
pub async fn undo(api: &Api, admitted: &Admitted) {
    resource_quota::undo(api, admitted);
    if let Some(allocation) = &admitted.allocation {
        allocation.undo(api).await;
    }
}

/// Gives back what the object no longer holds, now that it is stored.
pub async fn stored(api: &Api, admitted: &Admitted) {
    if let Some(allocation) = &admitted.allocation {
        allocation.commit(api).await;
    }
}

/// Gives back what a deleted object held.
pub async fn deleted(api: &Api, kind: &Kind, object: &CachedObject) {
    if kind.resource() == "services" && kind.group().is_empty() {
        service_addresses::deleted(api, &object.value()).await;
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
    namespace_lifecycle::wait(api, request).await?;
    resource_quota::wait(api, request).await
}

/// The served form of a stored object, for plugins that look others up.
pub(crate) fn served(kind: &Kind, object: &CachedObject) -> Value {
    kind.value(object)
}
