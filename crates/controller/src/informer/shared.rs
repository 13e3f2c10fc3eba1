//! The objects of one informer, their indexes and their subscribers. No I/O.
//!
//! Of an object that cannot be decoded the metadata is known for the most part: whoever asks for no more sees it
//! (`metadata.rs`), so that nobody takes an owner for one that is gone because of its spec.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{RwLock, RwLockReadGuard};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::changes::{Change, PendingChanges};
use super::decode::{self, Decode, Identity};
use super::event_handlers::EventHandlers;
use super::object::{Decoder, Object, ObjectType};
use super::reflector::{Sink, SinkError, WatchStep};
use super::transform::Transform;
use super::undecodable::Undecodable;
use super::{
    Objects, PartialObject, Progress, controller_uid, in_namespace, key_of_object, keys_in, revision_of,
};

/// See the module.
pub(super) struct Shared {
    decoder: Decoder,
    state: RwLock<State>,
    revisions: watch::Sender<u64>,
    undecodable: Undecodable,
    /// What of the objects is not kept.
    transform: Arc<Transform>,
    event_handlers: EventHandlers,
}

pub(super) struct State {
    pub(super) objects: BTreeMap<Arc<str>, Arc<dyn Object>>,
    /// The metadata of objects that cannot be decoded, as they are now.
    pub(super) undecoded: BTreeMap<Arc<str>, Arc<PartialObject>>,
    indexes: Indexes,
    subscribers: Vec<Weak<PendingChanges>>,
    /// Of those who ask for metadata alone.
    pub(super) metadata_subscribers: Vec<Weak<PendingChanges>>,
}

/// Keys by what is asked for; each index is kept once somebody has asked.
#[derive(Default)]
struct Indexes {
    /// Of the objects that have an owner with this uid.
    owned: Option<HashMap<String, BTreeSet<Arc<str>>>>,
    /// Of the objects that nobody controls.
    orphans: Option<BTreeSet<Arc<str>>>,
}

/// An object that cannot be decoded: who it is, and its metadata if these can be.
pub(super) struct LeftOut {
    identity: Identity,
    metadata: Option<Arc<PartialObject>>,
}

impl Shared {
    /// Of objects of this type, of which there are none yet.
    pub(super) fn of(
        objects: ObjectType,
        undecodable: Undecodable,
        transform: Option<Arc<Transform>>,
    ) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            undecoded: BTreeMap::new(),
            indexes: Indexes::default(),
            subscribers: Vec::new(),
            metadata_subscribers: Vec::new(),
        };
        let revisions = watch::Sender::new(0);
        let transform = transform.unwrap_or_else(|| Arc::new(Transform::default().and_managed_fields()));
        Self {
            decoder: objects.decoder,
            state: RwLock::new(state),
            revisions,
            undecodable,
            transform,
            event_handlers: EventHandlers::default(),
        }
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// The state with the index of owners.
    pub(super) fn state_by_owner(&self) -> RwLockReadGuard<'_, State> {
        if self.state.read().indexes.owned.is_none() {
            self.state.write().index_owned();
        }
        self.state.read()
    }

    /// Subscribes `pending` to the metadata of what is there, and of what changes from then on.
    pub(super) fn tell_of_metadata(&self, pending: &Arc<PendingChanges>) {
        let mut state = self.state.write();
        for (key, object) in state.metadata_in(None) {
            let revision = revision_of(&object.metadata);
            pending.push(Change { key: key.clone(), old: None, new: Some(object), revision });
        }
        state.metadata_subscribers.push(Arc::downgrade(pending));
    }

    /// Makes `objects` the whole content, as of `revision`; of those that were left out, the last version that is known.
    pub(super) fn replace(&self, objects: Vec<Arc<dyn Object>>, left_out: Vec<LeftOut>, revision: u64) {
        let mut state = self.state.write();
        let mut gone: BTreeSet<Arc<str>> =
            state.objects.keys().chain(state.undecoded.keys()).cloned().collect();
        for object in objects {
            let key = key_of_object(object.meta());
            gone.remove(&*key);
            let at = revision_of(object.meta());
            let known = state.objects.get(&*key).map(|known| revision_of(known.meta()));
            if known != Some(at) || state.undecoded.contains_key(&*key) {
                state.set(&key, Some(object), at);
            }
        }
        for LeftOut { identity, metadata } in left_out {
            gone.remove(&*identity.key());
            state.leave_out(&identity, metadata);
        }
        for key in gone {
            state.set(&key, None, revision);
        }
        drop(state);
        self.revisions.send_replace(revision);
    }

    fn change(&self, object: Arc<dyn Object>) {
        let key = key_of_object(object.meta());
        let revision = revision_of(object.meta());
        self.undecodable.take_in(&key);
        self.state.write().set(&key, Some(object), revision);
        self.advance(revision);
    }

    fn remove(&self, identity: &Identity) {
        let key = identity.key();
        self.undecodable.take_in(&key);
        self.state.write().set(&key, None, identity.revision);
        self.advance(identity.revision);
    }

    fn leave_out(&self, left_out: LeftOut, cause: &serde_json::Error) {
        let LeftOut { identity, metadata } = left_out;
        self.undecodable.leave_out(&identity, cause);
        self.state.write().leave_out(&identity, metadata);
        self.advance(identity.revision);
    }

    fn advance(&self, revision: u64) {
        self.revisions.send_if_modified(|seen| {
            let newer = revision > *seen;
            if newer {
                *seen = revision;
            }
            newer
        });
    }
}

