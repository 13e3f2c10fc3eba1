//! The metadata of the objects that an informer has whole, for those who ask for no more: no second watch, and nothing kept
//! twice. What is asked for is made of what is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::changes::PendingChanges;
use super::event_handlers::EventHandlers;
use super::object::Object;
use super::shared::Shared;
use super::{Objects, PartialObject, Progress, controller_uid};

/// See the module.
pub(super) struct MetadataOf {
    shared: Arc<Shared>,
    event_handlers: EventHandlers,
}

impl MetadataOf {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, event_handlers: EventHandlers::default() }
    }
}

impl Objects for MetadataOf {
    fn get(&self, key: &str) -> Option<Arc<dyn Object>> {
        self.shared.state().metadata_of(key).map(untyped)
    }

    fn list(&self) -> Vec<Arc<dyn Object>> {
        self.shared.state().metadata_in(None).into_values().map(untyped).collect()
    }

    fn in_namespace(&self, namespace: &str) -> Vec<Arc<dyn Object>> {
        self.shared.state().metadata_in(Some(namespace)).into_values().map(untyped).collect()
    }

    fn orphans(&self, namespace: &str) -> Vec<Arc<dyn Object>> {
        let mut all = self.in_namespace(namespace);
        all.retain(|object| controller_uid(object.meta()).is_none());
        all
    }

    fn dependents_of(&self, uid: &str) -> Vec<Arc<dyn Object>> {
        let state = self.shared.state_by_owner();
        let is_owned = |object: &PartialObject| {
            object.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
        };
        let keys = state.keys_owned_by(uid).filter(|key| !state.undecoded.contains_key(&***key));
        let decoded = keys.filter_map(|key| Some((key, state.metadata_of(key)?)));
        let mut all: BTreeMap<_, _> = decoded.collect();
        let undecoded = state.undecoded.iter().filter(|(_, object)| is_owned(object));
        all.extend(undecoded.map(|(key, object)| (key, object.clone())));
        all.into_values().map(untyped).collect()
    }

    fn len(&self) -> usize {
        let state = self.shared.state();
        let strange = state.undecoded.keys().filter(|key| !state.objects.contains_key(&***key));
        state.objects.len() + strange.count()
    }

    fn join(&self, pending: &Arc<PendingChanges>) {
        self.shared.tell_of_metadata(pending);
    }

    fn event_handlers(&self) -> &EventHandlers {
        &self.event_handlers
    }
}

impl Progress for MetadataOf {
    fn revisions(&self) -> watch::Receiver<u64> {
        self.shared.revisions()
    }

    fn revision(&self) -> u64 {
        self.shared.revision()
    }

    fn is_going(&self, key: &str, uid: Option<&str>) -> bool {
        self.get(key).is_none_or(|object| {
            let meta = object.meta();
            meta.deletion_timestamp.is_some() || (uid.is_some() && meta.uid.as_deref() != uid)
        })
    }
}

