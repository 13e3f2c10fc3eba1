//! The history of a StatefulSet or DaemonSet: its Pod templates as ControllerRevisions.
//!
//! A revision's data is the strategic merge patch that brings its template back, byte for byte what upstream writes:
//! a history can change hands without a rollout. A StatefulSet's hashes and names are upstream's as well; a
//! DaemonSet's are not, as upstream hashes Go's memory there, and finds them by their data.

use std::sync::Arc;

use controller::Informers;
use controller::metadata::{controller_of, controller_reference, label, name, namespace, uid};
use controller::{Action, Propagation};
use k8s_openapi::Resource;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

use crate::names::{generate_name, safe_encode};
use controller::metadata::Object;

/// The hash of a revision's data, as its label. Source: `k8s.io/kubernetes/pkg/controller/history`.
const REVISION_HASH: &str = "controller.kubernetes.io/hash";
/// Which revision a Pod was made from. Source: `apps/v1.ControllerRevisionHashLabelKey`.
pub(crate) const CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";

/// The newest revision of an owner, found among its old ones or to be made.
pub(crate) struct Newest {
    /// The revision, with the name and number that it will have after `action`.
    pub(crate) revision: Arc<ControllerRevision>,
    /// Creates it, or makes it the newest again.
    pub(crate) action: Option<Action>,
    /// How many names were taken by something else so far.
    pub(crate) collision_count: i32,
}

/// The revision of `owner` whose data is `template`; `owned` are the ones it has, oldest first, and `taken` says
/// what a name stands for already.
pub(crate) fn newest<O: Object>(
    owner: &O,
    template: &PodTemplateSpec,
    owned: &[Arc<ControllerRevision>],
    mut collision_count: i32,
    taken: impl Fn(&str) -> Option<Arc<ControllerRevision>>,
) -> Newest {
    let data = data_of(template);
    let number = owned.last().map_or(1, |last| last.revision.saturating_add(1));
    let same = |revision: &&Arc<ControllerRevision>| is_equal(revision, &data);
    match owned.iter().rev().find(same) {
        Some(found) if owned.last().is_some_and(|last| is_equal(last, &data)) => {
            let last = owned.last().unwrap_or(found);
            Newest { revision: Arc::clone(last), action: None, collision_count }
        }
        Some(found) => {
            let mut again = ControllerRevision::clone(found);
            again.revision = number;
            let action = Action::update(&again);
            Newest { revision: Arc::new(again), action: Some(action), collision_count }
        }
        None => {
            let mut made = revision_of(owner, template, &data, number, collision_count);
            while taken(name(&made.metadata)).is_some() {
                collision_count = collision_count.saturating_add(1);
                made = revision_of(owner, template, &data, number, collision_count);
            }
            let action = Action::create(&made);
            Newest { revision: Arc::new(made), action: Some(action), collision_count }
        }
    }
}

/// Oldest first. Source: upstream's `SortControllerRevisions`.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|a, b| {
        let age = |revision: &ControllerRevision| controller::metadata::created(&revision.metadata);
        (a.revision, age(a), name(&a.metadata)).cmp(&(b.revision, age(b), name(&b.metadata)))
    });
}

/// Deletes what is in `owned` beyond `limit`, oldest first, sparing what `is_live`.
pub(crate) fn truncate(
    owned: &[Arc<ControllerRevision>],
    limit: i32,
    is_live: impl Fn(&str) -> bool,
) -> Vec<Action> {
    let old: Vec<_> = owned.iter().filter(|revision| !is_live(name(&revision.metadata))).collect();
    let surplus = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    let delete = |revision: &&Arc<ControllerRevision>| {
        let meta = &revision.metadata;
        Action::delete::<ControllerRevision>(
            namespace(meta),
            name(meta),
            Some(uid(meta)),
            Propagation::Background,
            None,
        )
    };
    old.iter().take(surplus).map(delete).collect()
}

/// What could be in the way of `owner`'s history: its revisions, orphans, and others with a name that it could give.
pub(crate) fn of_owner(informers: &Informers, owner: &ObjectMeta) -> Vec<Arc<ControllerRevision>> {
    let mut revisions = informers.informer::<ControllerRevision>().in_namespace(namespace(owner));
    let prefix = generate_name(owner);
    revisions.retain(|revision| match controller_of(&revision.metadata) {
        Some(controller) => controller.uid == uid(owner) || name(&revision.metadata).starts_with(&prefix),
        None => true,
    });
    revisions
}

/// What a DaemonSet's Pods of this revision carry.
pub(crate) fn hash_of(revision: &ControllerRevision) -> &str {
    label(&revision.metadata, CONTROLLER_REVISION_HASH).unwrap_or_default()
}

/// The template that `revision` brings back; none if it is not the history of one.
pub(crate) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

fn data_of(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    if let Some(fields) = template.as_object_mut() {
        fields.insert("$patch".to_owned(), "replace".into());
    }
    json!({"spec": {"template": template}})
}

/// Whether `revision` holds `data`. What servers before v1.34 wrote has a null creation time more.
fn is_equal(revision: &ControllerRevision, data: &Value) -> bool {
    let Some(RawExtension(held)) = &revision.data else { return false };
    if held == data {
        return true;
    }
    let mut held = held.clone();
    let meta = held.pointer_mut("/spec/template/metadata").and_then(Value::as_object_mut);
    meta.is_some_and(|meta| meta.remove("creationTimestamp") == Some(Value::Null)) && held == *data
}