impl State {
    fn set(&mut self, key: &str, new: Option<Arc<dyn Object>>, revision: u64) {
        let known = self.objects.get_key_value(key).map(|(known, _)| known.clone());
        let kept = known.unwrap_or_else(|| key.into());
        let old = match &new {
            Some(object) => self.objects.insert(kept.clone(), object.clone()),
            None => self.objects.remove(key),
        };
        let undecoded = self.undecoded.remove(key);
        if !self.metadata_subscribers.is_empty() {
            let before = undecoded.or_else(|| old.as_deref().map(partial));
            self.push_metadata(&kept, before, new.as_deref().map(partial), revision);
        }
        if old.is_none() && new.is_none() {
            return;
        }
        self.indexes.move_on(&kept, old.as_deref().map(Object::meta), new.as_deref().map(Object::meta));
        self.subscribers.retain(|subscriber| {
            let Some(pending) = subscriber.upgrade() else { return false };
            pending.push(Change { key: kept.clone(), old: old.clone(), new: new.clone(), revision });
            true
        });
    }

    /// Goes on with the last version of an object that cannot be decoded. An object that vanished would be taken for one
    /// that was deleted: its dependents would go, its place would be given away. What is written by an old version is
    /// refused as a conflict. An earlier object of the same name is gone all the same.
    fn leave_out(&mut self, identity: &Identity, metadata: Option<Arc<PartialObject>>) {
        let key: Arc<str> = identity.key().into();
        if self.objects.get(&*key).is_some_and(|known| !identity.is_of(known.meta())) {
            self.set(&key, None, identity.revision);
        }
        let before = self.metadata_of(&key);
        match &metadata {
            Some(metadata) => drop(self.undecoded.insert(key.clone(), metadata.clone())),
            None => drop(self.undecoded.remove(&*key)),
        }
        let now = metadata.or_else(|| self.metadata_of(&key));
        self.push_metadata(&key, before, now, identity.revision);
    }

    fn push_metadata(
        &mut self,
        key: &Arc<str>,
        old: Option<Arc<PartialObject>>,
        new: Option<Arc<PartialObject>>,
        revision: u64,
    ) {
        if old.is_none() && new.is_none() {
            return;
        }
        self.metadata_subscribers.retain(|subscriber| {
            let Some(pending) = subscriber.upgrade() else { return false };
            let [old, new] = [&old, &new].map(|object| object.clone().map(|object| object as _));
            pending.push(Change { key: key.clone(), old, new, revision });
            true
        });
    }

