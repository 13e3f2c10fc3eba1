//! Has a driver make a volume larger on this node, once its controller's side has done so, and tells the claim.
//!
//! When the volume is mounted, and while it is: whichever comes first. What cannot be is not asked for again until
//! somebody asks for another size. Source: `node_expander.go`, `csi_expander.go`; KEP-284, KEP-1790.

use std::path::Path;

use controller::EventType;
use controller::request::{self, ApiRequest, Patch};
use controller::volume::capacity;
use csi::v1::{self, node_service_capability::rpc};
use csi::{Code, Status};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::quantity::Quantity;
use serde_json::{Value, json};

use super::data::{self, Found};
use super::request::{Purpose, capability, secrets};
use super::resolve::Resolved;
use crate::volumes::Volumes;
use crate::volumes::csi::Driver;
use crate::volumes::error::{Specific, VolumeError};

/// The claim does not say how far its volume is.
#[derive(Debug, thiserror::Error)]
#[error("update the status of PVC {namespace}/{name}: {source}")]
struct ClaimNotPatched {
    namespace: String,
    name: String,
    source: Box<kube::Error>,
}

impl Specific for ClaimNotPatched {}

const IN_PROGRESS: &str = "NodeResizeInProgress";
const PENDING: &str = "NodeResizePending";
const INFEASIBLE: &str = "NodeResizeInfeasible";
const ERROR: &str = "NodeResizeError";
/// Conditions that are over when a volume is as large as it was to become. Source: `knownResizeConditions`.
const RESIZE_CONDITIONS: [&str; 4] =
    ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError"];

/// Whether the driver makes volumes larger on nodes.
pub(super) fn is_possible(driver: &Driver) -> bool {
    driver.can(rpc::Type::ExpandVolume)
}

/// Whether the claim waits for its volume to grow on a node.
fn is_wanted(claim: &PersistentVolumeClaim, size: Quantity) -> bool {
    let status = claim.status.as_ref();
    let known = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
    let known: Quantity = known.and_then(|text| text.0.parse().ok()).unwrap_or_default();
    state(claim) != INFEASIBLE && size > known
}

fn state(claim: &PersistentVolumeClaim) -> &str {
    let status = claim.status.as_ref();
    let state = status.and_then(|status| status.allocated_resource_statuses.as_ref()?.get("storage"));
    state.map(String::as_str).unwrap_or_default()
}

/// Has the volume take its new size, if it has one. `paths` are where it is published and where it is staged.
pub(super) async fn if_larger(
    volumes: &Volumes,
    pod: &Pod,
    resolved: &Resolved,
    source: &CSIPersistentVolumeSource,
    driver: &Driver,
    paths: (&Path, &Path),
) -> Result<(), VolumeError> {
    let (Some(claim), Some(volume)) = (&resolved.claim, &resolved.volume) else { return Ok(()) };
    let size = capacity(volume);
    if !is_possible(driver) || !is_wanted(claim, size) {
        return Ok(());
    }
    let name = &resolved.name;
    if resolved.read_only {
        let message = format!(
            "NodeExpandVolume.NodeExpandVolume failed for volume \"{name}\" : requested read-only file system"
        );
        volumes.event(pod, None, EventType::Warning, "FileSystemResizeFailed", message);
        return Ok(());
    }
    if state(claim) == PENDING {
        patch(volumes, claim, &json!({"allocatedResourceStatuses": {"storage": IN_PROGRESS}})).await?;
    }
    let is_staged = driver.can(rpc::Type::StageUnstageVolume);
    let request = v1::NodeExpandVolumeRequest {
        volume_id: source.volume_handle.clone(),
        volume_path: paths.0.display().to_string(),
        capacity_range: Some(v1::CapacityRange { required_bytes: size.value(), limit_bytes: 0 }),
        staging_target_path: if is_staged { paths.1.display().to_string() } else { String::new() },
        volume_capability: Some(capability(resolved, source, driver, None, None)),
        secrets: secrets(volumes, Purpose::Expand, source.node_expand_secret_ref.as_ref()).await?,
    };
    match driver.client.node_expand_volume(request).await {
        Ok(_) => {
            patch(volumes, claim, &finished(claim, volume)).await?;
            let message = format!("MountVolume.NodeExpandVolume succeeded for volume \"{name}\" ");
            volumes.event(pod, None, EventType::Normal, "FileSystemResizeSuccessful", message);
            Ok(())
        }
        Err(error) => {
            let failure = VolumeError::step("NodeExpandVolume.NodeExpandVolume", name)(error.clone());
            volumes.event(pod, None, EventType::Warning, "VolumeResizeFailed", failure.to_string());
            patch(volumes, claim, &failed(claim, &error, volumes.clock.now())).await?;
            // A Pod does not have to wait for what cannot be, nor for what cannot be while the volume is in use.
            if is_infeasible(&error) || error.code() == Code::FailedPrecondition {
                Ok(())
            } else {
                Err(failure)
            }
        }
    }
}

