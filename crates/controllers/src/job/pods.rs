//! The Pods of a Job: which are its own, what counts them, what they are made of.
//!
//! A Pod has a finalizer until it is counted; who has none is counted, or is none of the Job's business.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use controller::metadata::{annotation, controller_reference, is_deleting, name, namespace, uid};
use controller::pod::Pod;
use controller::{Action, Patch, selector};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod as WholePod, PodTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::failure_policy::judge;
use super::indexes::{COMPLETION_INDEX, completion_index};
use crate::claim::claim_holding;
use crate::names::{NAME_BASE_CHARS_MAX, Names};
use crate::pod::{is_active, phase};

/// On every Pod that has not been counted. Source: `batch/v1`.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// How often an index has failed before this Pod, with failures that count and that do not. Source: `batch/v1`.
const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// What a Pod is to its Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It works, or will.
    Active,
    /// It is on its way out, and not lost before it ends.
    Terminating,
    /// It has done its part.
    Succeeded,
    /// It has not, and never will.
    Failed,
}

/// The role of a Pod of the Job with this spec.
pub(super) fn role(spec: &JobSpec, pod: &Pod) -> Role {
    match phase(pod) {
        "Succeeded" => Role::Succeeded,
        "Failed" => Role::Failed,
        _ if is_active(pod) => Role::Active,
        _ if replaces_failed_only(spec) => Role::Terminating,
        // It may be gone before anybody sees how it ended.
        _ => Role::Failed,
    }
}

/// Whether a Pod on its way out is replaced only when it has ended.
pub(super) fn replaces_failed_only(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some()
}

pub(super) fn has_finalizer(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING)
}

/// What belongs to a Job once `actions` are done, and as it will be then.
pub(super) struct Own {
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) actions: Vec<Action>,
}

/// Sorts `candidates` (what the Job controls, and orphans).
pub(super) fn own(job: &Job, spec: &JobSpec, candidates: Vec<Arc<Pod>>) -> Own {
    let Some(selector) = spec.selector.as_ref().filter(|selector| !selector::is_empty(selector)) else {
        return Own { pods: Vec::new(), actions: Vec::new() };
    };
    let mut claims = claim_holding(job, selector, Some(TRACKING), candidates);
    for pod in &mut claims.owned {
        let is_adopted =
            pod.metadata.owner_references.iter().flatten().all(|owner| owner.uid != uid(&job.metadata));
        // Somebody, or a surplus Pod's removal that was broken off, has taken the finalizer away: it would never count.
        let is_untracked = is_active(pod) && !is_deleting(&job.metadata);
        if has_finalizer(pod) || !(is_adopted || is_untracked) {
            continue;
        }
        if !is_adopted {
            claims.actions.push(patch(pod, json!({ "finalizers": [TRACKING] })));
        }
        let mut tracked = Pod::clone(pod);
        tracked.metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
        *pod = Arc::new(tracked);
    }
    Own { pods: claims.owned, actions: claims.actions }
}

/// Takes the finalizer of a Pod away.
pub(super) fn release(pod: &Pod) -> Action {
    patch(pod, json!({ "$deleteFromPrimitiveList/finalizers": [TRACKING] }))
}

fn patch(pod: &Pod, mut metadata: serde_json::Value) -> Action {
    let meta = &pod.metadata;
    metadata["uid"] = json!(uid(meta));
    Action::patch::<Pod>(namespace(meta), name(meta), Patch::Strategic(json!({ "metadata": metadata })))
}

/// How often an index has failed before `pod`, in either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexFailures {
    pub(super) counted: i32,
    pub(super) ignored: i32,
}

impl IndexFailures {
    /// What a Pod says of those before it; users may have written anything there.
    pub(super) fn before(pod: &Pod) -> Self {
        let read = |key: &str| annotation(&pod.metadata, key).and_then(|text| text.parse().ok()).unwrap_or(0);
        Self { counted: read(FAILURE_COUNT).max(0), ignored: read(IGNORED_FAILURE_COUNT).max(0) }
    }

    /// The same after `pod` has failed, too.
    fn after(spec: &JobSpec, pod: &Pod) -> Self {
        let Self { counted, ignored } = Self::before(pod);
        if judge(spec.pod_failure_policy.as_ref(), pod).counts() {
            return Self { counted: counted.saturating_add(1), ignored };
        }
        Self { counted, ignored: ignored.saturating_add(1) }
    }

