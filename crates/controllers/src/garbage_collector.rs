//! The garbage collector: what has lost all its owners goes too.
//!
//! - Background: the owner is gone, so its dependents go when they are looked at.
//! - Foreground: the owner stays, with a finalizer, until no dependent blocks it any more.
//! - Orphan: the owner stays, with a finalizer, until its dependents have forgotten it.
//!
//! It knows metadata only, of every stored resource. The watches of two resources do not wait for each other, so
//! an owner counts as gone only when its informer is as new as the dependent; otherwise the server is asked. So it is for
//! owners of kinds that no informer knows (`garbage_collector/foreign.rs`): where the server cannot say, nothing goes.

mod foreign;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use controller::informer::PartialObject;
use controller::plan::{EventAction, EventType};
use controller::{
    Action, Answers, Change, Controller, Informers, Patch, Plan, Propagation, Question, ResourceRef, Source,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::kinds;
use crate::object::{is_deleting, key, name, namespace, uid};

/// Keeps a deleted owner until its dependents are gone. Source: meta/v1.
const FOREGROUND: &str = "foregroundDeletion";
/// Keeps a deleted owner until its dependents are orphans. Source: meta/v1.
const ORPHAN: &str = "orphan";
/// When to look again at an owner that no informer tells of.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The controller's row. Keys are `group/plural/` and the object's own key.
pub const CONTROLLER: Controller = Controller {
    name: "garbage-collector-controller",
    queue: "garbage_collector_attempt_to_delete",
    sources: |_| kinds::watched().map(|resource| Source::metadata_of(resource.clone(), woken)).collect(),
    reconcile: |informers, key, now| {
        gather(informers, key, now).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

/// An object and the resource that it belongs to.
#[derive(Clone)]
pub struct Item {
    /// Of which resource.
    pub resource: ResourceRef,
    /// Its metadata.
    pub object: Arc<PartialObject>,
}

impl Item {
    fn meta(&self) -> &ObjectMeta {
        &self.object.metadata
    }
}

/// What is known about an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It is there and stays.
    Solid,
    /// It is there and stays, as the server said; no informer tells of its end.
    SolidForeign,
    /// The server knows no such kind, or cannot say now.
    Unknown,
    /// It would have to be in a namespace, and the dependent is in none: that is an error which does not heal.
    Impossible,
    /// It is being deleted and waits for its dependents to go first.
    Waiting,
    /// It is not there, nor will it appear.
    Gone,
    /// It was not seen, but may have been made too recently: the server has to be asked.
    NotSeen,
}

/// What a decision about one object is made from.
pub struct Snapshot {
    /// The object.
    pub item: Item,
    /// What is known about each of its owner references, in order.
    pub owners: Vec<Owner>,
    /// What has this object as an owner; filled in where it matters.
    pub dependents: Vec<Item>,
    /// What the server has to be asked before anything can be known about the owners.
    pub questions: Vec<Question>,
}

fn gather(informers: &Informers, key: &str, now: Timestamp) -> Option<Snapshot> {
    let mut parts = key.splitn(3, '/');
    let (group, plural, object_key) = (parts.next()?, parts.next()?, parts.next()?);
    let resource = kinds::by_plural(group, plural)?.clone();
    let object = informers.metadata(&resource).get(object_key)?;
    let meta = &object.metadata;
    let answers = Answers::of(informers);
    let (mut owners, mut questions) = (Vec::new(), Vec::new());
    for owner in meta.owner_references.iter().flatten() {
        let found = match resource_of(owner) {
            Some(resource) => Ok(look_up(informers, resource, owner, meta)),
            None => foreign::look_up(&answers, owner, namespace(meta), now),
        };
        match found {
            Ok(state) => owners.push(state),
            Err(question) => questions.push(*question),
        }
    }
    let is_looked_at = is_deleting(meta) || owners.contains(&Owner::Waiting);
    let dependents = if is_looked_at { dependents(informers, uid(meta)) } else { Vec::new() };
    Some(Snapshot { item: Item { resource, object }, owners, dependents, questions })
}

fn look_up(
    informers: &Informers,
    resource: &ResourceRef,
    owner: &OwnerReference,
    dependent: &ObjectMeta,
) -> Owner {
    let namespace = namespace(dependent);
    if resource.namespaced && namespace.is_empty() {
        return Owner::Impossible;
    }
    let informer = informers.metadata(resource);
    match informer.get(&owner_key(resource, namespace, owner)) {
        Some(found) if uid(&found.metadata) == owner.uid => state_of(&found.metadata, Owner::Solid),
        _ => {
            let revision = dependent.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
            let has_caught_up = revision.is_some_and(|revision| informer.revision() >= revision);
            if has_caught_up { Owner::Gone } else { Owner::NotSeen }
        }
    }
}

fn state_of(owner: &ObjectMeta, solid: Owner) -> Owner {
    if is_deleting_dependents(owner) { Owner::Waiting } else { solid }
}

fn resource_of(owner: &OwnerReference) -> Option<&'static ResourceRef> {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    kinds::by_kind(group, &owner.kind)
}

fn owner_key(resource: &ResourceRef, namespace: &str, owner: &OwnerReference) -> String {
    if resource.namespaced { format!("{namespace}/{}", owner.name) } else { owner.name.clone() }
}

fn dependents(informers: &Informers, uid: &str) -> Vec<Item> {
    let of = |resource: &'static ResourceRef| {
        let found = informers.metadata(resource).dependents_of(uid);
        found.into_iter().map(|object| Item { resource: resource.clone(), object })
    };
    kinds::watched().flat_map(of).collect()
}

