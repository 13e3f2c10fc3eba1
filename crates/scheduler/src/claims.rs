//! Writes down which devices a Pod's claims have, and that the Pod uses them, before the Pod is bound.
//!
//! Source: `PreBind`, `Unreserve` of the DynamicResources plugin of kube-scheduler.

use std::sync::Arc;

use controller::pod::Pod;
use controller::resource_claim::{self, FINALIZER, is_allocated};
use controller::{Action, ActionExecutor, EventType, Patch, request};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use serde_json::json;

use crate::binding_error::{BindingError, ReserveError};
use crate::devices::{PodClaims, claim_key};
use crate::profile::event;

/// How often a write is tried that others have overtaken. Source: client-go's `DefaultRetry`.
pub(crate) const TRIES_MAX: usize = 5;

/// Writes the Pod's claims; `written` has the claims as the API server has answered them, also after a failure.
///
/// # Errors
/// Why not all are written; the Pod has been told by an event.
pub(crate) async fn reserve(
    client: &kube::Client,
    executor: &ActionExecutor,
    (pod, pod_claims): (&Pod, &PodClaims),
    written: &mut Vec<Arc<ResourceClaim>>,
) -> Result<(), BindingError> {
    for (claim, allocation) in &pod_claims.claims {
        match bind_one(client, pod, claim, allocation.as_ref()).await {
            Ok(claim) => written.push(Arc::new(claim)),
            Err(error) => {
                let error = BindingError::Devices(error);
                let told = event(pod, pod, EventType::Warning, "FailedScheduling", error.to_string());
                executor.carry_out(told).await?;
                return Err(error);
            }
        }
    }
    Ok(())
}

async fn bind_one(
    client: &kube::Client,
    pod: &Pod,
    claim: &Arc<ResourceClaim>,
    allocation: Option<&AllocationResult>,
) -> Result<ResourceClaim, ReserveError> {
    let key = claim_key(claim);
    let mut claim = (**claim).clone();
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt(client, pod, claim, allocation).await {
            Ok(claim) => return Ok(claim),
            Err(error) if error.is_conflict() && tries < TRIES_MAX => {}
            Err(error) => return Err(error),
        }
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let newest = request::get(client, namespace, name).await;
        claim = newest.map_err(|source| ReserveError::Read { key: key.clone(), source })?;
    }
}

async fn attempt(
    client: &kube::Client,
    pod: &Pod,
    mut claim: ResourceClaim,
    allocation: Option<&AllocationResult>,
) -> Result<ResourceClaim, ReserveError> {
    let key = claim_key(&claim);
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(ReserveError::Deleted(key));
    }
    let mut what = format!("add reservation to claim {key}");
    if let Some(allocation) = allocation {
        if is_allocated(&claim) {
            return Err(ReserveError::Allocated(key));
        }
        let finalizers = claim.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|one| one == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
            claim = send(client, Action::update(&claim), &format!("add finalizer to claim {key}")).await?;
        }
        claim.status.get_or_insert_default().allocation = Some(allocation.clone());
        what = format!("add allocation and reservation to claim {key}");
    }
    resource_claim::reserve(&mut claim, pod);
    send(client, Action::update_status(&claim), &what).await
}

async fn send(client: &kube::Client, action: Action, what: &str) -> Result<ResourceClaim, ReserveError> {
    let Action::Request(request) = action else {
        return Err(ReserveError::Nothing(what.to_owned()));
    };
    request::send(client, &request)
        .await
        .map_err(|source| ReserveError::Write { what: what.to_owned(), source })
}

/// The Pod does not use these claims after all; they keep their devices for whoever is next.
pub(crate) async fn unreserve(executor: &ActionExecutor, pod: &Pod, claims: &[Arc<ResourceClaim>]) {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    for claim in claims {
        let meta = &claim.metadata;
        let patch = Patch::Strategic(json!({
            "metadata": {"uid": meta.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": uid}]},
        }));
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let patched = executor.carry_out(Action::patch_status::<ResourceClaim>(namespace, name, patch)).await;
        if let Err(error) = patched {
            tracing::info!(%error, claim = claim_key(claim), "a claim stays reserved");
        }
    }
}

/// Takes the devices from a claim that holds its Pod where it cannot run.
pub(crate) fn give_back(claim: &ResourceClaim) -> Action {
    let mut new = claim.clone();
    let status = new.status.get_or_insert_default();
    status.reserved_for = None;
    status.allocation = None;
    Action::update_status(&new)
}
