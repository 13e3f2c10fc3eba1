//! The objects of one informer, their index and their subscribers. No I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Weak};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{Mutex, RwLock};
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};

use super::decode::{self, Identity};
use super::follower::Follower;
use super::reflector::{Sink, SinkError, WatchStep};
use super::unread::Unread;
use super::{Kind, Progress};
use crate::resource_ref::key_of;

/// What happened to one key since its subscriber last looked.
#[derive(Clone, Debug)]
pub struct Change<K> {
    /// `namespace/name` or `name`.
    pub key: String,
    /// What the subscriber last knew.
    pub old: Option<Arc<K>>,
    /// What is there now; `None` after a deletion.
    pub new: Option<Arc<K>>,
    /// The revision that made it so.
    pub revision: u64,
}

impl<K> Change<K> {
    /// The object as it is now, or as it last was.
    pub fn object(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// A subscription.
pub struct Changes<K> {
    inbox: Arc<Inbox<K>>,
    // Keeps the informer alive, and with it the sender of what comes next.
    _shared: Arc<Shared<K>>,
}

impl<K> Changes<K> {
    /// Waits for changes and takes all that have gathered, in key order.
    pub async fn next(&mut self) -> Vec<Change<K>> {
        loop {
            let arrived = self.inbox.arrived.notified();
            let changes = self.take();
            if !changes.is_empty() {
                return changes;
            }
            arrived.await;
        }
    }

    /// Takes all changes that have gathered, in key order.
    pub fn take(&self) -> Vec<Change<K>> {
        std::mem::take(&mut *self.inbox.pending.lock()).into_values().collect()
    }
}

struct Inbox<K> {
    pending: Mutex<BTreeMap<String, Change<K>>>,
    arrived: Notify,
}

impl<K> Inbox<K> {
    fn push(&self, change: Change<K>) {
        let mut pending = self.pending.lock();
        match pending.get_mut(&change.key) {
            Some(waiting) => {
                waiting.new = change.new;
                waiting.revision = change.revision;
            }
            None => {
                pending.insert(change.key.clone(), change);
            }
        }
        drop(pending);
        self.arrived.notify_one();
    }
}

/// See the module.
pub(super) struct Shared<K> {
    state: RwLock<State<K>>,
    revisions: watch::Sender<u64>,
    follower: Arc<Follower>,
    /// What of the objects is not kept.
    unread: Option<Arc<Unread>>,
}

struct State<K> {
    objects: BTreeMap<String, Arc<K>>,
    /// Keys of the objects that have an owner with this uid.
    owned: HashMap<String, BTreeSet<String>>,
    /// Keys of the objects that nobody controls; kept once somebody has asked for them.
    orphans: Option<BTreeSet<String>>,
    inboxes: Vec<Weak<Inbox<K>>>,
}

impl<K: Kind> Shared<K> {
    pub(super) fn new(follower: Arc<Follower>, unread: Option<Arc<Unread>>) -> Self {
        let (objects, owned) = (BTreeMap::new(), HashMap::new());
        let state = State { objects, owned, orphans: None, inboxes: Vec::new() };
        Self { state: RwLock::new(state), revisions: watch::Sender::new(0), follower, unread }
    }

    pub(super) fn get(&self, key: &str) -> Option<Arc<K>> {
        self.state.read().objects.get(key).cloned()
    }

    pub(super) fn list(&self) -> Vec<Arc<K>> {
        self.state.read().objects.values().cloned().collect()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.state.read().objects.range(keys_in(namespace)).map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn orphans(&self, namespace: &str) -> Vec<Arc<K>> {
        if self.state.read().orphans.is_none() {
            self.state.write().index_orphans();
        }
        let state = self.state.read();
        let keys = state.orphans.iter().flat_map(|keys| keys.range(keys_in(namespace)));
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    pub(super) fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        let mut owned = self.dependents_of(uid);
        owned.retain(|object| controller_uid(object.metadata()) == Some(uid));
        owned
    }

    pub(super) fn dependents_of(&self, uid: &str) -> Vec<Arc<K>> {
        let state = self.state.read();
        let keys = state.owned.get(uid).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    pub(super) fn subscribe(this: &Arc<Self>) -> Changes<K> {
        let inbox = Arc::new(Inbox { pending: Mutex::default(), arrived: Notify::new() });
        let mut state = this.state.write();
        for (key, object) in &state.objects {
            let revision = revision_of(object.metadata());
            inbox.push(Change { key: key.clone(), old: None, new: Some(object.clone()), revision });
        }
        state.inboxes.push(Arc::downgrade(&inbox));
        Changes { inbox, _shared: this.clone() }
    }

    /// Makes `objects` the whole content, as of `revision`; of those that were left out, the last version that is known.
    pub(super) fn replace(&self, objects: Vec<K>, left_out: &[Identity], revision: u64) {
        let mut state = self.state.write();
        let mut gone: BTreeSet<String> = state.objects.keys().cloned().collect();
        for identity in left_out {
            let key = identity.key();
            if state.objects.get(&key).is_some_and(|known| identity.is_of(known.metadata())) {
                gone.remove(&key);
            }
        }
        for object in objects {
            let key = key_of_object(object.metadata());
            gone.remove(&key);
            let at = revision_of(object.metadata());
            let known = state.objects.get(&key).map(|known| revision_of(known.metadata()));
            if known != Some(at) {
                state.set(key, Some(Arc::new(object)), at);
            }
        }
        for key in gone {
            state.set(key, None, revision);
        }
        drop(state);
        self.revisions.send_replace(revision);
    }

    fn change(&self, object: K) {
        let key = key_of_object(object.metadata());
        let revision = revision_of(object.metadata());
        self.follower.take_in(&key);
        self.state.write().set(key, Some(Arc::new(object)), revision);
        self.advance(revision);
    }

    fn remove(&self, identity: &Identity) {
        let key = identity.key();
        self.follower.take_in(&key);
        self.state.write().set(key, None, identity.revision);
        self.advance(identity.revision);
    }

    /// Goes on with the last version of an object that cannot be decoded. An object that vanished would be taken for one
    /// that was deleted: its dependents would go, its place would be given away. What is written by an old version is
    /// refused as a conflict. An earlier object of the same name is gone all the same.
    fn leave_out(&self, identity: &Identity, cause: &serde_json::Error) {
        self.follower.leave_out(identity, cause);
        let mut state = self.state.write();
        let key = identity.key();
        if state.objects.get(&key).is_some_and(|known| !identity.is_of(known.metadata())) {
            state.set(key, None, identity.revision);
        }
        drop(state);
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

impl<K: Kind> State<K> {
    fn set(&mut self, key: String, new: Option<Arc<K>>, revision: u64) {
        let old = match &new {
            Some(object) => self.objects.insert(key.clone(), object.clone()),
            None => self.objects.remove(&key),
        };
        if old.is_none() && new.is_none() {
            return;
        }
        self.reindex(&key, old.as_deref(), new.as_deref());
        self.inboxes.retain(|inbox| {
            let Some(inbox) = inbox.upgrade() else { return false };
            inbox.push(Change { key: key.clone(), old: old.clone(), new: new.clone(), revision });
            true
        });
    }

    fn index_orphans(&mut self) {
        let all = self.objects.iter().filter(|(_, object)| controller_uid(object.metadata()).is_none());
        self.orphans = Some(all.map(|(key, _)| key.clone()).collect());
    }

    fn reindex(&mut self, key: &str, old: Option<&K>, new: Option<&K>) {
        if let Some(orphans) = &mut self.orphans {
            match new.filter(|object| controller_uid(object.metadata()).is_none()) {
                Some(_) if !orphans.contains(key) => {
                    orphans.insert(key.to_owned());
                }
                Some(_) => {}
                None => {
                    orphans.remove(key);
                }
            }
        }
        let before: Vec<&str> = old.map(|object| owner_uids(object.metadata())).unwrap_or_default();
        let after: Vec<&str> = new.map(|object| owner_uids(object.metadata())).unwrap_or_default();
        if before == after {
            return;
        }
        for uid in before {
            if let Some(keys) = self.owned.get_mut(uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.owned.remove(uid);
                }
            }
        }
        for uid in after {
            self.owned.entry(uid.to_owned()).or_default().insert(key.to_owned());
        }
    }
}

impl<K: Kind> Progress for Shared<K> {
    fn revisions(&self) -> watch::Receiver<u64> {
        self.revisions.subscribe()
    }

    fn is_going(&self, key: &str, uid: Option<&str>) -> bool {
        self.get(key).is_none_or(|object| {
            let meta = object.metadata();
            meta.deletion_timestamp.is_some() || (uid.is_some() && meta.uid.as_deref() != uid)
        })
    }
}

impl<K: Kind> Sink for Shared<K> {
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
            match decode::object::<K>(item.get(), self.unread.as_deref()) {
                Ok(object) => objects.push(object),
                Err(cause) => {
                    let Some(identity) = Identity::of(item.get()) else { return Err(cause.into()) };
                    self.follower.leave_out(&identity, &cause);
                    left_out.push(identity);
                }
            }
        }
        self.replace(objects, &left_out, revision);
        let left_out: BTreeSet<String> = left_out.iter().map(Identity::key).collect();
        self.follower.retain(|key| left_out.contains(key));
        Ok(revision)
    }

    fn take_event(&self, line: &[u8]) -> Result<WatchStep, SinkError> {
        #[derive(serde::Deserialize)]
        struct Event<'a> {
            r#type: &'a str,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let event: Event<'_> = serde_json::from_slice(line)?;
        let object = event.object.get();
        match event.r#type {
            "ADDED" | "MODIFIED" => match decode::object(object, self.unread.as_deref()) {
                Ok(object) => self.change(object),
                Err(cause) => match Identity::of(object) {
                    Some(identity) => self.leave_out(&identity, &cause),
                    None => return Err(cause.into()),
                },
            },
            "DELETED" => self.remove(&Identity::of(object).ok_or(SinkError::NoName)?),
            "BOOKMARK" => {
                let bookmark: super::PartialObject = serde_json::from_str(object)?;
                self.advance(revision_of(&bookmark.metadata));
            }
            _ => return Ok(WatchStep::Refused(serde_json::from_str(object)?)),
        }
        Ok(WatchStep::Seen(*self.revisions.borrow()))
    }
}

/// The keys of a namespace's objects: '0' follows '/' in ASCII.
fn keys_in(namespace: &str) -> Range<String> {
    format!("{namespace}/")..format!("{namespace}0")
}

fn key_of_object(meta: &ObjectMeta) -> String {
    key_of(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

fn revision_of(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn owner_uids(meta: &ObjectMeta) -> Vec<&str> {
    meta.owner_references.iter().flatten().map(|owner| owner.uid.as_str()).collect()
}

fn controller_uid(meta: &ObjectMeta) -> Option<&str> {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn shared() -> Arc<Shared<Pod>> {
        Arc::new(Shared::new(Arc::new(Follower::unwatched()), None))
    }

    fn event(kind: &str, name: &str, revision: u64, owner: &str) -> String {
        format!(
            r#"{{"type":"{kind}","object":{{"apiVersion":"v1","kind":"Pod","metadata":{{"namespace":"n","name":"{name}","uid":"u-{name}","resourceVersion":"{revision}","ownerReferences":[{{"apiVersion":"v1","kind":"X","name":"x","uid":"{owner}","controller":true}}]}}}}}}"#
        )
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
    }

    #[tokio::test]
    async fn changes_to_a_key_are_coalesced_and_the_index_follows() {
        let shared = shared();
        let mut changes = Shared::subscribe(&shared);
        for line in
            [event("ADDED", "a", 2, "o1"), event("MODIFIED", "a", 3, "o2"), event("ADDED", "b", 4, "o2")]
        {
            shared.take_event(line.as_bytes()).expect("a valid event");
        }
        let seen: Vec<_> =
            changes.next().await.into_iter().map(|c| (c.key, c.revision, c.old.is_some())).collect();
        assert_eq!(seen, [("n/a".into(), 3, false), ("n/b".into(), 4, false)]);
        assert!(shared.owned_by("o1").is_empty());
        assert_eq!(names(&shared.owned_by("o2")), ["a", "b"]);
        assert_eq!(names(&shared.in_namespace("n")), ["a", "b"]);
        shared.take_event(event("DELETED", "a", 5, "o2").as_bytes()).expect("a valid event");
        assert_eq!(names(&shared.owned_by("o2")), ["b"]);
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
        let mut changes = Shared::subscribe(&shared);
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
        let known = |name: &str| shared.get(name).map(|pod| pod.metadata.managed_fields.clone());
        assert_eq!(known("a"), Some(None));
        shared.take_list(list.as_bytes()).expect("a valid list");
        assert_eq!((known("a"), known("b")), (None, Some(None)));
    }

    fn poisoned(kind: &str, name: &str, uid: &str, revision: u64) -> String {
        format!(
            r#"{{"type":"{kind}","object":{{"metadata":{{"namespace":"n","name":"{name}","uid":"{uid}","resourceVersion":"{revision}"}},"spec":"poison"}}}}"#
        )
    }

    fn versions(shared: &Shared<Pod>) -> Vec<(String, u64)> {
        shared.list().iter().map(|pod| (key_of_object(&pod.metadata), revision_of(&pod.metadata))).collect()
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