fn key_of(resource: &ResourceRef, object_key: &str) -> String {
    format!("{}/{}/{object_key}", resource.group, resource.plural)
}

/// Wakes the object itself, its dependents when it goes, and its owners when they may wait for it.
fn woken(change: &Change<PartialObject>, resource: &ResourceRef, informers: &Informers) -> Vec<String> {
    let (old, new) = (change.old.as_deref().map(|o| &o.metadata), change.new.as_deref().map(|o| &o.metadata));
    let facts = |meta: &ObjectMeta| {
        (meta.uid.clone(), meta.owner_references.clone(), is_deleting(meta), meta.finalizers.clone())
    };
    if old.map(facts) == new.map(facts) {
        return Vec::new();
    }
    let mut keys = Vec::new();
    if let Some(meta) = new
        && (is_deleting(meta) || meta.owner_references.is_some())
    {
        keys.push(key_of(resource, &change.key));
    }
    let is_replaced = new.map(uid) != old.map(uid);
    let gone = old.filter(|_| is_replaced);
    let going = new.filter(|meta| is_deleting(meta));
    for meta in [gone, going].into_iter().flatten() {
        let all = dependents(informers, uid(meta));
        keys.extend(all.iter().map(|item| key_of(&item.resource, &key(item.meta()))));
    }
    if let Some(meta) = old {
        let owners = meta.owner_references.iter().flatten();
        keys.extend(owners.filter_map(|owner| {
            let resource = resource_of(owner)?;
            Some(key_of(resource, &owner_key(resource, namespace(meta), owner)))
        }));
    }
    keys
}

