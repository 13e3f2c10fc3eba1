//! The taints that end Pods, and what they come to for the devices that claims have: a pure function of slices, rules and
//! claims.
//!
//! Of a pool the slices of the newest generation count. What is tolerated is in a claim's allocation: the scheduler has
//! copied it there. A toleration of no effect in particular is for all effects, as the API says, and has no end, as
//! `tolerationSeconds` are for NoExecute alone; upstream's controller passes over it.
//! Source: `claimEvictionTime`, `podEvictionTime` of `pkg/controller/devicetainteviction`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controller::device_taint::{NO_EXECUTE, selects, taint_of, tolerates};
use controller::metadata::{created, is_deleting, namespace, time, uid};
use controller::pod::Pod;
use controller::resource_claim::{Meant, check_owner, is_allocated, is_reserved_for, meant, of_pod};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceTaint, DeviceToleration, ResourceClaim, ResourceSlice,
    ResourceSliceSpec,
};
use k8s_openapi::api::resource::v1alpha3::DeviceTaintRule;

use crate::pod::{is_finished, node_name};

/// A pool: driver and name.
type Pool<'a> = (&'a str, &'a str);

/// The NoExecute taints that slices have, by pool and device.
#[derive(Debug, Default)]
pub(super) struct Tainted(BTreeMap<(String, String), BTreeMap<String, Vec<DeviceTaint>>>);

impl Tainted {
    pub(super) fn of(slices: &[Arc<ResourceSlice>]) -> Self {
        let has_taints = |slice: &&Arc<ResourceSlice>| evicting(&slice.spec).next().is_some();
        let mut concerned: BTreeSet<Pool<'_>> = BTreeSet::new();
        concerned.extend(slices.iter().filter(has_taints).map(|slice| pool_of(&slice.spec)));
        let newest = newest(slices.iter().filter(|slice| concerned.contains(&pool_of(&slice.spec))));
        let mut found = Self::default();
        for slice in slices.iter().filter(has_taints) {
            let pool = pool_of(&slice.spec);
            if newest.get(&pool) != Some(&slice.spec.pool.generation) {
                continue;
            }
            let devices = found.0.entry((pool.0.to_owned(), pool.1.to_owned())).or_default();
            for (device, taint) in evicting(&slice.spec) {
                let mut taint = taint.clone();
                taint.time_added.get_or_insert_with(|| time(created(&slice.metadata)));
                devices.entry(device.to_owned()).or_default().push(taint);
            }
        }
        found
    }

    /// Whether a device of the slice's pool has a taint.
    pub(super) fn has_pool_of(&self, slice: &ResourceSliceSpec) -> bool {
        self.0.contains_key(&(slice.driver.clone(), slice.pool.name.clone()))
    }

    fn on(&self, result: &DeviceRequestAllocationResult) -> &[DeviceTaint] {
        let devices = self.0.get(&(result.driver.clone(), result.pool.clone()));
        devices.and_then(|devices| devices.get(&result.device)).map_or(&[], Vec::as_slice)
    }
}

/// The NoExecute taints of a slice, with their devices.
pub(super) fn evicting(slice: &ResourceSliceSpec) -> impl Iterator<Item = (&str, &DeviceTaint)> {
    slice.devices.iter().flatten().flat_map(|device| {
        let taints = device.taints.iter().flatten().filter(|taint| taint.effect == NO_EXECUTE);
        taints.map(|taint| (device.name.as_str(), taint))
    })
}

fn pool_of(slice: &ResourceSliceSpec) -> Pool<'_> {
    (&slice.driver, &slice.pool.name)
}

/// The newest generation of each pool.
fn newest<'a>(slices: impl Iterator<Item = &'a Arc<ResourceSlice>>) -> BTreeMap<Pool<'a>, i64> {
    let mut found: BTreeMap<Pool<'a>, i64> = BTreeMap::new();
    for slice in slices {
        let newest = found.entry(pool_of(&slice.spec)).or_insert(i64::MIN);
        *newest = (*newest).max(slice.spec.pool.generation);
    }
    found
}

/// When a Pod has to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Eviction {
    pub(super) when: Timestamp,
    /// The uids of the rules whose taints have a part in it.
    pub(super) rules: BTreeSet<String>,
}

/// The allocated claims that a Pod uses; none if it has no Node.
pub(super) fn claims_of(
    pod: &Pod,
    find: impl Fn(&str) -> Option<Arc<ResourceClaim>>,
) -> Vec<Arc<ResourceClaim>> {
    if node_name(pod).is_empty() {
        return Vec::new();
    }
    let used = of_pod(pod).iter().filter_map(|entry| {
        let meant = meant(pod, entry);
        let claim = find(&format!("{}/{}", namespace(&pod.metadata), meant.name()?))?;
        let is_its = !matches!(meant, Meant::Made(_)) || check_owner(pod, &claim).is_ok();
        (is_its && is_allocated(&claim) && is_reserved_for(pod, &claim)).then_some(claim)
    });
    used.collect()
}

