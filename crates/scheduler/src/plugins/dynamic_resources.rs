//! A Pod's devices have to be where it goes: those of claims that have some already, and free ones for the others.
//!
//! Source: `plugins/dynamicresources` of kube-scheduler, KEP-4381.

use std::collections::BTreeSet;
use std::sync::Arc;

use controller::placement::{self, Target};
use controller::pod::Pod;
use controller::resource_claim::{can_be_reserved, is_allocated, is_reserved_for, users};
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequest, ResourceClaim};

use super::{Candidate, Refusal};
use crate::devices::allocate::{Refused, allocate};
use crate::devices::{DeviceId, Devices, PodClaims, claim_key};
use crate::node_info::{NodeInfo, Snapshot};

/// How many alternatives a request has at most. Source: `FirstAvailableDeviceRequestMaxSize`.
const ALTERNATIVES_MAX: i64 = 8;

/// What a Pod's claims ask of a Node.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Why no Node will do, whatever it is like.
    pub(super) refused: Option<Refusal>,
    /// All of them.
    claims: Vec<Arc<ResourceClaim>>,
    /// Those without devices.
    pending: Vec<Arc<ResourceClaim>>,
    /// What others have.
    taken: BTreeSet<DeviceId>,
}

impl State {
    pub(super) fn new(pod: &Pod, snapshot: &Snapshot) -> Self {
        if controller::resource_claim::of_pod(pod).is_empty() {
            return Self::default();
        }
        match Self::read(pod, &snapshot.devices) {
            Ok(state) => state,
            Err(refusal) => Self { refused: Some(refusal), ..Self::default() },
        }
    }

    fn read(pod: &Pod, devices: &Devices) -> Result<Self, Refusal> {
        let claims = devices.claims_of(pod).map_err(|error| Refusal::lasting(error.to_string()))?;
        let mut state = Self { claims, ..Self::default() };
        for claim in &state.claims {
            if is_allocated(claim) {
                if !can_be_reserved(claim) && !is_reserved_for(pod, claim) {
                    return Err(Refusal::lasting("resourceclaim in use"));
                }
                continue;
            }
            if devices.is_being_allocated(claim) {
                let key = claim_key(claim);
                let why = format!("resource claim {key} is in the process of being allocated");
                return Err(Refusal::lasting(why));
            }
            check_classes(claim, devices)?;
            state.pending.push(claim.clone());
        }
        if !state.pending.is_empty() {
            state.taken = devices.taken();
        }
        Ok(state)
    }

    /// Whether the Pod has claims, and each is known.
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// A claim whose devices could be given back so that the Pod finds others: nobody else uses it, and it holds the Pod
    /// where it cannot run. Source: `PostFilter`.
    pub(super) fn in_the_way(&self, pod: &Pod, snapshot: &Snapshot) -> Option<Arc<ResourceClaim>> {
        let is_idle = |claim: &ResourceClaim| match users(claim) {
            [] => true,
            [only] => Some(&only.uid) == pod.metadata.uid.as_ref(),
            _ => false,
        };
        let holds = |claim: &ResourceClaim| snapshot.nodes().any(|node| !reaches(claim, node));
        let mut held =
            self.claims.iter().filter(|claim| is_allocated(claim) && is_idle(claim) && holds(claim));
        held.next().cloned()
    }
}

/// Each class that a claim names is there.
fn check_classes(claim: &ResourceClaim, devices: &Devices) -> Result<(), Refusal> {
    for request in requests(claim) {
        let exactly = request.exactly.iter().map(|one| (request.name.clone(), &one.device_class_name));
        let others = request.first_available.iter().flatten();
        let others = others.map(|one| (format!("{}/{}", request.name, one.name), &one.device_class_name));
        for (name, class) in exactly.chain(others) {
            if devices.class(class).is_none() {
                let why = format!("request {name}: device class {class} does not exist");
                return Err(Refusal::lasting(why));
            }
        }
    }
    Ok(())
}

/// Whether the claim's devices can be reached from the Node.
fn reaches(claim: &ResourceClaim, node: &NodeInfo) -> bool {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let selector = allocation.and_then(|allocation| allocation.node_selector.as_ref());
    selector.is_none_or(|selector| placement::selects(selector, Target::from(&node.node.metadata)))
}

pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    candidate.claims.refused.is_some() || !candidate.claims.is_empty()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let state = &candidate.claims;
    if state.refused.is_some() {
        return state.refused.clone();
    }
    if state.claims.iter().any(|claim| !reaches(claim, node)) {
        return Some(Refusal::lasting("resourceclaim not available on the node"));
    }
    if state.pending.is_empty() {
        return None;
    }
    match settle(state, candidate.devices, node) {
        Ok(_) => None,
        Err(Refused::Here(why)) => Some(Refusal::lasting(why)),
        Err(Refused::Everywhere(error)) => Some(Refusal::fatal(error.to_string())),
    }
}

/// Whether it makes a difference which of a request's alternatives a Node has.
pub(super) fn prefers(candidate: &Candidate<'_>) -> bool {
    let has_alternatives =
        |claim: &Arc<ResourceClaim>| requests(claim).any(|request| request.first_available.is_some());
    candidate.claims.pending.iter().any(has_alternatives)
}

/// The earlier an alternative stands that the Node has, the better. Source: `computeScore`.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let state = &candidate.claims;
    let Ok(allocations) = settle(state, candidate.devices, node) else { return 0 };
    let of = |(claim, allocation): (&Arc<ResourceClaim>, &AllocationResult)| -> i64 {
        let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        let given: BTreeSet<&str> = results.map(|result| result.request.as_str()).collect();
        let alternatives = requests(claim).flat_map(|request| {
            let names = request.first_available.iter().flatten();
            names
                .zip((0..=ALTERNATIVES_MAX).rev())
                .map(|(one, worth)| (format!("{}/{}", request.name, one.name), worth))
        });
        alternatives.filter(|(name, _)| given.contains(name.as_str())).map(|(_, worth)| worth).sum()
    };
    state.pending.iter().zip(&allocations).map(of).sum()
}

fn requests(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequest> {
    claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten())
}

fn settle(state: &State, devices: &Devices, node: &NodeInfo) -> Result<Vec<AllocationResult>, Refused> {
    allocate(devices, &state.taken, &state.pending, &node.node)
}

/// What has to be written to claims so that the Pod finds its devices on the Node.
pub(super) fn pod_claims(state: &State, pod: &Pod, devices: &Devices, node: &NodeInfo) -> PodClaims {
    let mut allocations = match state.pending.is_empty() {
        true => Vec::new(),
        // The filter has found them before.
        false => settle(state, devices, node).unwrap_or_default(),
    }
    .into_iter();
    let mut pod_claims = PodClaims::default();
    for claim in &state.claims {
        let allocation = if is_allocated(claim) { None } else { allocations.next() };
        if !is_reserved_for(pod, claim) {
            pod_claims.claims.push((claim.clone(), allocation));
        }
    }
    pod_claims
}