    pub(super) fn total(self) -> usize {
        usize::try_from(self.counted.saturating_add(self.ignored)).unwrap_or(0)
    }
}

/// Makes the Pods of a Job.
pub(super) struct Maker<'a> {
    job: &'a Job,
    spec: &'a JobSpec,
    template: PodTemplateSpec,
    names: Names,
}

impl<'a> Maker<'a> {
    /// `revision` is the newest of any Pod seen: names follow from it.
    pub(super) fn new(job: &'a Job, spec: &'a JobSpec, taken: HashSet<String>, revision: u64) -> Self {
        let mut template = spec.template.clone();
        if is_indexed(spec)
            && let Some(pod) = &mut template.spec
        {
            pod.containers.iter_mut().for_each(tell_index);
            pod.init_containers.iter_mut().flatten().for_each(tell_index);
        }
        let finalizers = template.metadata.get_or_insert_default().finalizers.get_or_insert_default();
        if !finalizers.iter().any(|finalizer| finalizer == TRACKING) {
            finalizers.push(TRACKING.to_owned());
        }
        Self { job, spec, template, names: Names::new(&job.metadata, taken, revision) }
    }

    /// A Pod for an index, in place of `replaced`; or any.
    pub(super) fn make(&mut self, index: Option<i32>, replaced: Option<&Pod>) -> WholePod {
        let prefix = prefix(name(&self.job.metadata), index);
        let name = self.names.next(&prefix);
        let meta = self.template.metadata.clone().unwrap_or_default();
        let mut pod = WholePod {
            metadata: ObjectMeta {
                generate_name: Some(prefix),
                name: Some(name),
                namespace: self.job.metadata.namespace.clone(),
                labels: meta.labels,
                annotations: meta.annotations,
                finalizers: meta.finalizers,
                owner_references: Some(vec![controller_reference(self.job)]),
                ..ObjectMeta::default()
            },
            spec: self.template.spec.clone(),
            status: None,
        };
        if let Some(index) = index {
            self.tell(&mut pod, index, replaced);
        }
        pod
    }

    fn tell(&self, pod: &mut WholePod, index: i32, replaced: Option<&Pod>) {
        let text = index.to_string();
        pod.metadata.labels.get_or_insert_default().insert(COMPLETION_INDEX.to_owned(), text.clone());
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(COMPLETION_INDEX.to_owned(), text);
        if let Some(spec) = &mut pod.spec {
            spec.hostname = Some(format!("{}-{index}", name(&self.job.metadata)));
        }
        if self.spec.backoff_limit_per_index.is_none() {
            return;
        }
        let failures = replaced.map(|pod| IndexFailures::after(self.spec, pod)).unwrap_or_default();
        annotations.insert(FAILURE_COUNT.to_owned(), failures.counted.to_string());
        if failures.ignored > 0 {
            annotations.insert(IGNORED_FAILURE_COUNT.to_owned(), failures.ignored.to_string());
        }
    }
}

pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// What the name of a Pod begins with; a long one of the Job is cut, the index never.
fn prefix(job: &str, index: Option<i32>) -> String {
    let Some(index) = index else { return format!("{job}-") };
    let end = format!("-{index}-");
    let kept: String = job.chars().take(NAME_BASE_CHARS_MAX.saturating_sub(end.len())).collect();
    kept + &end
}

fn tell_index(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    let field_path = format!("metadata.labels['{COMPLETION_INDEX}']");
    variables.push(EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path, api_version: None }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    });
}

/// The Pods that hold back for an index what it has failed so far: the last that failed of each index that has neither
/// an end nor another Pod. Their finalizers stay until there is a successor that says it.
pub(super) fn last_failures<'a>(
    failed: impl Iterator<Item = &'a Arc<Pod>>,
    is_settled: impl Fn(i32) -> bool,
) -> BTreeMap<i32, Arc<Pod>> {
    let rank = |pod: &Pod| (IndexFailures::before(pod).total(), super::pod_end::finished(pod));
    let mut last: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
    for pod in failed.filter(|pod| has_finalizer(pod)) {
        let Some(index) = completion_index(pod).filter(|index| !is_settled(*index)) else { continue };
        if last.get(&index).is_none_or(|known| rank(known) <= rank(pod)) {
            last.insert(index, pod.clone());
        }
    }
    last
}
