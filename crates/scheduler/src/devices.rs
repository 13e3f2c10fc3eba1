//! The scheduler's knowledge of devices: claims, classes, slices, and the allocations that are assumed for Pods whose binding
//! is under way.
//!
//! A device is taken if a claim's allocation names it, or an assumed one does. What the scheduler has written itself counts at
//! once, before the informer tells of it: nothing is given twice. Source: `dra_manager.go`, `allocateddevices.go` of the
//! DynamicResources plugin; KEP-4381.

pub mod allocate;

pub(crate) mod changes;
mod error;
mod pools;
mod requests;
mod search;
mod taints;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controller::informer::Change;
use controller::pod::Pod;
use controller::resource_claim::{self, is_allocated, of_pod};
use expressions::device::Selectors;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClass, ResourceClaim, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::api::resource::v1alpha3::DeviceTaintRule;

pub use error::{DeviceError, Place, RequestFlaw};
pub use taints::Taints;

use crate::storage::{ByKey, apply};

/// A device of the cluster: driver, pool, name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId {
    /// The driver that owns it.
    pub driver: String,
    /// The driver's pool.
    pub pool: String,
    /// Unique in the pool.
    pub device: String,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// Everything that the plugin looks at.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    claims: ByKey<ResourceClaim>,
    classes: ByKey<DeviceClass>,
    slices: ByKey<ResourceSlice>,
    /// Names of the slices of one Node's devices, by Node; under the empty name those of all others.
    by_node: BTreeMap<String, BTreeSet<String>>,
    /// By the Pod's uid: what its binding will take.
    assumed: BTreeMap<String, PodClaims>,
    /// Compiled expressions.
    pub selectors: Selectors,
    /// What keeps devices from those who do not tolerate it.
    pub taints: Taints,
}

/// The claims of a Pod that are written before it is bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodClaims {
    /// Claims that the Pod has not reserved yet, with the devices that they are to get if they have none.
    pub claims: Vec<(Arc<ResourceClaim>, Option<AllocationResult>)>,
}

/// The key of a claim.
pub fn claim_key(claim: &ResourceClaim) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", text(&claim.metadata.namespace), text(&claim.metadata.name))
}

impl Devices {
    /// Nothing yet; taints count if their feature is on.
    pub fn of_features() -> Self {
        Self { taints: Taints::of_features(), ..Self::default() }
    }

    /// Takes changes of claims in; what we have written ourselves meanwhile is newer. Says whether a Pod may gain by it.
    pub fn claims_changed(&mut self, changes: Vec<Change<ResourceClaim>>) -> bool {
        let mut helps = false;
        for change in changes {
            let old = self.claims.get(&*change.key);
            let Some(new) = change.new else {
                helps |= self.claims.remove(&*change.key).is_some();
                continue;
            };
            if old.is_some_and(|old| is_newer(old, &new)) {
                continue;
            }
            helps |= old.is_none_or(|old| old.status != new.status || old.metadata.uid != new.metadata.uid);
            self.claims.insert(change.key.to_string(), new);
        }
        helps
    }

    /// Takes changes of classes in.
    pub fn classes_changed(&mut self, changes: Vec<Change<DeviceClass>>) {
        apply(&mut self.classes, changes);
    }

    /// Takes changes of slices in.
    pub fn slices_changed(&mut self, changes: Vec<Change<ResourceSlice>>) {
        for change in &changes {
            if let Some(old) = self.slices.get(&*change.key) {
                let node = node_of(old).to_owned();
                if let Some(names) = self.by_node.get_mut(&node) {
                    names.remove(&*change.key);
                    if names.is_empty() {
                        self.by_node.remove(&node);
                    }
                }
            }
            if let Some(new) = &change.new {
                self.by_node.entry(node_of(new).to_owned()).or_default().insert(change.key.to_string());
            }
        }
        apply(&mut self.slices, changes);
    }

    /// Takes changes of rules in; answers a slice that has a device with another taint now, if there is one.
    pub fn rules_changed(&mut self, changes: &[Change<DeviceTaintRule>]) -> Option<Arc<ResourceSlice>> {
        changes.iter().for_each(|change| self.taints.rule_changed(change));
        let is_concerned =
            |slice: &&Arc<ResourceSlice>| changes.iter().any(|change| taints::concerns(change, &slice.spec));
        self.slices.values().find(is_concerned).cloned()
    }