    /// The metadata of an object, whether it could be decoded or not.
    pub(super) fn metadata_of(&self, key: &str) -> Option<Arc<PartialObject>> {
        let undecoded = self.undecoded.get(key).cloned();
        undecoded.or_else(|| self.objects.get(key).map(|object| partial(&**object)))
    }

    /// The metadata of the objects of a namespace, or of all, in key order.
    pub(super) fn metadata_in(&self, namespace: Option<&str>) -> BTreeMap<&Arc<str>, Arc<PartialObject>> {
        let objects = in_namespace(&self.objects, namespace);
        let mut all: BTreeMap<_, _> = objects.map(|(key, object)| (key, partial(&**object))).collect();
        all.extend(in_namespace(&self.undecoded, namespace).map(|(key, object)| (key, object.clone())));
        all
    }

    /// The keys of the decoded objects that have this owner; of none before the index is there.
    pub(super) fn keys_owned_by(&self, uid: &str) -> impl Iterator<Item = &Arc<str>> {
        self.indexes.owned.as_ref().and_then(|owned| owned.get(uid)).into_iter().flatten()
    }

    fn index_owned(&mut self) {
        let mut owned = HashMap::<String, BTreeSet<Arc<str>>>::new();
        for (key, object) in &self.objects {
            for uid in owner_uids(object.meta()) {
                owned.entry(uid.to_owned()).or_default().insert(key.clone());
            }
        }
        self.indexes.owned = Some(owned);
    }

    fn index_orphans(&mut self) {
        let all = self.objects.iter().filter(|(_, object)| controller_uid(object.meta()).is_none());
        self.indexes.orphans = Some(all.map(|(key, _)| key.clone()).collect());
    }
}

impl Indexes {
    /// An object has changed.
    fn move_on(&mut self, key: &Arc<str>, old: Option<&ObjectMeta>, new: Option<&ObjectMeta>) {
        if let Some(orphans) = &mut self.orphans {
            match new.is_some_and(|meta| controller_uid(meta).is_none()) {
                true if !orphans.contains(key) => drop(orphans.insert(key.clone())),
                true => {}
                false => drop(orphans.remove(key)),
            }
        }
        let Some(owned) = &mut self.owned else { return };
        let before = || old.into_iter().flat_map(owner_uids);
        let after = || new.into_iter().flat_map(owner_uids);
        if before().eq(after()) {
            return;
        }
        for uid in before() {
            if let Some(keys) = owned.get_mut(uid) {
                keys.remove(key);
                if keys.is_empty() {
                    owned.remove(uid);
                }
            }
        }
        for uid in after() {
            owned.entry(uid.to_owned()).or_default().insert(key.clone());
        }
    }
}

impl Objects for Shared {
    fn get(&self, key: &str) -> Option<Arc<dyn Object>> {
        self.state().objects.get(key).cloned()
    }

    fn list(&self) -> Vec<Arc<dyn Object>> {
        self.state().objects.values().cloned().collect()
    }

    fn in_namespace(&self, namespace: &str) -> Vec<Arc<dyn Object>> {
        in_namespace(&self.state().objects, Some(namespace)).map(|(_, object)| object.clone()).collect()
    }

