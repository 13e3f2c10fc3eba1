//! Admission: mutating plugins, and later, when the kind's strategy has prepared the object, validating ones.
//!
//! Plugins are rows of [`PLUGINS`], in upstream's order. Most read what they need from the watch cache, at once; a row
//! may also wait ([`Mutate::Later`], [`Validate::Later`]), but no longer than its request does. A plugin changes nothing
//! but the object, unless its row says so ([`SideEffects`]): what is taken for an object is `write::allocation`'s.

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

pub mod policy_params;

pub mod deny_external_ips;
pub mod external_addresses;

mod attributes;
pub mod policies;
pub mod webhooks;

pub mod unstored;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use crate::cache::CachedObject;
use crate::cluster::Cluster;
use crate::configuration_error::ConfigurationError;
use crate::deadline;
use crate::kinds::{GroupVersionResource, Part};
use crate::options::PluginChoice;
use crate::reinvocation::Reinvocation;
use crate::request::Authorized;
use crate::status::{Error, Result};
pub(crate) use crate::tree::{child, text};

/// The operation on the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// This part of it is changed.
    Update(Part),
    /// It is removed, or marked to be.
    Delete,
}

/// The effect of the operation: whether it leaves anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is stored.
    Stored,
    /// It is only answered as if it had been.
    DryRun,
}

impl Effect {
    /// The effect that a request asks for.
    pub fn of(request: &Authorized) -> Self {
        if request.is_dry_run() { Self::DryRun } else { Self::Stored }
    }
}

/// The things that a plugin may look at.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The state of the cluster.
    pub cluster: &'a Cluster,
    /// The request and its sender.
    pub request: &'a Authorized,
    /// The operation.
    pub operation: Operation,
    /// The object before, for updates.
    pub old: Option<&'a Value>,
    /// The effect: whether it leaves anything.
    pub effect: Effect,
}

impl<'a> Context<'a> {
    /// The operation of a request on an object.
    pub fn new(
        cluster: &'a Cluster,
        request: &'a Authorized,
        operation: Operation,
        old: Option<&'a Value>,
    ) -> Self {
        Self { cluster, request, operation, old, effect: Effect::of(request) }
    }

    /// `true` if the request is about core/v1 `resource` itself, not a subresource.
    pub fn is_core(&self, resource: &str) -> bool {
        let kind = &self.request.kind;
        kind.group().is_empty() && kind.resource() == resource && self.request.resource.subresource.is_empty()
    }

    /// `true` if the request is about core/v1 `resource`, or something below it.
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
        let kind = self.cluster.kind(group, version, resource)?;
        kind.cache().get(&kind.key(namespace, name))
    }

    /// 403 in a plugin's name.
    pub fn forbidden(&self, name: &str, why: &str) -> Error {
        Error::forbidden(self.request.subject(), name, why)
    }

    /// The values that `pointers` lead to in the cached object of another kind, as it is stored.
    pub fn lookup_part(
        &self,
        resource: GroupVersionResource<'_>,
        namespace: &str,
        name: &str,
        pointers: &[&str],
    ) -> Option<Value> {
        let GroupVersionResource { group, version, resource } = resource;
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
        let kind = self.cluster.kind(group, version, resource)?;
        let object = kind.cache().get(&kind.key(namespace, name))?;
        Some(kind.value(&object))
    }
}

/// Changes the object.
#[derive(Clone, Copy, Debug)]
pub enum Mutate {
    /// At once, from what is in memory.
    Now(fn(&Context<'_>, &mut Value) -> Result<()>),
    /// Perhaps later: it may wait for others, and for as long as the request does.
    Later(for<'a> fn(&'a Context<'a>, &'a mut Value) -> Step<'a>),
    /// As `Later`; what it changes all mutating plugins see once more, in a second round, and nothing after that.
    InRounds(for<'a> fn(&'a Context<'a>, &'a mut Value, &'a mut Reinvocation) -> Step<'a>),
}

/// A plugin that refuses the object, or lets it pass.
#[derive(Clone, Copy, Debug)]
pub enum Validate {
    /// At once, from what is in memory.
    Now(fn(&Context<'_>, &Value) -> Result<()>),
    /// Perhaps later, as [`Mutate::Later`].
    Later(for<'a> fn(&'a Context<'a>, &'a Value) -> Step<'a>),
}

/// The step of a plugin that may wait, for one request.
pub enum Step<'a> {
    /// There is nothing to wait for.
    Done(Result<()>),
    /// There is.
    Later(BoxFuture<'a, Result<()>>),
}

impl Step<'_> {
    /// Waits, if there is something to wait for.
    async fn done(self, context: &Context<'_>) -> Result<()> {
        match self {
            Self::Done(done) => done,
            Self::Later(work) => {
                // What the server does on its own account has as long as anybody.
                let longest = || Instant::now() + context.cluster.config.options.request_timeout;
                deadline::before(context.request.deadline.unwrap_or_else(longest), work).await
            }
        }
    }
}

/// What asks authorizers: it is done at once unless one of them is somebody else's server.
fn judged<'a>(work: impl Future<Output = Result<()>> + Send + 'a) -> Step<'a> {
    let mut work = Box::pin(work);
    match work.as_mut().now_or_never() {
        Some(done) => Step::Done(done),
        None => Step::Later(work),
    }
}

/// The changes of a plugin beside the object. Source: `sideEffects` of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideEffects {
    /// Nothing.
    None,
    /// Something, but nothing in a dry run: it knows of them.
    NoneOnDryRun,
    /// Something: it is left out of dry runs.
    Some,
}

