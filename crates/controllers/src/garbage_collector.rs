//! The garbage collector: what has lost all its owners goes too.
//!
//! - Background: the owner is gone, so its dependents go when they are looked at.
//! - Foreground: the owner stays, with a finalizer, until no dependent blocks it any more.
//! - Orphan: the owner stays, with a finalizer, until its dependents have forgotten it.
//!
//! It knows metadata only, of every stored resource: built-in ones, and those that discovery names as long as it does. The
//! watches of two resources do not wait for each other, so an owner counts as gone only when its informer is as new as the
//! dependent; otherwise the server is asked. Revisions of kinds that came may be of another store: there the server is always
//! asked, unless the owner was seen to go, and its kind after it (`memory.rs`). So it is for owners of kinds that no informer
//! knows (`foreign.rs`). Where the server cannot say, nothing goes: a kind that is out of sight takes nobody with it.

mod foreign;
mod memory;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use controller::event::{EventAction, EventType};
use controller::informer::PartialObject;
use controller::metadata::{is_deleting, key, name, namespace, uid};
use controller::{
    Action, Answers, Change, Controller, Following, Informer, Informers, Patch, Plan, Propagation, Question,
    ResourceRef, Source,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::kinds::{self, Followed};
use memory::Memory;

/// Keeps a deleted owner until its dependents are gone. Source: meta/v1.
const FOREGROUND: &str = "foregroundDeletion";
/// Keeps a deleted owner until its dependents are orphans. Source: meta/v1.
const ORPHAN: &str = "orphan";
/// When to look again at an owner that no informer tells of.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// When to look again while informers get their first lists.
const SYNC: Duration = Duration::from_secs(1);

/// The controller's row. Keys are `group/plural/` and the object's own key.
pub const CONTROLLER: Controller = Controller {
    name: "garbage-collector-controller",
    queue: "garbage_collector_attempt_to_delete",
    sources: |_| {
        let built_in = kinds::built_in().map(|resource| Source::metadata_of(resource.clone(), woken));
        built_in.chain([Source::discovered(GUESTS)]).collect()
    },
    reconcile: |informers, key, now| {
        gather(informers, key, now).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

/// Kinds that come and go.
const GUESTS: Following = Following {
    wants: kinds::is_dynamic,
    changed: |change, resource, informers| {
        let replaced = |old: &&Arc<PartialObject>| {
            change.new.as_ref().map(|new| uid(&new.metadata)) != Some(uid(&old.metadata))
        };
        if let Some(gone) = change.old.as_ref().filter(replaced) {
            Memory::of(informers).saw_go(&resource.group, &resource.kind, uid(&gone.metadata));
        }
        woken(change, resource, informers)
    },
    // Whoever waits for owners of this kind can learn of them now.
    came: |resource, informers| Memory::of(informers).take_waiting(&resource.group, &resource.kind),
    // Owners have nothing to wait for any more, and dependents wait until the kind is back.
    went: |resource, left, informers| {
        let out_of_sight = |object: &Arc<PartialObject>| {
            let (key, old) = (key(&object.metadata), Some(object.clone()));
            woken(&Change { key: key.into(), old, new: None, revision: 0 }, resource, informers)
        };
        left.iter().flat_map(out_of_sight).collect()
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

/// The state of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// It was not seen, but may have been made too recently: the server has to be asked for this resource.
    NotSeen(Box<ResourceRef>),
}

/// The input of a decision about one object.
pub struct Snapshot {
    /// The object.
    pub item: Item,
    /// The state of each of its owner references, in order.
    pub owners: Vec<Owner>,
    /// The objects that have this one as an owner; filled in where it matters.
    pub dependents: Vec<Item>,
    /// `true` if it may have dependents that are not known yet.
    pub is_incomplete: bool,
    /// The questions to the server without whose answers nothing is known about the owners.
    pub questions: Vec<Question>,
}

fn gather(informers: &Informers, key: &str, now: Timestamp) -> Option<Snapshot> {
    let mut parts = key.splitn(3, '/');
    let (group, plural, object_key) = (parts.next()?, parts.next()?, parts.next()?);
    let followed = Followed::of(informers);
    let (resource, informer) = followed.by_plural(group, plural)?;
    let item = Item { object: informer.get(object_key)?, resource };
    let meta = item.meta();
    let (mut owners, mut questions) = (Vec::new(), Vec::new());
    for owner in meta.owner_references.iter().flatten() {
        match look_up(informers, &followed, owner, &item, now) {
            Ok(Owner::Unknown) => {
                let (group, kind) = kind_of(owner);
                Memory::of(informers).wait(group, kind, key);
                owners.push(Owner::Unknown);
            }
            Ok(state) => owners.push(state),
            Err(question) => questions.push(*question),
        }
    }
    let is_looked_at = is_deleting(meta) || owners.contains(&Owner::Waiting);
    let dependents = if is_looked_at { dependents(&followed, uid(meta)) } else { Vec::new() };
    let is_incomplete = is_held(meta) && followed.is_incomplete(now);
    Some(Snapshot { item, owners, dependents, is_incomplete, questions })
}

/// What is known about an owner of something, or what has to be asked first.
fn look_up(
    informers: &Informers,
    followed: &Followed<'_>,
    owner: &OwnerReference,
    dependent: &Item,
    now: Timestamp,
) -> Result<Owner, Box<Question>> {
    let (group, kind) = kind_of(owner);
    if let Some(resource) = kinds::by_kind(group, kind) {
        return Ok(see(resource, &informers.metadata(resource), owner, dependent));
    }
    match followed.dynamic_by_kind(group, kind) {
        Some((resource, informer)) if informer.is_synced() => Ok(see(&resource, &informer, owner, dependent)),
        // Nobody can be asked any more.
        None if !followed.knows(group, kind) && Memory::of(informers).has_gone(group, kind, &owner.uid) => {
            Ok(Owner::Gone)
        }
        _ => foreign::look_up(&Answers::of(informers), owner, namespace(dependent.meta()), now),
    }
}

/// What an informer shows of an owner.
fn see(
    resource: &ResourceRef,
    informer: &Informer<PartialObject>,
    owner: &OwnerReference,
    dependent: &Item,
) -> Owner {
    let meta = dependent.meta();
    let namespace = namespace(meta);
    if resource.namespaced && namespace.is_empty() {
        return Owner::Impossible;
    }
    match informer.get(&owner_key(resource, namespace, owner)) {
        Some(found) if uid(&found.metadata) == owner.uid => state_of(&found.metadata, Owner::Solid),
        _ => {
            let revision = meta.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
            let has_caught_up = revision.is_some_and(|revision| informer.revision() >= revision);
            let is_of_one_store = kinds::is_built_in(resource) && kinds::is_built_in(&dependent.resource);
            if has_caught_up && is_of_one_store {
                Owner::Gone
            } else {
                Owner::NotSeen(Box::new(resource.clone()))
            }
        }
    }
}

fn state_of(owner: &ObjectMeta, solid: Owner) -> Owner {
    if is_deleting_dependents(owner) { Owner::Waiting } else { solid }
}

/// The group and the kind of an owner.
fn kind_of(owner: &OwnerReference) -> (&str, &str) {
    (owner.api_version.split_once('/').map_or("", |(group, _)| group), &owner.kind)
}

fn owner_key(resource: &ResourceRef, namespace: &str, owner: &OwnerReference) -> String {
    if resource.namespaced { format!("{namespace}/{}", owner.name) } else { owner.name.clone() }
}

fn dependents(followed: &Followed<'_>, uid: &str) -> Vec<Item> {
    let of = |(resource, informer): (Cow<'static, ResourceRef>, Informer<PartialObject>)| {
        let found = informer.dependents_of(uid);
        found.into_iter().map(move |object| Item { resource: resource.clone().into_owned(), object })
    };
    followed.all().flat_map(of).collect()
}

fn key_of(resource: &ResourceRef, object_key: &str) -> String {
    format!("{}/{}/{object_key}", resource.group, resource.plural)
}

/// What can make a difference.
fn facts(meta: &ObjectMeta) -> (&str, &[OwnerReference], &[String], bool) {
    let references = meta.owner_references.as_deref().unwrap_or_default();
    (uid(meta), references, meta.finalizers.as_deref().unwrap_or_default(), is_deleting(meta))
}

/// Wakes the object itself, its dependents when it goes, and its owners when they may wait for it.
fn woken(change: &Change<PartialObject>, resource: &ResourceRef, informers: &Informers) -> Vec<String> {
    let (old, new) = (change.old.as_deref().map(|o| &o.metadata), change.new.as_deref().map(|o| &o.metadata));
    if old.map(facts) == new.map(facts) {
        return Vec::new();
    }
    let mut keys = Vec::new();
    if let Some(meta) = new
        && (is_deleting(meta) || meta.owner_references.is_some())
    {
        keys.push(key_of(resource, &change.key));
    }
    let followed = Followed::of(informers);
    let is_replaced = new.map(uid) != old.map(uid);
    let gone = old.filter(|_| is_replaced);
    let going = new.filter(|meta| is_deleting(meta));
    for meta in [gone, going].into_iter().flatten() {
        let all = dependents(&followed, uid(meta));
        keys.extend(all.iter().map(|item| key_of(&item.resource, &key(item.meta()))));
    }
    if let Some(meta) = old {
        let owners = meta.owner_references.iter().flatten();
        keys.extend(owners.filter_map(|owner| {
            let (group, kind) = kind_of(owner);
            let dynamic = || followed.dynamic_by_kind(group, kind).map(|(resource, _)| resource);
            let resource = kinds::by_kind(group, kind).cloned().or_else(dynamic)?;
            Some(key_of(&resource, &owner_key(&resource, namespace(meta), owner)))
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
        if is_held(meta) && snapshot.is_incomplete {
            // Whoever is not known yet would not be orphaned, and lost.
            plan.requeue(SYNC);
        } else if has_finalizer(meta, ORPHAN) {
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
    let unseen = references.filter_map(|(owner, state)| {
        let Owner::NotSeen(resource) = state else { return None };
        let namespace = if resource.namespaced { namespace(meta) } else { "" };
        Some(Action::require_absent((**resource).clone(), namespace, &owner.name, &owner.uid))
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
        component: "".into(),
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

/// Whether it stays until something has become of its dependents.
fn is_held(meta: &ObjectMeta) -> bool {
    is_deleting(meta) && (has_finalizer(meta, ORPHAN) || has_finalizer(meta, FOREGROUND))
}

fn is_deleting_dependents(meta: &ObjectMeta) -> bool {
    is_deleting(meta) && has_finalizer(meta, FOREGROUND)
}

fn is_blocking(dependent: &Item, owner_uid: &str) -> bool {
    let mut owners = dependent.meta().owner_references.iter().flatten();
    owners.any(|owner| owner.uid == owner_uid && owner.block_owner_deletion == Some(true))
}

fn forget(item: &Item, owner_uids: &[&str]) -> Action {
    if kinds::is_built_in(&item.resource) {
        let references = owner_uids.iter().map(|uid| json!({"$patch": "delete", "uid": uid}));
        return patch_references(item, references.collect());
    }
    let owners = item.meta().owner_references.iter().flatten();
    let left = owners.filter(|owner| !owner_uids.contains(&owner.uid.as_str()));
    replace_references(item, left.map(|owner| json!(owner)).collect())
}

fn unblock(item: &Item) -> Action {
    let owners = item.meta().owner_references.iter().flatten();
    if kinds::is_built_in(&item.resource) {
        let references = owners.map(|owner| json!({"uid": owner.uid, "blockOwnerDeletion": false}));
        return patch_references(item, references.collect());
    }
    let unblocked = owners.map(|owner| OwnerReference { block_owner_deletion: Some(false), ..owner.clone() });
    replace_references(item, unblocked.map(|owner| json!(owner)).collect())
}

fn patch_references(item: &Item, references: Vec<Value>) -> Action {
    patch(
        item,
        Patch::Strategic(json!({"metadata": {"uid": uid(item.meta()), "ownerReferences": references}})),
    )
}

/// For kinds that may not know strategic merge patches: all references, as of what was seen.
fn replace_references(item: &Item, references: Vec<Value>) -> Action {
    let meta = item.meta();
    let metadata =
        json!({"uid": uid(meta), "resourceVersion": meta.resource_version, "ownerReferences": references});
    patch(item, Patch::Merge(json!({ "metadata": metadata })))
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
