//! Takes back what a Pod has on the node: containers, sandboxes, mounts, directories, logs, cgroups; of one that is over but
//! still in the API, volumes and cgroup.

use std::path::Path;
use std::time::Instant;

use cri::{CriError, v1};
use k8s_openapi::api::core::v1::Pod;

use crate::kubelet::Kubelet;
use crate::kubelet::step_error::StepError;
use crate::metrics::Measure;
use crate::pod::identity::identity;
use crate::pod::qos;
use crate::volumes;

/// What of a Pod's directory is of its volumes.
const OF_VOLUMES: [&str; 3] = ["volume-subpaths", "volumes", "volumeDevices"];

/// Removes everything; what is gone already counts as removed.
///
/// # Errors
/// What is left.
pub(crate) async fn clean(
    context: &Kubelet,
    pod: &Pod,
    containers: &[String],
    sandboxes: &[String],
) -> Result<(), StepError> {
    for id in containers {
        let request = v1::RemoveContainerRequest { container_id: id.clone() };
        gone(context.runtime.remove_container(request).await)?;
    }
    for id in sandboxes {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.clone() };
        gone(context.runtime.stop_pod_sandbox(request).await)?;
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.clone() };
        gone(context.runtime.remove_pod_sandbox(request).await)?;
    }
    let (name, namespace, uid) = identity(pod);
    let pod_dir = context.config.pod_dir(&uid);
    let log_dir = context.config.log_dir(&namespace, &name, &uid);
    context.resources.dra.unprepare(&uid).await?;
    release(context, pod).await?;
    let cleaned = tokio::task::spawn_blocking(move || {
        volumes::tear_down(&pod_dir)?;
        volumes::tear_down(&log_dir)
    });
    Ok(cleaned.await??)
}

/// Takes back the volumes and the cgroup of a Pod of which nothing runs any more; what its containers have said stays.
///
/// # Errors
/// What is left; to be tried again.
pub(crate) async fn release(context: &Kubelet, pod: &Pod) -> Result<(), StepError> {
    let pod_dir = context.config.pod_dir(&identity(pod).2);
    let cgroup = qos::cgroup_parent(&context.config.cgroup_root, pod);
    volumes::persistent::tear_down(&context.volumes, &pod_dir).await?;
    let released = tokio::task::spawn_blocking(move || {
        for folder in OF_VOLUMES.map(|folder| pod_dir.join(folder)).iter().filter(|folder| folder.exists()) {
            volumes::tear_down(folder)?;
        }
        let start = Instant::now();
        remove_cgroup(Path::new("/sys/fs/cgroup"), &cgroup);
        Ok::<_, StepError>(start.elapsed())
    });
    let took = released.await??;
    context.metrics.measure(Measure::CgroupManager, &["destroy"], took);
    Ok(())
}

fn gone<T>(result: Result<T, CriError>) -> Result<(), StepError> {
    match result {
        Ok(_) | Err(CriError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes the Pod's own cgroup where the runtime left it, in every hierarchy. An empty one costs nothing and
/// one in use cannot be removed, so failures are only noted.
fn remove_cgroup(root: &Path, cgroup: &str) {
    let relative = cgroup.trim_start_matches('/');
    let hierarchies = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([root.to_path_buf()]) {
        let path = hierarchy.join(relative);
        if path.is_dir()
            && let Err(error) = std::fs::remove_dir(&path)
        {
            tracing::debug!(path = %path.display(), %error, "a pod's cgroup was not removed");
        }
    }
}
