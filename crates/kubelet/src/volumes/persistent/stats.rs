//! What volumes of claims hold, asked of their drivers or of the file system, when somebody asks and then for a minute.
//!
//! Source: `pkg/kubelet/server/stats/volume_stat_calculator.go`, `pkg/volume/csi/csi_metrics.go`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::volume::claim_of;
use csi::v1::{self, node_service_capability::rpc, volume_usage::Unit};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Volume};

use super::is_persistent;
use super::prepared::{Prepared, find};
use crate::machine::file_system;
use crate::metrics::Measure;
use crate::metrics::VolumeStats;
use crate::volumes::Volumes;

/// How long an answer is good for. Source: `volumeStatsAggPeriod`.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// How long a driver may think about one volume: who asks for all of them does not wait for one that hangs.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Drivers' calls at the same time.
const CALLS_MAX: usize = 8;

/// Of every volume of a claim or driver that is there for these Pods.
pub(crate) async fn of_pods(volumes: &Volumes, pods: &[Arc<Pod>]) -> Arc<Vec<VolumeStats>> {
    let mut known = volumes.csi.stats.lock().await;
    if let Some((at, stats)) = known.as_ref()
        && at.elapsed() < GOOD_FOR.min(volumes.config.sync_frequency)
    {
        return stats.clone();
    }
    let mut asked = Vec::new();
    for pod in pods {
        let pod_dir = volumes.config.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            if let Some(prepared) = find(&pod_dir, &volume.name).filter(|_| is_persistent(volume)) {
                asked.push(of_volume(volumes, named(pod, volume), prepared));
            }
        }
    }
    let found = futures::stream::iter(asked).buffered(CALLS_MAX).filter_map(std::future::ready);
    let stats = Arc::new(found.collect::<Vec<_>>().await);
    *known = Some((Instant::now(), stats.clone()));
    stats
}

fn named(pod: &Pod, volume: &Volume) -> VolumeStats {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    VolumeStats {
        pod_uid: pod.metadata.uid.clone().unwrap_or_default(),
        name: volume.name.clone(),
        claim: claim_of(pod, volume).map(|claim| (namespace, claim)),
        ..VolumeStats::default()
    }
}

/// Source: the `metric_source`s are `pkg/volume`'s.
async fn of_volume(volumes: &Volumes, named: VolumeStats, prepared: Prepared) -> Option<VolumeStats> {
    let (start, source) = (Instant::now(), prepared.driver.clone().unwrap_or_else(|| "statfs".to_owned()));
    let stats = look(volumes, named, prepared).await;
    if stats.is_some() {
        volumes.metrics.measure(Measure::VolumeLook, &[&source], start.elapsed());
    }
    stats
}

async fn look(volumes: &Volumes, named: VolumeStats, prepared: Prepared) -> Option<VolumeStats> {
    let Some(name) = &prepared.driver else { return of_path(named, prepared).await };
    let driver = volumes.csi.get(name).ok().filter(|driver| driver.can(rpc::Type::GetVolumeStats))?;
    let request = v1::NodeGetVolumeStatsRequest {
        volume_id: prepared.handle.clone(),
        volume_path: prepared.path.display().to_string(),
        staging_target_path: String::new(),
    };
    let answer = tokio::time::timeout(CALL_MAX, driver.client.node_get_volume_stats(request)).await;
    match answer {
        Ok(Ok(answer)) => {
            let tells = driver.can(rpc::Type::VolumeCondition);
            Some(of_answer(named, &answer, tells))
        }
        Ok(Err(error)) => {
            tracing::info!(%error, driver = name, volume = prepared.handle, "a driver does not say what a volume holds");
            None
        }
        Err(_) => {
            tracing::info!(
                driver = name,
                volume = prepared.handle,
                "a driver takes too long to say what a volume holds"
            );
            None
        }
    }
}

fn of_answer(mut stats: VolumeStats, answer: &v1::NodeGetVolumeStatsResponse, tells: bool) -> VolumeStats {
    let amount = |value: i64| u64::try_from(value).ok();
    for usage in &answer.usage {
        match usage.unit() {
            Unit::Bytes => {
                stats.capacity = amount(usage.total);
                stats.available = amount(usage.available);
                stats.used = amount(usage.used);
            }
            Unit::Inodes => {
                stats.inodes = amount(usage.total);
                stats.inodes_free = amount(usage.available);
                stats.inodes_used = amount(usage.used);
            }
            Unit::Unknown => {}
        }
    }
    stats.is_abnormal =
        answer.volume_condition.as_ref().filter(|_| tells).map(|condition| condition.abnormal);
    stats
}

/// Of a volume that is a mount of its own; what else is on the node's disk is not told apart.
async fn of_path(stats: VolumeStats, prepared: Prepared) -> Option<VolumeStats> {
    let look = move |path: &Path| file_system::file_system(path);
    let is_own = prepared.path.components().any(|part| part.as_os_str() == "volumes");
    if prepared.is_device || !is_own {
        return None;
    }
    let found = tokio::task::spawn_blocking(move || look(&prepared.path)).await.ok()??;
    Some(VolumeStats {
        capacity: Some(found.capacity),
        available: Some(found.available),
        used: Some(found.used),
        inodes: Some(found.inodes),
        inodes_free: Some(found.inodes_free),
        inodes_used: Some(found.inodes.saturating_sub(found.inodes_free)),
        ..stats
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drivers_words_are_kept_and_its_silence_too() {
        let bytes = v1::VolumeUsage { available: 6, total: 10, used: 4, unit: Unit::Bytes.into() };
        let answer = v1::NodeGetVolumeStatsResponse {
            usage: vec![bytes],
            volume_condition: Some(v1::VolumeCondition { abnormal: true, message: "lost".into() }),
        };
        let stats = of_answer(VolumeStats::default(), &answer, true);
        assert_eq!((stats.capacity, stats.available, stats.used), (Some(10), Some(6), Some(4)));
        assert_eq!((stats.inodes, stats.is_abnormal), (None, Some(true)));
        assert_eq!(of_answer(VolumeStats::default(), &answer, false).is_abnormal, None);
    }
}