/// Source: `isInfeasibleError`, `pkg/volume/csi`.
fn is_infeasible(error: &Status) -> bool {
    matches!(error.code(), Code::InvalidArgument | Code::OutOfRange | Code::NotFound)
}

/// The claim's conditions without those of `types`, and with a new one.
fn conditions(
    claim: &PersistentVolumeClaim,
    types: &[&str],
    new: Option<PersistentVolumeClaimCondition>,
) -> Vec<PersistentVolumeClaimCondition> {
    let old = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    old.filter(|one| !types.contains(&one.type_.as_str())).cloned().chain(new).collect()
}

/// What the claim says when its volume is as large as it was to become. Source: `MarkFSResizeFinished`.
fn finished(claim: &PersistentVolumeClaim, volume: &k8s_openapi::api::core::v1::PersistentVolume) -> Value {
    let size = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    json!({
        "capacity": {"storage": size},
        "allocatedResourceStatuses": {"storage": null},
        "conditions": conditions(claim, &RESIZE_CONDITIONS, None),
    })
}

/// What the claim says when the driver has failed. Source: `MarkNodeExpansionInfeasible`.
fn failed(claim: &PersistentVolumeClaim, error: &Status, now: jiff::Timestamp) -> Value {
    let said = VolumeError::from(error.clone());
    let condition = PersistentVolumeClaimCondition {
        type_: ERROR.to_owned(),
        status: "True".to_owned(),
        message: Some(format!("failed to expand pvc with {said}")),
        last_transition_time: Some(Time(crate::pod::time::whole_second(now))),
        ..PersistentVolumeClaimCondition::default()
    };
    let mut status = json!({"conditions": conditions(claim, &[ERROR], Some(condition))});
    if is_infeasible(error) {
        status["allocatedResourceStatuses"] = json!({"storage": INFEASIBLE});
    }
    status
}

async fn patch(
    volumes: &Volumes,
    claim: &PersistentVolumeClaim,
    status: &Value,
) -> Result<(), ClaimNotPatched> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let patch = Patch::Merge(json!({"status": status}));
    let patch = ApiRequest::patch_status::<PersistentVolumeClaim>(namespace, name, patch);
    request::carry_out(&volumes.client, &patch).await.map_err(|source| ClaimNotPatched {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    })
}

