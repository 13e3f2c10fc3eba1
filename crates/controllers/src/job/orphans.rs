//! Pods that have a Job's finalizer and no Job to count them any more: it is gone, or over, or has let them go.

use std::sync::Arc;

use controller::metadata::{controller_of, key, namespace, uid};
use controller::pod::Pod;
use controller::{Change, Controller, Informers, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::Resource;
use k8s_openapi::api::batch::v1::Job;

use super::pods::{has_finalizer, release};
use super::{finished, is_managed_elsewhere};

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "job-controller",
    queue: "job_orphan_pod",
    sources: |_| vec![Source::of::<Pod>(orphan), Source::of::<Job>(pods_of_job)],
    reconcile,
};

/// A Pod with the finalizer wakes itself if there is nobody to count it.
fn orphan(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let is_orphan = change.new.as_deref().is_some_and(|pod| is_orphan(informers, pod));
    if is_orphan { vec![change.key.to_string()] } else { Vec::new() }
}

/// A Job that is gone or over wakes the Pods that it leaves.
fn pods_of_job(change: &Change<Job>, informers: &Informers) -> Vec<String> {
    let is_gone = |old: &Arc<Job>| change.new.as_ref().is_none_or(|new| new.metadata.uid != old.metadata.uid);
    let gone = change.old.as_ref().filter(|old| is_gone(old));
    let over = change.new.as_ref().filter(|new| finished(new).is_some());
    let left = [gone, over].into_iter().flatten().flat_map(|job| {
        let pods = informers.informer::<Pod>().owned_by(uid(&job.metadata));
        pods.into_iter().filter(|pod| has_finalizer(pod))
    });
    left.map(|pod| key(&pod.metadata)).collect()
}

fn reconcile(informers: &Informers, key: &str, _now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    if let Some(pod) = informers.informer::<Pod>().get(key)
        && is_orphan(informers, &pod)
    {
        plan.push(release(&pod));
    }
    plan
}

fn is_orphan(informers: &Informers, pod: &Pod) -> bool {
    if !has_finalizer(pod) {
        return false;
    }
    let Some(owner) = controller_of(&pod.metadata) else { return true };
    if owner.kind != Job::KIND || owner.api_version != Job::API_VERSION {
        return false;
    }
    let found = informers.informer::<Job>().get(&format!("{}/{}", namespace(&pod.metadata), owner.name));
    let job = found.filter(|job| uid(&job.metadata) == owner.uid);
    job.is_none_or(|job| finished(&job).is_some() && !is_managed_elsewhere(&job))
}
