//! Revisions: which ReplicaSet is the new one, its number, its annotations, and how many old ones are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::metadata::{controller_reference, is_deleting, name, namespace, uid};
use controller::plan::FAILURE;
use controller::{Action, EventType, Propagation};
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::deployment::REVISION;
use crate::deployment::bounds::limit;
use crate::deployment::hash::{POD_TEMPLATE_HASH, replica_set_name, template_hash};
use crate::deployment::rollout::Rollout;
use crate::deployment::sets::{Set, total};

/// The numbers that a ReplicaSet had before, separated by commas.
pub(crate) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// `spec.replicas` of the Deployment when the ReplicaSet was last sized.
pub(crate) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The most replicas, surge included, when the ReplicaSet was last sized.
pub(crate) const REPLICAS_MAX: &str = "deployment.kubernetes.io/max-replicas";

const HISTORY_CHARS_MAX: usize = 2_000;

/// Annotations of a Deployment that are not its ReplicaSets'.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    REPLICAS_MAX,
    "deprecated.deployment.rollback.to",
];

impl Rollout<'_> {
    /// Brings revision, annotations and minReadySeconds of the new ReplicaSet up to date, if there is one.
    pub(crate) fn adopt_revision(&mut self) {
        let Some(index) = self.new else { return };
        let revision = self.next_revision();
        let (replicas, replicas_max) = (self.bounds.replicas, self.bounds.replicas_max());
        let (copied, min_ready_seconds) = (self.copied_annotations(), self.spec.min_ready_seconds);
        let Some(set) = self.sets.get_mut(index) else { return };
        set.annotations.extend(copied);
        number(&mut set.annotations, revision);
        set.annotations.entry(DESIRED_REPLICAS.to_owned()).or_insert_with(|| replicas.to_string());
        set.annotations.entry(REPLICAS_MAX.to_owned()).or_insert_with(|| replicas_max.to_string());
        set.min_ready_seconds = min_ready_seconds;
        self.revision = set.annotations.get(REVISION).cloned();
        let message = format!("Found new replica set \"{}\"", set.name());
        self.note_first("FoundNewReplicaSet", message);
    }

    /// Like [`Rollout::adopt_revision`], and decides to create the new ReplicaSet when there is none. Afterwards
    /// there is none only if its name is taken, which the next try resolves.
    pub(crate) fn adopt_or_create(&mut self) {
        if self.new.is_some() {
            return self.adopt_revision();
        }
        if self.namesake.is_some() {
            // Somebody else's: another name is tried when the higher count comes back.
            self.collision_count = Some(self.collision_count.unwrap_or(0).saturating_add(1));
            return;
        }
        let Some(object) = self.replica_set() else { return };
        let mut annotations: BTreeMap<String, String> = self.copied_annotations().into_iter().collect();
        let revision = self.next_revision();
        number(&mut annotations, revision);
        let mut set = Set { is_to_create: true, annotations, ..Set::of(Arc::new(object)) };
        let (name, replicas) = (set.name().to_owned(), self.first_size());
        set.replicas = replicas;
        set.annotations.insert(DESIRED_REPLICAS.to_owned(), self.bounds.replicas.to_string());
        set.annotations.insert(REPLICAS_MAX.to_owned(), self.bounds.replicas_max().to_string());
        self.new = Some(self.sets.len());
        self.sets.push(set);
        if replicas > 0 {
            self.inform("ScalingReplicaSet", format!("Scaled up replica set {name} from 0 to {replicas}"));
        }
        self.revision = Some(revision.to_string());
        self.tell_if_not_created(&name);
        self.note_created(format!("Created new replica set \"{name}\""));
    }

    /// What is said if the API server refuses the new ReplicaSet.
    fn tell_if_not_created(&mut self, name: &str) {
        const REASON: &str = "ReplicaSetCreateError";
        let message = format!("Failed to create new replica set \"{name}\": {FAILURE}");
        self.on_failure.extend(self.failure_status(REASON, message.clone()));
        self.on_failure.push(Action::event(self.deployment, EventType::Warning, REASON, message));
    }

    /// Removes the oldest ReplicaSets that are empty and beyond `revisionHistoryLimit`.
    pub(crate) fn clean_up_history(&mut self) {
        let Some(kept) = limit(self.spec.revision_history_limit) else { return };
        let mut old: Vec<&Set> = self
            .old()
            .into_iter()
            .filter_map(|index| self.sets.get(index))
            .filter(|set| !is_deleting(&set.object.metadata))
            .collect();
        let surplus = old.len().saturating_sub(usize::try_from(kept).unwrap_or(0));
        old.sort_by_key(|set| (set.number(REVISION).unwrap_or(0), set.created()));
        let deletes: Vec<Action> = old
            .into_iter()
            .take(surplus)
            .filter(|set| set.actual() == 0 && set.replicas == 0 && is_observed(&set.object))
            .map(|set| {
                let meta = &set.object.metadata;
                let (namespace, name, uid) = (namespace(meta), name(meta), uid(meta));
                Action::delete::<ReplicaSet>(namespace, name, Some(uid), Propagation::Background, None)
            })
            .collect();
        self.deletes.extend(deletes);
    }

    /// One more than the highest revision of the old ReplicaSets.
    fn next_revision(&self) -> i64 {
        let old = self.old().into_iter().filter_map(|index| self.sets.get(index));
        let highest = old.filter_map(|set| set.annotations.get(REVISION)?.parse::<i64>().ok()).max();
        highest.unwrap_or(0).max(0).saturating_add(1)
    }

    fn copied_annotations(&self) -> Vec<(String, String)> {
        let own = self.deployment.metadata.annotations.iter().flatten();
        own.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// How large a new ReplicaSet may be at once.
    fn first_size(&self) -> i32 {
        if !self.bounds.is_rolling {
            return self.bounds.replicas;
        }
        let headroom = self.bounds.replicas_max() - total(&self.sets, |set| set.replicas);
        headroom.clamp(0, self.bounds.replicas)
    }

    fn replica_set(&self) -> Option<ReplicaSet> {
        let hash = template_hash(&self.spec.template, self.collision_count);
        let mut template = self.spec.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(POD_TEMPLATE_HASH.to_owned(), hash.clone());
        let labels = labels.clone();
        let mut selector: LabelSelector = self.spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(POD_TEMPLATE_HASH.to_owned(), hash);
        let meta = &self.deployment.metadata;
        Some(ReplicaSet {
            metadata: ObjectMeta {
                name: Some(replica_set_name(self.deployment)?),
                namespace: meta.namespace.clone(),
                labels: Some(labels),
                owner_references: Some(vec![controller_reference(self.deployment)]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                min_ready_seconds: self.spec.min_ready_seconds,
                replicas: Some(0),
                selector,
                template: Some(template),
            }),
            status: None,
        })
    }
}

fn is_observed(set: &ReplicaSet) -> bool {
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    set.metadata.generation.unwrap_or(0) <= observed.unwrap_or(0)
}

/// Gives a ReplicaSet the number `revision` if it has a lower one, which then goes to its history.
fn number(annotations: &mut BTreeMap<String, String>, revision: i64) {
    let old = annotations.get(REVISION).cloned();
    let old_number = match old.as_deref() {
        None | Some("") => 0,
        // What is no number was put there by somebody else and is left alone.
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            Err(_) => return,
        },
    };
    if old_number >= revision {
        return;
    }
    annotations.insert(REVISION.to_owned(), revision.to_string());
    let Some(old) = old else { return };
    let history = annotations.get(REVISION_HISTORY).map(String::as_str).unwrap_or_default();
    let mut entries: Vec<&str> = history.split(',').filter(|entry| !entry.is_empty()).collect();
    entries.push(&old);
    while entries.iter().map(|entry| entry.len() + 1).sum::<usize>() > HISTORY_CHARS_MAX {
        entries.remove(0);
    }
    let history = entries.join(",");
    annotations.insert(REVISION_HISTORY.to_owned(), history);
}