    /// Counts a claim as the API server has just answered it. Source: `AssumeClaimAfterAPICall`.
    pub fn assume_written(&mut self, claim: Arc<ResourceClaim>) {
        let key = claim_key(&claim);
        // One that is gone stays gone.
        if let Some(known) = self.claims.get_mut(&key)
            && known.metadata.uid == claim.metadata.uid
            && is_newer(&claim, known)
        {
            *known = claim;
        }
    }

    /// The claim of that key.
    pub fn claim(&self, key: &str) -> Option<&Arc<ResourceClaim>> {
        self.claims.get(key)
    }

    /// The class of that name.
    pub fn class(&self, name: &str) -> Option<&Arc<DeviceClass>> {
        self.classes.get(name)
    }

    /// Slices that may concern a Node: its own and those that are nobody's own.
    pub fn slices_near(&self, node: &str) -> impl Iterator<Item = &Arc<ResourceSlice>> {
        let names = ["", node].into_iter().filter_map(|node| self.by_node.get(node)).flatten();
        names.filter_map(|name| self.slices.get(name))
    }

    /// The generations of all slices of the pool that this slice is of, whatever Node they are for.
    fn generations(&self, slice: &ResourceSliceSpec) -> impl Iterator<Item = i64> {
        let all = self.slices.values().map(|other| &other.spec);
        let own = all.filter(move |other| other.driver == slice.driver && other.pool.name == slice.pool.name);
        own.map(|other| other.pool.generation)
    }

    /// The Pod's claims, each there and good for it.
    ///
    /// # Errors
    /// What the Pod has to wait for.
    pub fn claims_of(&self, pod: &Pod) -> Result<Vec<Arc<ResourceClaim>>, DeviceError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut found = Vec::new();
        for claim in of_pod(pod) {
            let Some(meant) = resource_claim::must_be(pod, claim)? else { continue };
            let name = meant.name().unwrap_or_default();
            let claim = self.claims.get(&format!("{namespace}/{name}"));
            let claim = claim.ok_or_else(|| DeviceError::NoClaim(name.to_owned()))?;
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(DeviceError::Deleting(name.to_owned()));
            }
            if matches!(meant, resource_claim::Meant::Made(_)) {
                resource_claim::check_owner(pod, claim)?;
            }
            found.push(claim.clone());
        }
        Ok(found)
    }

    /// `true` if devices for the claim are being written down for another Pod.
    pub fn is_being_allocated(&self, claim: &ResourceClaim) -> bool {
        let mut all = self.assumed.values().flat_map(|pod_claims| &pod_claims.claims);
        all.any(|(other, allocation)| allocation.is_some() && other.metadata.uid == claim.metadata.uid)
    }

    /// Devices that somebody has or will have; those that are only administered are free.
    pub fn taken(&self) -> BTreeSet<DeviceId> {
        let written = self.claims.values().filter(|claim| is_allocated(claim));
        let written = written.filter_map(|claim| claim.status.as_ref()?.allocation.as_ref());
        let assumed = self.assumed.values().flat_map(|pod_claims| &pod_claims.claims);
        let assumed = assumed.filter_map(|(_, allocation)| allocation.as_ref());
        written.chain(assumed).flat_map(devices_of).collect()
    }

    /// Keeps what a Pod will have from others. Source: `SignalClaimPendingAllocation`.
    pub fn assume(&mut self, uid: &str, pod_claims: PodClaims) {
        self.assumed.insert(uid.to_owned(), pod_claims);
    }

    /// The binding has come to an end: what became of it is in the claims.
    pub fn settle(&mut self, uid: &str) {
        self.assumed.remove(uid);
    }
}

/// The devices that an allocation takes from others.
fn devices_of(allocation: &AllocationResult) -> impl Iterator<Item = DeviceId> {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    results.filter(|result| result.admin_access != Some(true)).map(|result| DeviceId {
        driver: result.driver.clone(),
        pool: result.pool.clone(),
        device: result.device.clone(),
    })
}

fn node_of(slice: &ResourceSlice) -> &str {
    slice.spec.node_name.as_deref().unwrap_or_default()
}

fn is_newer(one: &ResourceClaim, other: &ResourceClaim) -> bool {
    let revision = |claim: &ResourceClaim| {
        claim.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok())
    };
    revision(one) > revision(other)
}

#[cfg(test)]
mod tainted;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upstream;