    fn orphans(&self, namespace: &str) -> Vec<Arc<dyn Object>> {
        if self.state().indexes.orphans.is_none() {
            self.state.write().index_orphans();
        }
        let state = self.state();
        let (first, end) = keys_in(namespace);
        let range = (Bound::Included(first.as_str()), Bound::Excluded(end.as_str()));
        let keys = state.indexes.orphans.iter().flat_map(|keys| keys.range::<str, _>(range));
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    fn dependents_of(&self, uid: &str) -> Vec<Arc<dyn Object>> {
        let state = self.state_by_owner();
        state.keys_owned_by(uid).filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    fn len(&self) -> usize {
        self.state().objects.len()
    }

    fn join(&self, pending: &Arc<PendingChanges>) {
        let mut state = self.state.write();
        for (key, object) in &state.objects {
            let revision = revision_of(object.meta());
            pending.push(Change { key: key.clone(), old: None, new: Some(object.clone()), revision });
        }
        state.subscribers.push(Arc::downgrade(pending));
    }

    fn event_handlers(&self) -> &EventHandlers {
        &self.event_handlers
    }
}

impl Progress for Shared {
    fn revisions(&self) -> watch::Receiver<u64> {
        self.revisions.subscribe()
    }

    fn revision(&self) -> u64 {
        *self.revisions.borrow()
    }

    fn is_going(&self, key: &str, uid: Option<&str>) -> bool {
        Objects::get(self, key).is_none_or(|object| {
            let meta = object.meta();
            meta.deletion_timestamp.is_some() || (uid.is_some() && meta.uid.as_deref() != uid)
        })
    }
}

impl Sink for Shared {
    fn take_list(&self, body: &[u8]) -> Result<u64, SinkError> {
        #[derive(serde::Deserialize)]
        struct List<'a> {
            metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta,
            /// Go writes null for none.
            #[serde(borrow, default)]
            items: Option<Vec<&'a RawValue>>,
        }
        let list: List<'_> = serde_json::from_slice(body)?;
        let revision = list.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
        let revision = revision.ok_or(SinkError::NoRevision)?;
        let (mut objects, mut left_out) = (Vec::new(), Vec::new());
        for item in list.items.into_iter().flatten() {
            match (self.decoder)(item.get(), &self.transform) {
                Ok(object) => objects.push(object),
                Err(cause) => {
                    let Some(found) = LeftOut::of(item.get(), &self.transform) else {
                        return Err(cause.into());
                    };
                    self.undecodable.leave_out(&found.identity, &cause);
                    left_out.push(found);
                }
            }
        }
        let keys: BTreeSet<String> = left_out.iter().map(|found| found.identity.key()).collect();
        self.replace(objects, left_out, revision);
        self.undecodable.retain(|key| keys.contains(key));
        Ok(revision)
    }

    fn take_event(&self, line: &[u8]) -> Result<WatchStep, SinkError> {
        // Nearly every event is one of these, and is gone through once.
        if let Some(("ADDED" | "MODIFIED", object)) = decode::event(line)
            && let Ok(object) = (self.decoder)(object, &self.transform)
        {
            self.change(object);
            return Ok(WatchStep::Seen(self.revision()));
        }
        #[derive(serde::Deserialize)]
        struct Event<'a> {
            r#type: &'a str,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let event: Event<'_> = serde_json::from_slice(line)?;
        let object = event.object.get();
        match event.r#type {
            "ADDED" | "MODIFIED" => match (self.decoder)(object, &self.transform) {
                Ok(object) => self.change(object),
                Err(cause) => match LeftOut::of(object, &self.transform) {
                    Some(found) => self.leave_out(found, &cause),
                    None => return Err(cause.into()),
                },
            },
            "DELETED" => self.remove(&Identity::of(object).ok_or(SinkError::NoName)?),
            "BOOKMARK" => {
                let bookmark: PartialObject = serde_json::from_str(object)?;
                self.advance(revision_of(&bookmark.metadata));
            }
            _ => return Ok(WatchStep::Refused(serde_json::from_str(object)?)),
        }
        Ok(WatchStep::Seen(self.revision()))
    }
}

impl LeftOut {
    /// `None` if the object has no name.
    fn of(text: &str, transform: &Transform) -> Option<Self> {
        let metadata = PartialObject::decode(text, transform).ok().map(Arc::new);
        Some(Self { identity: Identity::of(text)?, metadata })
    }
}

fn partial(object: &dyn Object) -> Arc<PartialObject> {
    Arc::new(PartialObject { metadata: object.meta().clone() })
}