/// Decides what to do about one object.
pub fn plan(snapshot: &Snapshot, _: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let item = &snapshot.item;
    let meta = item.meta();
    if is_deleting(meta) {
        if has_finalizer(meta, ORPHAN) {
            plan.push_step(
                snapshot.dependents.iter().map(|dependent| forget(dependent, &[uid(meta)])).collect(),
            );
            plan.push(without_finalizer(item, ORPHAN));
        } else if has_finalizer(meta, FOREGROUND)
            && !snapshot.dependents.iter().any(|d| is_blocking(d, uid(meta)))
        {
            plan.push(without_finalizer(item, FOREGROUND));
        }
        return plan;
    }
    if !snapshot.questions.is_empty() {
        plan.questions.clone_from(&snapshot.questions);
        return plan;
    }
    if snapshot.owners.contains(&Owner::Impossible) {
        plan.push_step(snapshot.impossible().map(|owner| complain(item, owner)).collect());
        return plan;
    }
    if snapshot.owners.iter().any(|owner| matches!(owner, Owner::Unknown | Owner::SolidForeign)) {
        plan.requeue(LOOK_AGAIN);
    }
    if snapshot.owners.is_empty() || snapshot.owners.contains(&Owner::Unknown) {
        return plan;
    }
    let references = meta.owner_references.iter().flatten().zip(&snapshot.owners);
    let unseen = references.filter(|(_, state)| **state == Owner::NotSeen).filter_map(|(owner, _)| {
        let resource = resource_of(owner)?.clone();
        let namespace = if resource.namespaced { namespace(meta) } else { "" };
        Some(Action::require_absent(resource, namespace, &owner.name, &owner.uid))
    });
    plan.push_step(unseen.collect());
    let is_solid = |owner: &Owner| matches!(owner, Owner::Solid | Owner::SolidForeign);
    if snapshot.owners.iter().any(is_solid) {
        let references = meta.owner_references.iter().flatten().zip(&snapshot.owners);
        let stale: Vec<&str> =
            references.filter(|(_, state)| !is_solid(state)).map(|(owner, _)| owner.uid.as_str()).collect();
        if !stale.is_empty() {
            plan.push(forget(item, &stale));
        }
        return plan;
    }
    let is_waited_for = snapshot.owners.contains(&Owner::Waiting) && !snapshot.dependents.is_empty();
    let propagation = if is_waited_for {
        if snapshot.dependents.iter().any(|dependent| is_deleting_dependents(dependent.meta())) {
            // A circle of owners: somebody has to stop blocking.
            plan.push(unblock(item));
        }
        Propagation::Foreground
    } else if has_finalizer(meta, ORPHAN) {
        Propagation::Orphan
    } else if has_finalizer(meta, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let (namespace, name, uid) = (namespace(meta), name(meta), uid(meta));
    plan.push(Action::delete_ref(item.resource.clone(), namespace, name, Some(uid), propagation, None));
    plan
}

impl Snapshot {
    fn impossible(&self) -> impl Iterator<Item = &OwnerReference> {
        let references = self.item.meta().owner_references.iter().flatten().zip(&self.owners);
        references.filter(|(_, state)| **state == Owner::Impossible).map(|(owner, _)| owner)
    }
}

/// Source: `reportInvalidNamespaceOwnerRef`.
fn complain(item: &Item, owner: &OwnerReference) -> Action {
    let meta = item.meta();
    let OwnerReference { api_version, kind, name, uid, .. } = owner;
    Action::Event(Box::new(EventAction {
        component: "",
        regarding: ObjectReference {
            api_version: Some(item.resource.api_version()),
            kind: Some(item.resource.kind.clone()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::default()
        },
        event_type: EventType::Warning,
        reason: "OwnerRefInvalidNamespace".to_owned(),
        message: format!(
            "ownerRef [{api_version}/{kind}, namespace: {}, name: {name}, uid: {uid}] does not exist in namespace {:?}",
            namespace(meta),
            namespace(meta)
        ),
        annotations: Default::default(),
    }))
}

fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|own| own == finalizer)
}

fn is_deleting_dependents(meta: &ObjectMeta) -> bool {
    is_deleting(meta) && has_finalizer(meta, FOREGROUND)
}

fn is_blocking(dependent: &Item, owner_uid: &str) -> bool {
    let mut owners = dependent.meta().owner_references.iter().flatten();
    owners.any(|owner| owner.uid == owner_uid && owner.block_owner_deletion == Some(true))
}

fn forget(item: &Item, owner_uids: &[&str]) -> Action {
    let references: Vec<Value> =
        owner_uids.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
    patch(
        item,
        Patch::Strategic(json!({"metadata": {"uid": uid(item.meta()), "ownerReferences": references}})),
    )
}

fn unblock(item: &Item) -> Action {
    let references: Vec<Value> = item
        .meta()
        .owner_references
        .iter()
        .flatten()
        .map(|owner| json!({"uid": owner.uid, "blockOwnerDeletion": false}))
        .collect();
    patch(
        item,
        Patch::Strategic(json!({"metadata": {"uid": uid(item.meta()), "ownerReferences": references}})),
    )
}

fn without_finalizer(item: &Item, finalizer: &str) -> Action {
    let meta = item.meta();
    let left: Vec<&String> = meta.finalizers.iter().flatten().filter(|own| *own != finalizer).collect();
    let metadata = json!({"uid": uid(meta), "resourceVersion": meta.resource_version, "finalizers": left});
    patch(item, Patch::Merge(json!({ "metadata": metadata })))
}

fn patch(item: &Item, patch: Patch) -> Action {
    let meta = item.meta();
    Action::patch_ref(item.resource.clone(), namespace(meta), name(meta), "", patch)
}
