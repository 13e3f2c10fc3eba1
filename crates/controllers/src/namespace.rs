//! The Namespace controller: a namespace that is deleted takes its content with it.
//!
//! It deletes what is left, says what it waits for, and takes the finalizer `kubernetes` off when nothing is left.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::informer::PartialObject;
use controller::plan::{ApiRequest, Verb};
use controller::{Action, Change, Controller, Informers, Patch, Plan, Propagation, ResourceRef, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus};
use serde_json::json;

use crate::kinds;
use crate::object::{is_deleting, name, namespace, status_patch, time, uid};
use crate::pod::since_until;

const FINALIZER: &str = "kubernetes";
/// A namespace is not given up before this: what was created just before its deletion may not be seen yet.
const SETTLE: Duration = Duration::from_secs(1);

/// The controller's row. Keys are namespaces.
pub const CONTROLLER: Controller = Controller {
    name: "namespace-controller",
    queue: "namespace",
    sources: |_| {
        let content = kinds::watched().filter(|resource| resource.namespaced);
        let content = content.map(|resource| Source::metadata_of(resource.clone(), woken));
        [Source::itself::<Namespace>()].into_iter().chain(content).collect()
    },
    reconcile: |informers, key, now| {
        gather(informers, key).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

/// What a decision about one namespace is made from.
pub struct Snapshot {
    /// The namespace.
    pub namespace: Arc<Namespace>,
    /// What is left in it, by resource; only filled in when it is being deleted.
    pub content: Vec<(ResourceRef, Vec<Arc<PartialObject>>)>,
}

fn gather(informers: &Informers, key: &str) -> Option<Snapshot> {
    let namespace = informers.informer::<Namespace>().get(key).filter(|ns| is_deleting(&ns.metadata))?;
    let content = kinds::watched()
        .filter(|resource| resource.namespaced)
        .map(|resource| (resource.clone(), informers.metadata(resource).in_namespace(key)))
        .filter(|(_, objects)| !objects.is_empty())
        .collect();
    Some(Snapshot { namespace, content })
}

/// Content matters only where the namespace is on its way out.
fn woken(change: &Change<PartialObject>, _: &ResourceRef, informers: &Informers) -> Vec<String> {
    let Some(object) = change.object() else { return Vec::new() };
    let key = namespace(&object.metadata);
    let is_going = informers.informer::<Namespace>().get(key).is_some_and(|ns| is_deleting(&ns.metadata));
    if is_going { vec![key.to_owned()] } else { Vec::new() }
}

/// Decides what to do about one namespace.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let namespace = &*snapshot.namespace;
    let meta = &namespace.metadata;
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default();
    let Some(deleted) = meta.deletion_timestamp.as_ref() else { return plan };
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return plan;
    }
    let going = snapshot.content.iter().flat_map(|(resource, objects)| {
        objects
            .iter()
            .filter(|object| !is_deleting(&object.metadata))
            .map(move |object| delete(resource, object))
    });
    plan.push_step(going.collect());
    let since = since_until(deleted.0, now);
    if snapshot.content.is_empty() && since >= SETTLE {
        plan.push(Action::delete_collection(kinds::events(), name(meta), Propagation::Background));
        plan.push(finalize(namespace));
        return plan;
    }
    if snapshot.content.is_empty() {
        plan.requeue(SETTLE.saturating_sub(since));
        return plan;
    }
    plan.push_step(report(namespace, &snapshot.content, now).into_iter().collect());
    plan
}

fn delete(resource: &ResourceRef, object: &PartialObject) -> Action {
    let meta = &object.metadata;
    let (namespace, name, uid) = (namespace(meta), name(meta), uid(meta));
    Action::delete_ref(resource.clone(), namespace, name, Some(uid), Propagation::Background, None)
}

/// PUT of the subresource `finalize`, the only way to change `spec.finalizers`.
fn finalize(namespace: &Namespace) -> Action {
    let mut finalized = namespace.clone();
    if let Some(finalizers) = finalized.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    Action::Request(Box::new(ApiRequest {
        verb: Verb::Update,
        resource: ResourceRef::of::<Namespace>(),
        namespace: String::new(),
        name: name(&namespace.metadata).to_owned(),
        subresource: "finalize",
        body: json!(finalized),
    }))
}

/// Conditions that say what is waited for. Source: `NamespaceConditionType`, core/v1.
fn report(
    namespace: &Namespace,
    content: &[(ResourceRef, Vec<Arc<PartialObject>>)],
    now: Timestamp,
) -> Option<Action> {
    let remaining: Vec<String> = content
        .iter()
        .map(|(resource, objects)| {
            format!("{}.{} has {} resource instances", resource.plural, resource.group, objects.len())
        })
        .collect();
    let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
    for object in content.iter().flat_map(|(_, objects)| objects) {
        for finalizer in object.metadata.finalizers.iter().flatten() {
            *finalizers.entry(finalizer).or_default() += 1;
        }
    }
    let held: Vec<String> = finalizers
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    let held_condition = if held.is_empty() {
        ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned())
    } else {
        let message = format!("Some content in the namespace has finalizers remaining: {}", held.join(", "));
        ("True", "SomeFinalizersRemain", message)
    };
    let message = format!("Some resources are remaining: {}", remaining.join(", "));
    let told = [
        (
            "NamespaceDeletionDiscoveryFailure",
            ("False", "ResourcesDiscovered", "All resources successfully discovered".to_owned()),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            ("False", "ParsedGroupVersions", "All legacy kube types successfully parsed".to_owned()),
        ),
        (
            "NamespaceDeletionContentFailure",
            (
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization".to_owned(),
            ),
        ),
        ("NamespaceContentRemaining", ("True", "SomeResourcesRemain", message)),
        ("NamespaceFinalizersRemaining", held_condition),
    ];
    let old = namespace.status.clone().unwrap_or_default();
    let known = old.conditions.clone().unwrap_or_default();
    let conditions = told.map(|(type_, (status, reason, message))| {
        let before = known.iter().find(|condition| condition.type_ == type_ && condition.status == status);
        NamespaceCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: before
                .and_then(|condition| condition.last_transition_time.clone())
                .or_else(|| Some(time(now))),
        }
    });
    let new = NamespaceStatus { phase: Some("Terminating".to_owned()), conditions: Some(conditions.into()) };
    let patch = status_patch(&old, &new)?;
    Some(Action::patch_status::<Namespace>("", name(&namespace.metadata), Patch::Merge(patch)))
}