fn owner_uids(meta: &ObjectMeta) -> impl Iterator<Item = &str> {
    meta.owner_references.iter().flatten().map(|owner| owner.uid.as_str())
}

#[cfg(test)]
mod scripts;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer::{Changes, Informer};
    use k8s_openapi::api::core::v1::Pod;

    fn shared() -> Arc<Shared> {
        Arc::new(Shared::of(ObjectType::of::<Pod>(), Undecodable::untold(), None))
    }

    fn event(kind: &str, name: &str, revision: u64, owner: &str) -> String {
        format!(
            r#"{{"type":"{kind}","object":{{"apiVersion":"v1","kind":"Pod","metadata":{{"namespace":"n","name":"{name}","uid":"u-{name}","resourceVersion":"{revision}","ownerReferences":[{{"apiVersion":"v1","kind":"X","name":"x","uid":"{owner}","controller":true}}]}}}}}}"#
        )
    }

    fn subscribe(shared: &Arc<Shared>) -> Changes<Pod> {
        Informer::over(shared.clone()).subscribe()
    }

    fn owned_by(shared: &Shared, uid: &str) -> Vec<Arc<dyn Object>> {
        shared.dependents_of(uid)
    }

    fn names(pods: &[Arc<dyn Object>]) -> Vec<&str> {
        pods.iter().filter_map(|pod| pod.meta().name.as_deref()).collect()
    }

    #[tokio::test]
    async fn changes_to_a_key_are_coalesced_and_the_index_follows() {
        let shared = shared();
        let mut changes = subscribe(&shared);
        for line in
            [event("ADDED", "a", 2, "o1"), event("MODIFIED", "a", 3, "o2"), event("ADDED", "b", 4, "o2")]
        {
            shared.take_event(line.as_bytes()).expect("a valid event");
        }
        let seen: Vec<_> = changes
            .next()
            .await
            .into_iter()
            .map(|c| (c.key.to_string(), c.revision, c.old.is_some()))
            .collect();
        assert_eq!(seen, [("n/a".into(), 3, false), ("n/b".into(), 4, false)]);
        assert!(owned_by(&shared, "o1").is_empty());
        assert_eq!(names(&owned_by(&shared, "o2")), ["a", "b"]);
        assert_eq!(names(&shared.in_namespace("n")), ["a", "b"]);
        shared.take_event(event("DELETED", "a", 5, "o2").as_bytes()).expect("a valid event");
        assert_eq!(names(&owned_by(&shared, "o2")), ["b"]);
        assert!(shared.is_going("n/a", Some("u-a")));
        assert!(!shared.is_going("n/b", Some("u-b")));
    }

    #[test]
    fn who_is_controlled_by_nobody_is_known_by_namespace() {
        let shared = shared();
        let take = |line: String| shared.take_event(line.as_bytes()).expect("a valid event");
        let free = |line: String| line.replace(r#","controller":true"#, "");
        take(free(event("ADDED", "a", 2, "o")));
        take(event("ADDED", "b", 3, "o"));
        assert_eq!(names(&shared.orphans("n")), ["a"]);
        take(free(event("ADDED", "c", 4, "o")));
        take(free(event("MODIFIED", "b", 5, "o")));
        take(event("MODIFIED", "a", 6, "o"));
        take(free(event("ADDED", "d", 7, "o")).replace(r#""namespace":"n""#, r#""namespace":"m""#));
        assert_eq!(names(&shared.orphans("n")), ["b", "c"]);
        take(event("DELETED", "c", 8, "o"));
        assert_eq!((names(&shared.orphans("n")), names(&shared.orphans("m"))), (vec!["b"], vec!["d"]));
    }

    #[tokio::test]
    async fn a_new_list_deletes_what_is_no_longer_there() {
        let shared = shared();
        shared.take_event(event("ADDED", "a", 2, "o").as_bytes()).expect("a valid event");
        let mut changes = subscribe(&shared);
        changes.next().await;
        let revision =
            shared.take_list(br#"{"metadata":{"resourceVersion":"9"},"items":[]}"#).expect("a valid list");
        assert_eq!(revision, 9);
        let seen = changes.next().await;
        assert!(seen.len() == 1 && seen[0].new.is_none() && seen[0].revision == 9);
    }

    #[test]
    fn managed_fields_are_not_kept() {
        let shared = shared();
        let pod = r#"{"metadata":{"name":"a","resourceVersion":"3","managedFields":[{"manager":"m"}]}}"#;
        shared.take_event(format!(r#"{{"type":"ADDED","object":{pod}}}"#).as_bytes()).expect("a valid event");
        let list = format!(
            r#"{{"metadata":{{"resourceVersion":"4"}},"items":[{}]}}"#,
            pod.replace("\"a\"", "\"b\"")
        );
        let known = |name: &str| shared.get(name).map(|pod| pod.meta().managed_fields.clone());
        assert_eq!(known("a"), Some(None));
        shared.take_list(list.as_bytes()).expect("a valid list");
        assert_eq!((known("a"), known("b")), (None, Some(None)));
    }

    fn poisoned(kind: &str, name: &str, uid: &str, revision: u64) -> String {
        format!(
            r#"{{"type":"{kind}","object":{{"metadata":{{"namespace":"n","name":"{name}","uid":"{uid}","resourceVersion":"{revision}"}},"spec":"poison"}}}}"#
        )
    }

    fn versions(shared: &Shared) -> Vec<(String, u64)> {
        shared.list().iter().map(|pod| (key_of_object(pod.meta()), revision_of(pod.meta()))).collect()
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_decoded_is_left_out_alone() {
        let shared = shared();
        let check = |line: String, seen: u64, expect: &[(&str, u64)]| {
            let step = shared.take_event(line.as_bytes()).expect("an event");
            assert!(matches!(step, WatchStep::Seen(at) if at == seen), "{line}");
            let expect: Vec<_> = expect.iter().map(|(name, at)| (format!("n/{name}"), *at)).collect();
            assert_eq!(versions(&shared), expect, "{line}");
        };
        check(event("ADDED", "a", 2, "o"), 2, &[("a", 2)]);
        check(poisoned("ADDED", "b", "u-b", 3), 3, &[("a", 2)]);
        // The last good version stays, but not in place of another object.
        check(poisoned("MODIFIED", "a", "u-a", 4), 4, &[("a", 2)]);
        check(event("MODIFIED", "a", 5, "o"), 5, &[("a", 5)]);
        check(event("MODIFIED", "b", 6, "o"), 6, &[("a", 5), ("b", 6)]);
        check(poisoned("ADDED", "a", "u-other", 7), 7, &[("b", 6)]);
        check(poisoned("DELETED", "b", "u-b", 8), 8, &[]);
    }

    #[tokio::test]
    async fn a_list_with_an_object_that_cannot_be_decoded_is_taken() {
        let shared = shared();
        for name in ["a", "b", "c"] {
            shared.take_event(event("ADDED", name, 2, "o").as_bytes()).expect("a valid event");
        }
        let item = |line: String| {
            let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            event["object"].to_string()
        };
        let items = [
            item(poisoned("ADDED", "a", "u-a", 3)),
            item(event("ADDED", "b", 4, "o")),
            item(poisoned("ADDED", "c", "u-other", 5)),
            item(poisoned("ADDED", "d", "u-d", 6)),
        ];
        let list = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#, items.join(","));
        assert_eq!(shared.take_list(list.as_bytes()).expect("a list"), 9);
        assert_eq!(versions(&shared), [("n/a".to_owned(), 2), ("n/b".to_owned(), 4)]);
    }

    #[test]
    fn a_refused_watch_carries_the_status() {
        let shared = shared();
        let line = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        let step = shared.take_event(line).expect("a valid event");
        assert!(matches!(step, WatchStep::Refused(status) if status.code == Some(410)));
    }
}