/// One plugin.
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    /// Upstream's name.
    pub name: &'static str,
    /// Changes the object.
    pub mutate: Option<Mutate>,
    /// Refuses the object.
    pub validate: Option<Validate>,
    /// The changes beside the object.
    pub side_effects: SideEffects,
    /// `true` if it runs unless told otherwise.
    pub is_default: bool,
}

impl Plugin {
    /// Whether it is to run.
    fn runs(&self, chosen: &PluginChoice, effect: Effect) -> bool {
        chosen.has(self.name, self.is_default)
            && !(effect == Effect::DryRun && self.side_effects == SideEffects::Some)
    }
}

type MutateNow = fn(&Context<'_>, &mut Value) -> Result<()>;
type ValidateNow = fn(&Context<'_>, &Value) -> Result<()>;

const fn plugin(name: &'static str, mutate: Option<MutateNow>, validate: Option<ValidateNow>) -> Plugin {
    let mutate = match mutate {
        Some(mutate) => Some(Mutate::Now(mutate)),
        None => None,
    };
    let validate = match validate {
        Some(validate) => Some(Validate::Now(validate)),
        None => None,
    };
    Plugin { name, mutate, validate, side_effects: SideEffects::None, is_default: true }
}

/// One that refuses, and asks authorizers: those may be somebody else's servers.
const fn may_wait(
    name: &'static str,
    validate: for<'a> fn(&'a Context<'a>, &'a Value) -> Step<'a>,
) -> Plugin {
    Plugin { validate: Some(Validate::Later(validate)), ..plugin(name, None, None) }
}

/// All plugins, in upstream's order.
pub const PLUGINS: &[Plugin] = &[
    Plugin {
        mutate: Some(Mutate::Later(namespace_lifecycle::mutate)),
        ..plugin("NamespaceLifecycle", None, Some(namespace_lifecycle::validate))
    },
    plugin("LimitRanger", Some(limit_ranger::mutate), Some(limit_ranger::validate)),
    Plugin {
        mutate: Some(Mutate::Later(service_account::mutate)),
        ..plugin("ServiceAccount", None, Some(service_account::validate))
    },
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
    Plugin {
        is_default: false,
        side_effects: SideEffects::Some,
        ..plugin("EventRateLimit", None, Some(event_rate_limit::validate))
    },
    plugin("DefaultStorageClass", Some(default_class::storage), None),
    plugin("StorageObjectInUseProtection", Some(storage::protect), None),
    Plugin {
        is_default: false,
        ..may_wait("OwnerReferencesPermissionEnforcement", owner_references::validate)
    },
    plugin("PersistentVolumeClaimResize", None, Some(storage::resize)),
    plugin("RuntimeClass", Some(runtime_class::mutate), Some(runtime_class::validate)),
    may_wait("CertificateApproval", certificates::approval),
    may_wait("CertificateSigning", certificates::signing),
    may_wait("ClusterTrustBundleAttest", certificates::attest),
    plugin("CertificateSubjectRestriction", None, Some(certificates::subject)),
    plugin("DefaultIngressClass", Some(default_class::ingress), None),
    plugin("DenyServiceExternalIPs", None, Some(deny_external_ips::validate)),
    plugin("PodTopologyLabels", Some(pod_topology_labels::mutate), None),
    // Upstream's registry does these; they are no plugins there, and nobody may switch them off.
    plugin(REQUESTER, Some(certificates::requester), None),
    may_wait(ESCALATION, rbac_escalation::validate),
    plugin(DEVICE_ADMIN, None, Some(device_admin::validate)),
    may_wait(POD_CERTIFICATES, certificates::pod_certificate),
    may_wait(POLICY_PARAMS, policy_params::validate),
    // Upstream has no such rule.
    plugin(EXTERNAL_ADDRESSES, None, Some(external_addresses::validate)),
    Plugin { mutate: Some(Mutate::InRounds(policies::mutate)), ..plugin(policies::MUTATING, None, None) },
    Plugin {
        mutate: Some(Mutate::InRounds(webhooks::mutate)),
        side_effects: SideEffects::NoneOnDryRun,
        ..plugin(webhooks::MUTATING, None, None)
    },
    Plugin {
        validate: Some(Validate::Later(policies::validate)),
        ..plugin(policies::VALIDATING, None, None)
    },
    Plugin {
        validate: Some(Validate::Later(webhooks::validate)),
        side_effects: SideEffects::NoneOnDryRun,
        ..plugin(webhooks::VALIDATING, None, None)
    },
    // Charging is a stage of its own, after all validation; here is what it waits for.
    Plugin {
        validate: Some(Validate::Later(resource_quota::validate)),
        side_effects: SideEffects::NoneOnDryRun,
        ..plugin(RESOURCE_QUOTA, None, None)
    },
];

/// The plugin whose namespaces' objects are charged.
pub const RESOURCE_QUOTA: &str = "ResourceQuota";

const REQUESTER: &str = "CertificateRequester";
const ESCALATION: &str = "RBACEscalation";
const DEVICE_ADMIN: &str = "DeviceAdminAccess";
const POD_CERTIFICATES: &str = "PodCertificateSigning";
const POLICY_PARAMS: &str = "PolicyParameters";
const EXTERNAL_ADDRESSES: &str = "ServiceExternalAddresses";

/// The plugins to run: the default ones and `enabled`, without `disabled`; both are upstream's names.
///
/// # Errors
/// A name that no plugin has.
pub fn chosen(enabled: &[String], disabled: &[String]) -> Result<PluginChoice, ConfigurationError> {
    let fixed = [REQUESTER, ESCALATION, DEVICE_ADMIN, POD_CERTIFICATES, POLICY_PARAMS, EXTERNAL_ADDRESSES];
    let is_known = |name: &&String| {
        PLUGINS.iter().any(|plugin| plugin.name == **name) && !fixed.contains(&name.as_str())
    };
    if let Some(unknown) = enabled.iter().chain(disabled).find(|name| !is_known(name)) {
        return Err(ConfigurationError::rule(format!("there is no admission plugin {unknown:?}")));
    }
    Ok(PluginChoice { enabled: enabled.to_vec(), disabled: disabled.to_vec() })
}

/// The names of the plugins that run, in order.
pub fn running(chosen: &PluginChoice) -> impl Iterator<Item = &'static str> + '_ {
    PLUGINS.iter().filter(|plugin| chosen.has(plugin.name, plugin.is_default)).map(|plugin| plugin.name)
}

/// `true` if the plugin of that name is to run.
pub fn is_on(chosen: &PluginChoice, name: &str) -> bool {
    running(chosen).any(|running| running == name)
}

/// Runs the mutating plugins, one after the other; all of them twice, if the last ones have changed what the others saw.
///
/// # Errors
/// What the first plugin that refuses says; 504 if one takes longer than the request may.
pub async fn mutate(context: &Context<'_>, object: &mut Value) -> Result<()> {
    let mut rounds = Reinvocation::default();
    mutate_once(context, object, &mut rounds).await?;
    if rounds.needs_second() {
        rounds.begin_second();
        mutate_once(context, object, &mut rounds).await?;
    }
    Ok(())
}

async fn mutate_once(context: &Context<'_>, object: &mut Value, rounds: &mut Reinvocation) -> Result<()> {
    let chosen = &context.cluster.config.options.admission_plugins;
    for plugin in PLUGINS {
        match plugin.mutate {
            Some(Mutate::Now(mutate)) if plugin.runs(chosen, context.effect) => mutate(context, object)?,
            Some(Mutate::Later(mutate)) if plugin.runs(chosen, context.effect) => {
                mutate(context, object).done(context).await?;
            }
            Some(Mutate::InRounds(mutate)) if plugin.runs(chosen, context.effect) => {
                mutate(context, object, rounds).done(context).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Runs the validating plugins. None of them changes anything but itself.
///
/// # Errors
/// As [`mutate`].
pub async fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    let chosen = &context.cluster.config.options.admission_plugins;
    for plugin in PLUGINS {
        match plugin.validate {
            Some(Validate::Now(validate)) if plugin.runs(chosen, context.effect) => {
                validate(context, object)?
            }
            Some(Validate::Later(validate)) if plugin.runs(chosen, context.effect) => {
                validate(context, object).done(context).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dry_runs_leave_out_what_has_side_effects() {
        let all = chosen(&["EventRateLimit".into()], &["LimitRanger".into()]).unwrap();
        let check = |name: &str, effect: Effect, expect: bool| {
            let plugin = PLUGINS.iter().find(|plugin| plugin.name == name).unwrap();
            assert_eq!(plugin.runs(&all, effect), expect, "{name} {effect:?}");
        };
        for (name, stored, dry) in [
            ("EventRateLimit", true, false),
            ("ResourceQuota", true, true),
            ("PodSecurity", true, true),
            ("LimitRanger", false, false),
            ("AlwaysPullImages", false, false),
        ] {
            check(name, Effect::Stored, stored);
            check(name, Effect::DryRun, dry);
        }
    }
}
