//! Looks after what drivers have on this node: volumes that have grown, drivers that want to be asked again, how many
//! volumes there may be, and how much room is left.
//!
//! The Node authorizer lets a kubelet read the claims of its Pods but not watch them, so that they are looked at every
//! `syncFrequency`, as upstream does, and only those whose driver can have something to do about it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::Informer;
use csi::v1;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::CSIDriver;

use super::csi::registration;
use crate::volumes::Volumes;
use crate::volumes::error::VolumeError;
use crate::volumes::persistent;

/// Pods that are looked after at the same time.
const PODS_MAX: usize = 8;

/// Works until the tasks end.
pub(crate) async fn run(volumes: Arc<Volumes>, pods: Informer<Pod>) {
    pods.synced().await;
    if let Err(error) = volumes.csi.correct_in_use(&volumes).await {
        tracing::info!(%error, "the node did not say which volumes are in use");
    }
    let mut counted: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        futures::stream::iter(pods.list())
            .for_each_concurrent(PODS_MAX, |pod| keep_up(volumes.clone(), pod))
            .await;
        // Of a Pod that went while its volume was being attached, somebody may have waited until now.
        if let Err(error) = persistent::settle_in_use(&volumes).await {
            tracing::info!(%error, "the node did not say which volumes are not in use any more");
        }
        report_room(&volumes).await;
        count_volumes(&volumes, &mut counted).await;
        let next = counted.values().min().map(|due| due.saturating_duration_since(Instant::now()));
        let pause = next.unwrap_or(Duration::MAX).min(volumes.config.sync_frequency);
        tokio::select! {
            () = volumes.csi.upkeep.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn keep_up(volumes: Arc<Volumes>, pod: Arc<Pod>) {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_over = matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some();
    if is_over {
        return;
    }
    if let Err(error) = persistent::keep_up(&volumes, &pod).await {
        tracing::debug!(%error, pod = pod.metadata.name, "a volume of a pod was not kept up");
    }
}

/// How much room there is for volumes that stay on this node.
async fn report_room(volumes: &Volumes) {
    let name = csi::driver::NAME;
    let Ok(driver) = volumes.csi.get(name) else { return };
    let reported = async {
        let asked = driver.client.get_capacity(v1::GetCapacityRequest::default()).await;
        registration::update_room(volumes, name, asked?.available_capacity).await?;
        Ok::<_, VolumeError>(())
    };
    if let Err(error) = reported.await {
        tracing::info!(%error, "the node did not say how much room it has for volumes");
    }
}

/// How many volumes of a driver there may be, for those whose objects say that this changes.
/// Source: `CSIDriverSpec.nodeAllocatableUpdatePeriodSeconds`.
async fn count_volumes(volumes: &Volumes, counted: &mut BTreeMap<String, Instant>) {
    let objects = volumes.informers.informer::<CSIDriver>();
    let mut still = BTreeMap::new();
    for (name, driver) in volumes.csi.all() {
        let object = objects.get(&name);
        let period = object.and_then(|object| object.spec.node_allocatable_update_period_seconds);
        let Some(period) = period.and_then(|seconds| u64::try_from(seconds).ok()) else { continue };
        if let Some(due) = counted.get(&name).filter(|due| **due > Instant::now()) {
            still.insert(name, *due);
            continue;
        }
        let told = async {
            let info = driver.client.node_get_info(v1::NodeGetInfoRequest {}).await;
            registration::update_count(volumes, &name, info?.max_volumes_per_node).await?;
            Ok::<_, VolumeError>(())
        };
        if let Err(error) = told.await {
            tracing::info!(%error, driver = name, "the node did not say how many volumes it may have");
        }
        still.insert(name, Instant::now() + Duration::from_secs(period.max(1)));
    }
    *counted = still;
}