/// Tells a driver that a volume, which its controller's side has made larger, is to be so wherever it is published.
///
/// # Errors
/// What the driver said.
pub(crate) async fn grow(volumes: &Volumes, name: &str, handle: &str, bytes: i64) -> Result<(), csi::Status> {
    let driver = volumes.csi.get(name)?;
    let turn = volumes.csi.turn(name, handle);
    let _turn = turn.lock().await;
    let mine = |found: &Found| found.data.driver_name == name && found.data.volume_handle == handle;
    for found in data::of_node(&volumes.config.root_dir).into_iter().filter(mine) {
        let staging = found.data.staging_path.map(|path| path.display().to_string());
        let request = v1::NodeExpandVolumeRequest {
            volume_id: handle.to_owned(),
            volume_path: found.data.target_path.display().to_string(),
            capacity_range: Some(v1::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            staging_target_path: staging.unwrap_or_default(),
            ..v1::NodeExpandVolumeRequest::default()
        };
        driver.client.node_expand_volume(request).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: &str, size: &str, expect: bool) {
        let status: Value = serde_json::from_str(status).unwrap();
        let claim: PersistentVolumeClaim =
            serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap();
        assert_eq!(is_wanted(&claim, size.parse().unwrap()), expect, "{status} {size}");
    }

    #[test]
    fn a_claim_waits_for_its_node_until_it_has_what_its_volume_has() {
        let capacity = r#""capacity": {"storage": "1Gi"}"#;
        check(&format!("{{{capacity}}}"), "1Gi", false);
        check(&format!("{{{capacity}}}"), "2Gi", true);
        check(
            &format!(r#"{{{capacity}, "allocatedResourceStatuses": {{"storage": "NodeResizePending"}}}}"#),
            "2Gi",
            true,
        );
        check(
            &format!(r#"{{{capacity}, "allocatedResourceStatuses": {{"storage": "NodeResizeInfeasible"}}}}"#),
            "2Gi",
            false,
        );
    }

    #[test]
    fn a_claim_that_is_not_looked_at_yet_has_nothing() {
        check("{}", "1Gi", true);
        check("{}", "0", false);
        check(r#"{"capacity": {"storage": "2Gi"}}"#, "1Gi", false);
        check(r#"{"capacity": {"storage": "1024Mi"}}"#, "1Gi", false);
        check(r#"{"capacity": {"cpu": "1"}}"#, "1Gi", true);
        check(r#"{"allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"}}"#, "1Gi", false);
        check(r#"{"allocatedResourceStatuses": {"other": "NodeResizeInfeasible"}}"#, "1Gi", true);
        check(r#"{"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}}"#, "1Gi", true);
    }

    fn claim(conditions: &[&str]) -> PersistentVolumeClaim {
        let conditions: Vec<Value> =
            conditions.iter().map(|one| json!({"type": one, "status": "True"})).collect();
        serde_json::from_value(json!({"metadata": {}, "status": {"conditions": conditions}})).unwrap()
    }

    fn types(status: &Value) -> Vec<&str> {
        status["conditions"].as_array().unwrap().iter().filter_map(|one| one["type"].as_str()).collect()
    }

    /// Source: `MarkFSResizeFinished` of upstream's `pkg/volume/util`.
    #[test]
    fn a_claim_that_has_grown_says_so_and_no_more_of_growing() {
        let volume = serde_json::from_value(json!({"spec": {"capacity": {"storage": "3Gi"}}})).unwrap();
        for (before, after) in [
            (&[][..], &[][..]),
            (&["Resizing"], &[]),
            (&["FileSystemResizePending"], &[]),
            (&["Resizing", "FileSystemResizePending", "ModifyingVolume"], &["ModifyingVolume"]),
            (&["example.com/other"], &["example.com/other"]),
        ] {
            let status = finished(&claim(before), &volume);
            assert_eq!(types(&status), after, "{before:?}");
            assert_eq!(status["capacity"]["storage"], "3Gi");
            assert_eq!(status["allocatedResourceStatuses"], json!({"storage": null}));
        }
    }

    /// Source: `isInfeasibleError` of upstream's `pkg/volume/csi`, `MarkNodeExpansionInfeasible` of its `pkg/volume/util`.
    #[test]
    fn a_claim_says_why_it_has_not_grown_and_whether_it_ever_will() {
        let now = jiff::Timestamp::from_second(100).unwrap();
        for (code, is_final) in [
            (Code::InvalidArgument, true),
            (Code::OutOfRange, true),
            (Code::NotFound, true),
            (Code::Unavailable, false),
            (Code::Internal, false),
            (Code::FailedPrecondition, false),
        ] {
            let status = failed(&claim(&["Resizing", ERROR]), &Status::new(code, "no room"), now);
            assert_eq!(types(&status), ["Resizing", ERROR], "{code:?}: one of each");
            let told = status["conditions"][1]["message"].as_str().unwrap();
            assert!(told.starts_with("failed to expand pvc with ") && told.ends_with("no room"), "{told}");
            assert_eq!(status["conditions"][1]["lastTransitionTime"], "1970-01-01T00:01:40Z");
            let state = status.get("allocatedResourceStatuses").map(|state| state["storage"].clone());
            assert_eq!(state, is_final.then(|| json!("NodeResizeInfeasible")), "{code:?}");
        }
    }
}