fn revision_of<O: Object>(
    owner: &O,
    template: &PodTemplateSpec,
    data: &Value,
    number: i64,
    collision_count: i32,
) -> ControllerRevision {
    let hash = hash(data, collision_count);
    let meta = owner.metadata();
    let mut labels = template.metadata.clone().unwrap_or_default().labels.unwrap_or_default();
    // A DaemonSet's Pods carry the hash; a StatefulSet's carry the revision's name.
    let label = if O::KIND == DaemonSet::KIND { CONTROLLER_REVISION_HASH } else { REVISION_HASH };
    labels.insert(label.to_owned(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(revision_name(name(meta), &hash)),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: meta.annotations.clone(),
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data.clone())),
        revision: number,
    }
}

/// `owner-hash`, cut so that a label can hold it. Source: upstream's `ControllerRevisionName`.
fn revision_name(owner: &str, hash: &str) -> String {
    const OWNER_CHARS_MAX: usize = 223;
    let owner = owner.get(..OWNER_CHARS_MAX).unwrap_or(owner);
    format!("{owner}-{hash}")
}

/// Source: upstream's `HashControllerRevision`: FNV-1 of 32 bits over the data as Go writes it, and the collision count.
fn hash(data: &Value, collision_count: i32) -> String {
    const OFFSET: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let text = as_go_writes(data);
    let mut hash = OFFSET;
    for byte in text.bytes().chain(collision_count.to_string().bytes()) {
        hash = hash.wrapping_mul(PRIME) ^ u32::from(byte);
    }
    safe_encode(&hash.to_string())
}

/// Go's encoder escapes what HTML would read as markup, and two line separators that JavaScript would.
fn as_go_writes(data: &Value) -> String {
    const ESCAPED: [(char, &str); 5] = [
        ('<', r"\u003c"),
        ('>', r"\u003e"),
        ('&', r"\u0026"),
        ('\u{2028}', r"\u2028"),
        ('\u{2029}', r"\u2029"),
    ];
    ESCAPED.iter().fold(data.to_string(), |text, (character, escape)| text.replace(*character, escape))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::StatefulSet;

    use super::*;
    use crate::fixture::{list, parse};

    /// What a StatefulSet of v1.34 looks like, whose revision is known. Source: upstream's compatibility test.
    const TEMPLATE: &str = "{metadata: {annotations: {test: value}, labels: {app: foo}}, spec: {containers: \
        [{image: test, imagePullPolicy: Always, name: test, resources: {}, terminationMessagePath: \
        /dev/termination-log, terminationMessagePolicy: File}], dnsPolicy: ClusterFirst, restartPolicy: Always, \
        schedulerName: default-scheduler, securityContext: {}, terminationGracePeriodSeconds: 30}}";

    fn owner() -> StatefulSet {
        parse("{metadata: {name: test, namespace: default, uid: s1, annotations: {a: b}}}")
    }

    fn found(owned: &[Arc<ControllerRevision>]) -> Newest {
        newest(&owner(), &parse(TEMPLATE), owned, 0, |_| None)
    }

    #[test]
    fn names_and_hashes_are_upstreams() {
        let made = found(&[]);
        assert_eq!(name(&made.revision.metadata), "test-776999688b");
        assert_eq!(made.revision.revision, 1);
        assert_eq!(template_of(&made.revision), Some(parse(TEMPLATE)));
        assert!(made.action.is_some());
    }

    #[test]
    fn a_taken_name_is_left_and_counted() {
        let is_taken = |name: &str| (name == "test-776999688b").then(Arc::default);
        let made = newest(&owner(), &parse(TEMPLATE), &[], 0, is_taken);
        assert_ne!(name(&made.revision.metadata), "test-776999688b");
        assert_eq!(made.collision_count, 1);
    }

    #[test]
    fn a_template_that_comes_back_becomes_the_newest_again() {
        let first = found(&[]).revision;
        let mut other = ControllerRevision::clone(&first);
        other.metadata.name = Some("test-other".into());
        other.revision = 2;
        other.data = Some(RawExtension(json!({"spec": {"template": {}}})));
        let again = found(&[Arc::clone(&first), Arc::new(other)]);
        assert_eq!((name(&again.revision.metadata), again.revision.revision), ("test-776999688b", 3));
        assert!(again.action.is_some());
        assert!(found(&[first]).action.is_none());
    }

    #[test]
    fn a_revision_of_an_older_server_is_known() {
        let mut old = ControllerRevision::clone(&found(&[]).revision);
        let RawExtension(data) = old.data.as_mut().expect("data");
        data["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
        assert!(found(&[Arc::new(old)]).action.is_none());
    }

    #[test]
    fn the_oldest_that_nobody_needs_go_first() {
        let owned: Vec<Arc<ControllerRevision>> = list(
            "[{metadata: {name: a}, revision: 1}, {metadata: {name: b}, revision: 2}, \
             {metadata: {name: c}, revision: 3}, {metadata: {name: d}, revision: 4}]",
        );
        let names: Vec<String> = truncate(&owned, 1, |name| name == "a")
            .iter()
            .filter_map(|action| match action {
                Action::Request(request) => Some(request.name.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["b", "c"]);
    }

    #[test]
    fn markup_is_escaped_as_go_does() {
        assert_eq!(as_go_writes(&json!("<a&b>")), r#""\u003ca\u0026b\u003e""#);
    }
}