/// When whoever uses the claims has to leave, if ever.
pub(super) fn eviction(
    claims: &[Arc<ResourceClaim>],
    tainted: &Tainted,
    rules: &[Arc<DeviceTaintRule>],
) -> Option<Eviction> {
    let mut found: Option<Eviction> = None;
    let mut add = |when: Timestamp, rule: Option<&str>| {
        let all = found.get_or_insert_with(|| Eviction { when, rules: BTreeSet::new() });
        all.when = all.when.min(when);
        all.rules.extend(rule.map(str::to_owned));
    };
    for result in claims.iter().flat_map(|claim| results(claim)) {
        let tolerations = result.tolerations.as_deref().unwrap_or_default();
        let of_slices = tainted.on(result).iter().filter_map(|taint| leaves_at(tolerations, taint));
        of_slices.for_each(|when| add(when, None));
        for rule in rules.iter().filter(|rule| evicts(rule) && selects_result(rule, result)) {
            let mut taint = taint_of(rule);
            taint.time_added.get_or_insert_with(|| time(created(&rule.metadata)));
            leaves_at(tolerations, &taint).into_iter().for_each(|when| add(when, Some(uid(&rule.metadata))));
        }
    }
    found
}

/// Whether the rule's taint ends Pods.
pub(super) fn evicts(rule: &DeviceTaintRule) -> bool {
    rule.spec.taint.effect == NO_EXECUTE
}

/// Whether the rule is about a device of the claim.
pub(super) fn concerns(rule: &DeviceTaintRule, claim: &ResourceClaim) -> bool {
    results(claim).any(|result| selects_result(rule, result))
}

fn selects_result(rule: &DeviceTaintRule, result: &DeviceRequestAllocationResult) -> bool {
    selects(rule, &result.driver, &result.pool, &result.device)
}

/// The devices that a claim has.
pub(super) fn results(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    devices.into_iter().flat_map(|devices| devices.results.iter().flatten())
}

/// When the time is over for which a taint is tolerated; `None` if it never is. Of several tolerations the shortest counts.
fn leaves_at(tolerations: &[DeviceToleration], taint: &DeviceTaint) -> Option<Timestamp> {
    let mut allowed = None;
    for toleration in tolerations.iter().filter(|toleration| tolerates(toleration, taint)) {
        let is_for_it = toleration.effect.as_deref() == Some(NO_EXECUTE);
        let seconds = toleration.toleration_seconds.filter(|_| is_for_it)?;
        allowed = Some(allowed.map_or(seconds, |least: i64| least.min(seconds)));
    }
    let added = taint.time_added.as_ref().map_or(Timestamp::UNIX_EPOCH, |added| added.0);
    let allowed = SignedDuration::from_secs(allowed.unwrap_or(0).max(0));
    Some(added.checked_add(allowed).unwrap_or(Timestamp::MAX))
}

/// How many Pods have to leave because of a rule, or would have to if it were of that effect, and in how many namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) pods: usize,
    pub(super) namespaces: usize,
}

impl Pending {
    pub(super) fn of(
        rule: &DeviceTaintRule,
        pods: &[Arc<Pod>],
        find: impl Fn(&str) -> Option<Arc<ResourceClaim>>,
    ) -> Self {
        let mut rule = rule.clone();
        NO_EXECUTE.clone_into(&mut rule.spec.taint.effect);
        let (rule, none) = ([Arc::new(rule)], Tainted::default());
        let has_to = |pod: &&Arc<Pod>| {
            !is_deleting(&pod.metadata)
                && !is_finished(pod)
                && eviction(&claims_of(pod, &find), &none, &rule).is_some()
        };
        let (mut found, mut namespaces) = (Self::default(), BTreeSet::new());
        for pod in pods.iter().filter(has_to) {
            found.pods += 1;
            namespaces.insert(namespace(&pod.metadata));
        }
        found.namespaces = namespaces.len();
        found
    }
}

/// How many devices a rule is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Selected {
    /// In slices of the newest generation.
    pub(super) published: usize,
    /// In allocations.
    pub(super) allocated: usize,
}

impl Selected {
    pub(super) fn by(
        rule: &DeviceTaintRule,
        slices: &[Arc<ResourceSlice>],
        claims: &[Arc<ResourceClaim>],
    ) -> Self {
        let newest = newest(slices.iter());
        let counts = |slice: &&Arc<ResourceSlice>| {
            newest.get(&pool_of(&slice.spec)) == Some(&slice.spec.pool.generation)
        };
        let of_slice = |slice: &Arc<ResourceSlice>| {
            let (driver, pool) = pool_of(&slice.spec);
            slice.spec.devices.iter().flatten().filter(|one| selects(rule, driver, pool, &one.name)).count()
        };
        let allocated = claims.iter().flat_map(|claim| results(claim));
        Self {
            published: slices.iter().filter(counts).map(of_slice).sum(),
            allocated: allocated.filter(|result| selects_result(rule, result)).count(),
        }
    }
}
