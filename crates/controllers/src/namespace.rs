//! The Namespace controller: a namespace that is deleted takes its content with it.
//!
//! It deletes what is left, Pods before everything else, says what it waits for, and takes the finalizer `kubernetes` off
//! when nothing is left. Of what is there informers know a part only: the server is asked for the rest
//! (`namespace/foreign.rs`), and nothing is finalized where it cannot say what there is.
//! Source: `pkg/controller/namespace/deletion`, KEP-5080 (ordered deletion).

mod conditions;
mod foreign;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use controller::informer::PartialObject;
use controller::metadata::{is_deleting, name, namespace, uid};
use controller::request::{ApiRequest, Verb};
use controller::{Action, Answers, Change, Controller, Informers, Plan, Propagation, ResourceRef, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;

use crate::kinds;
use crate::pod::since_until;
use conditions::Facts;
pub use foreign::{Foreign, Survey};

const FINALIZER: &str = "kubernetes";
/// A namespace is not given up before this: what was created just before its deletion may not be seen yet.
const SETTLE: Duration = Duration::from_secs(1);
/// When to look again at what no informer tells of.
const LOOK_AGAIN: Duration = Duration::from_secs(11);

/// The controller's row. Keys are namespaces.
pub const CONTROLLER: Controller = Controller {
    name: "namespace-controller",
    queue: "namespace",
    sources: |_| {
        let content = kinds::built_in().filter(|resource| resource.namespaced);
        let content = content.map(|resource| Source::metadata_of(resource.clone(), woken));
        [Source::itself::<Namespace>()].into_iter().chain(content).collect()
    },
    reconcile: |informers, key, now| {
        gather(informers, key, now).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

/// The input of a decision about one namespace.
pub struct Snapshot {
    /// The namespace.
    pub namespace: Arc<Namespace>,
    /// The content that is left in it, by resource; only filled in when it is being deleted.
    pub content: Vec<(ResourceRef, Vec<Arc<PartialObject>>)>,
    /// The content that is left in it of resources that no informer knows.
    pub foreign: Foreign,
}

fn gather(informers: &Informers, key: &str, now: Timestamp) -> Option<Snapshot> {
    let namespace = informers.informer::<Namespace>().get(key).filter(|ns| is_deleting(&ns.metadata))?;
    let content: Vec<(ResourceRef, Vec<Arc<PartialObject>>)> = kinds::built_in()
        .filter(|resource| resource.namespaced)
        .map(|resource| (resource.clone(), informers.metadata(resource).in_namespace(key)))
        .filter(|(_, objects)| !objects.is_empty())
        .collect();
    // What lags behind the deletion may have more to tell than it knows.
    let revision = namespace.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    let is_known = |resource: &ResourceRef| {
        kinds::by_plural(&resource.group, &resource.plural).is_some_and(|known| {
            let has_caught_up = revision.is_some_and(|seen| informers.metadata(known).revision() >= seen);
            has_caught_up || content.iter().any(|(left, _)| left == known)
        })
    };
    let since = namespace.metadata.deletion_timestamp.as_ref().map_or(now, |deleted| deleted.0) + SETTLE;
    let not_before = since.max(now - foreign::FRESH);
    let foreign = Foreign::gather(&Answers::of(informers), key, is_known, not_before);
    Some(Snapshot { namespace, content, foreign })
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
    let settled = SETTLE.checked_sub(since_until(deleted.0, now)).filter(|left| !left.is_zero());
    let has_pods = snapshot.content.iter().any(|(resource, _)| is_pods(resource));
    let content = snapshot.content.iter().filter(|(resource, _)| is_pods(resource) || !has_pods);
    let mut going: Vec<Action> =
        content.flat_map(|(resource, objects)| deletions(resource, objects)).collect();
    if let Some(left) = settled {
        plan.requeue(left);
    }
    let nothing = Survey::default();
    let survey = match &snapshot.foreign {
        _ if has_pods || settled.is_some() => &nothing,
        Foreign::Ask(questions) => {
            plan.push_step(going);
            plan.questions.clone_from(questions);
            return plan;
        }
        Foreign::Known(survey) => survey,
    };
    going.extend(survey.deletions(name(meta)));
    plan.questions = survey.questions_after(name(meta));
    let facts = Facts::of(&snapshot.content, survey);
    if snapshot.content.is_empty() && survey.is_empty() {
        if settled.is_none() {
            end(&mut plan, namespace, &facts, now);
        }
        return plan;
    }
    if !going.is_empty() {
        plan.on_failure = conditions::report(namespace, &facts.failing(), now).into_iter().collect();
    }
    plan.push_step(going);
    plan.push_step(conditions::report(namespace, &facts, now).into_iter().collect());
    if !survey.is_empty() {
        plan.requeue(LOOK_AGAIN);
    }
    plan
}

/// Nothing is left.
fn end(plan: &mut Plan, namespace: &Namespace, facts: &Facts, now: Timestamp) {
    if is_kept_by_others(namespace)
        && let Some(told) = conditions::report(namespace, facts, now)
    {
        plan.push(told);
        return;
    }
    let events =
        Action::delete_collection(kinds::events(), name(&namespace.metadata), Propagation::Background);
    plan.push(events);
    plan.push(finalize(namespace));
}

fn is_pods(resource: &ResourceRef) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

/// Whether the namespace stays after it was finalized, so that people can still read its conditions.
fn is_kept_by_others(namespace: &Namespace) -> bool {
    let own = namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten());
    let others = namespace.metadata.finalizers.iter().flatten();
    own.chain(others).any(|finalizer| finalizer != FINALIZER)
}

fn deletions<'a>(
    resource: &'a ResourceRef,
    objects: &'a [Arc<PartialObject>],
) -> impl Iterator<Item = Action> + 'a {
    objects.iter().filter(|object| !is_deleting(&object.metadata)).map(|object| delete(resource, object))
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