fn untyped(object: Arc<PartialObject>) -> Arc<dyn Object> {
    object
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::informer::object::ObjectType;
    use crate::informer::reflector::Sink;
    use crate::informer::undecodable::Undecodable;
    use crate::informer::{Change, Changes, Informer};

    const SOUND: &str = r#"{"containers":[]}"#;
    const BROKEN: &str = r#""poison""#;

    fn of_pods() -> (Arc<Shared>, Informer<PartialObject>) {
        let shared = Arc::new(Shared::of(ObjectType::of::<Pod>(), Undecodable::untold(), None));
        (shared.clone(), Informer::over(Arc::new(MetadataOf::new(shared))))
    }

    fn pod(name: &str, uid: &str, revision: u64, spec: &str) -> String {
        format!(
            r#"{{"metadata":{{"namespace":"n","name":"{name}","uid":"{uid}","resourceVersion":"{revision}","labels":{{"a":"b"}},
                "ownerReferences":[{{"apiVersion":"v1","kind":"X","name":"x","uid":"o"}}]}},"spec":{spec}}}"#
        )
    }

    fn take(shared: &Shared, kind: &str, pod: &str) {
        let event = format!(r#"{{"type":"{kind}","object":{pod}}}"#);
        shared.take_event(event.as_bytes()).expect("an event");
    }

    /// As `name@revision`.
    fn told(object: &PartialObject) -> String {
        let meta = &object.metadata;
        assert_eq!(meta.labels.as_ref().map(|labels| labels.len()), Some(1));
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{}@{}", part(&meta.name), part(&meta.resource_version))
    }

    fn shown(objects: &Informer<PartialObject>) -> String {
        let text =
            |all: Vec<Arc<PartialObject>>| all.iter().map(|one| told(one)).collect::<Vec<_>>().join(" ");
        let all = text(objects.list());
        for some in [objects.in_namespace("n"), objects.orphans("n"), objects.dependents_of("o")] {
            assert_eq!(text(some), all);
        }
        assert_eq!(objects.len(), objects.list().len());
        assert!(objects.in_namespace("m").is_empty() && objects.dependents_of("p").is_empty());
        all
    }

    fn changes(all: &Changes<PartialObject>) -> String {
        let part =
            |object: &Option<Arc<PartialObject>>| object.as_ref().map_or("-".to_owned(), |one| told(one));
        let line = |change: &Change<PartialObject>| {
            format!("{} {}>{}", change.revision, part(&change.old), part(&change.new))
        };
        all.take().iter().map(line).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn who_asks_for_metadata_sees_all_objects_as_they_are() {
        let (shared, metadata) = of_pods();
        take(&shared, "ADDED", &pod("a", "u", 2, SOUND));
        let told = metadata.subscribe();
        assert_eq!((changes(&told), shown(&metadata)), ("2 ->a@2".into(), "a@2".into()));
        take(&shared, "MODIFIED", &pod("a", "u", 3, SOUND));
        take(&shared, "ADDED", &pod("b", "v", 4, SOUND));
        assert_eq!((changes(&told), shown(&metadata)), ("3 a@2>a@3, 4 ->b@4".into(), "a@3 b@4".into()));
        take(&shared, "DELETED", &pod("a", "u", 5, SOUND));
        assert_eq!((changes(&told), shown(&metadata)), ("5 a@3>-".into(), "b@4".into()));
        assert_eq!(metadata.revision(), 5);
        assert!(metadata.objects.is_going("n/a", Some("u")) && !metadata.objects.is_going("n/b", Some("v")));
    }

    /// An owner that vanished from sight would take its dependents with it.
    #[test]
    fn an_object_that_cannot_be_decoded_is_seen_by_its_metadata() {
        let (shared, metadata) = of_pods();
        let told = metadata.subscribe();
        take(&shared, "ADDED", &pod("a", "u", 2, BROKEN));
        assert_eq!((changes(&told), shown(&metadata)), ("2 ->a@2".into(), "a@2".into()));
        assert!(Objects::list(&*shared).is_empty());
        take(&shared, "MODIFIED", &pod("a", "u", 3, SOUND));
        assert_eq!((changes(&told), shown(&metadata)), ("3 a@2>a@3".into(), "a@3".into()));
        // Where all of it is asked for, it is the last version that could be decoded.
        take(&shared, "MODIFIED", &pod("a", "u", 4, BROKEN));
        assert_eq!((changes(&told), shown(&metadata)), ("4 a@3>a@4".into(), "a@4".into()));
        assert_eq!(Objects::len(&*shared), 1);
        take(&shared, "MODIFIED", &pod("a", "other", 5, BROKEN));
        assert_eq!((changes(&told), shown(&metadata)), ("5 a@4>a@5".into(), "a@5".into()));
        assert!(Objects::list(&*shared).is_empty());
        take(&shared, "DELETED", &pod("a", "other", 6, BROKEN));
        assert_eq!((changes(&told), shown(&metadata)), ("6 a@5>-".into(), String::new()));
    }

    #[test]
    fn a_new_list_is_all_that_there_is() {
        let (shared, metadata) = of_pods();
        for name in ["a", "b", "c"] {
            take(&shared, "ADDED", &pod(name, name, 2, if name == "a" { BROKEN } else { SOUND }));
        }
        let told = metadata.subscribe();
        changes(&told);
        let items = [pod("a", "a", 3, SOUND), pod("b", "b", 4, BROKEN), pod("d", "d", 5, BROKEN)].join(",");
        let list = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{items}]}}"#);
        shared.take_list(list.as_bytes()).expect("a list");
        assert_eq!(shown(&metadata), "a@3 b@4 d@5");
        assert_eq!(changes(&told), "3 a@2>a@3, 4 b@2>b@4, 9 c@2>-, 5 ->d@5");
        shared.take_list(br#"{"metadata":{"resourceVersion":"10"},"items":[]}"#).expect("a list");
        assert_eq!(shown(&metadata), "");
        assert_eq!(changes(&told), "10 a@3>-, 10 b@4>-, 10 d@5>-");
    }
}
