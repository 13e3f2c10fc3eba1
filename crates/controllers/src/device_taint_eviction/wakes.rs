//! What wakes the device taint eviction controller: changes of Pods, claims, slices and rules, as keys of Pods and rules.

use std::sync::Arc;

use controller::device_taint::NO_EXECUTE;
use controller::metadata::{is_deleting, name, namespace, uid};
use controller::pod::Pod;
use controller::resource_claim::{is_allocated, of_pod, users};
use controller::{Change, Informers};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::api::resource::v1alpha3::DeviceTaintRule;
use machinery::features::Feature;

use super::memory::Memory;
use super::taints::{concerns, evicting, evicts, results};
use crate::pod::{is_finished, node_name};

const POD: &str = "pod:";
const RULE: &str = "rule:";
const RULE_LATER: &str = "later:";

/// A key of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key<'a> {
    /// A Pod that may have to leave.
    Pod(&'a str),
    /// A rule that has changed.
    Rule(&'a str),
    /// A rule that Pods may have come under, or gone because of: its status waits for more of them.
    RuleLater(&'a str),
}

impl<'a> Key<'a> {
    pub(super) fn read(key: &'a str) -> Self {
        let of = |kind: &str| key.strip_prefix(kind);
        match (of(RULE), of(RULE_LATER)) {
            (Some(rule), _) => Self::Rule(rule),
            (_, Some(rule)) => Self::RuleLater(rule),
            (None, None) => Self::Pod(of(POD).unwrap_or(key)),
        }
    }
}

/// The rules that there are; none unless their feature is on, which nobody asks for them then.
pub(super) fn rules(informers: &Informers) -> Vec<Arc<DeviceTaintRule>> {
    match Feature::DraDeviceTaintRules.is_on() {
        true => informers.informer::<DeviceTaintRule>().list(),
        false => Vec::new(),
    }
}

/// The rules whose Pods are counted again.
fn rules_later(informers: &Informers) -> impl Iterator<Item = String> {
    let all = rules(informers).into_iter().filter(|rule| evicts(rule));
    all.map(|rule| format!("{RULE_LATER}{}", name(&rule.metadata)))
}

/// The Pod, if anything has changed that counts here.
pub(super) fn pod_changed(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let both = [change.old.as_deref(), change.new.as_deref()];
    if both.into_iter().flatten().all(|pod| of_pod(pod).is_empty())
        || both[0].map(parts) == both[1].map(parts)
    {
        return Vec::new();
    }
    let own = format!("{POD}{}", change.key);
    rules_later(informers).chain([own]).collect()
}

/// What counts of a Pod. Its claims never change.
fn parts(pod: &Pod) -> impl PartialEq {
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone());
    let (uid, node) = (uid(&pod.metadata).to_owned(), node_name(pod).to_owned());
    (uid, node, statuses, is_deleting(&pod.metadata) || is_finished(pod))
}

/// Pods that use the claim, or used it.
pub(super) fn claim_changed(change: &Change<ResourceClaim>, informers: &Informers) -> Vec<String> {
    let both = [change.old.as_deref(), change.new.as_deref()];
    let parts = |claim: &ResourceClaim| (claim.metadata.uid.clone(), claim.status.clone());
    let had_devices = both.into_iter().flatten().any(is_allocated);
    if !had_devices || both[0].map(parts) == both[1].map(parts) {
        return Vec::new();
    }
    let pods = pods_of(both.into_iter().flatten());
    pods.into_iter().chain(rules_later(informers)).collect()
}

/// Pods that use the pool's devices, if the change is one of taints that count.
pub(super) fn slice_changed(change: &Change<ResourceSlice>, informers: &Informers) -> Vec<String> {
    let had = Memory::of(informers).slices_changed();
    let both = [change.old.as_deref(), change.new.as_deref()].map(|slice| slice.map(|slice| &slice.spec));
    let is_tainted = |slice: &&ResourceSliceSpec| evicting(slice).next().is_some() || had.has_pool_of(slice);
    let parts = |slice: &ResourceSliceSpec| {
        let taints: Vec<_> =
            evicting(slice).map(|(device, taint)| (device.to_owned(), taint.clone())).collect();
        (slice.driver.clone(), slice.pool.clone(), taints)
    };
    if !both.iter().flatten().any(is_tainted) || both[0].map(parts) == both[1].map(parts) {
        return Vec::new();
    }
    let is_of_pool = |claim: &Arc<ResourceClaim>| {
        results(claim).any(|result| {
            both.iter()
                .flatten()
                .any(|slice| (&slice.driver, &slice.pool.name) == (&result.driver, &result.pool))
        })
    };
    pods_where(informers, is_of_pool)
}

/// The rule, and Pods that use devices that it is about or was.
pub(super) fn rule_changed(change: &Change<DeviceTaintRule>, informers: &Informers) -> Vec<String> {
    let both = [change.old.as_deref(), change.new.as_deref()];
    let parts = |rule: &DeviceTaintRule| (rule.metadata.uid.clone(), rule.spec.clone());
    if both[0].map(parts) == both[1].map(parts) {
        return Vec::new();
    }
    let uid_of = |rule: Option<&DeviceTaintRule>| rule.and_then(|rule| rule.metadata.uid.clone());
    if let Some(gone) = uid_of(both[0]).filter(|uid| uid_of(both[1]).as_ref() != Some(uid)) {
        Memory::of(informers).forget_rule(&gone);
    }
    let of_pods = |claim: &Arc<ResourceClaim>| {
        both.iter().flatten().any(|rule| rule.spec.taint.effect == NO_EXECUTE && concerns(rule, claim))
    };
    let pods = pods_where(informers, of_pods);
    let own = change.new.iter().map(|_| format!("{RULE}{}", change.key));
    own.chain(pods).collect()
}

/// The Pods that use claims of which something is true.
fn pods_where(informers: &Informers, is_meant: impl Fn(&Arc<ResourceClaim>) -> bool) -> Vec<String> {
    let mut claims = informers.informer::<ResourceClaim>().list();
    claims.retain(is_meant);
    pods_of(claims.iter().map(|claim| &**claim))
}

/// The Pods that use these claims, each once.
fn pods_of<'a>(claims: impl Iterator<Item = &'a ResourceClaim>) -> Vec<String> {
    let of_claim = |claim: &'a ResourceClaim| {
        let pods = users(claim).iter().filter(|user| {
            user.resource == "pods" && user.api_group.as_deref().unwrap_or_default().is_empty()
        });
        pods.map(move |user| format!("{POD}{}/{}", namespace(&claim.metadata), user.name))
    };
    let mut keys: Vec<String> = claims.flat_map(of_claim).collect();
    keys.sort();
    keys.dedup();
    keys
}
