//! Why Pods had to go, written beside what they have: what one kubelet has begun to end, the next one ends for the same
//! reason, and does not run again.
//!
//! Upstream's keeps that in memory and writes `Failed` when the containers have ended; a restart in between undoes it.
//! As upstream's, static Pods begin anew with the kubelet. Pods that are not taken are asked about again.

use crate::config::Config;
use crate::pod::snapshot::{Ending, PodSnapshot};

/// In the Pod's directory.
const FILE: &str = "ending.json";

/// Before anything of the Pod ends. A failure is told and no more. Writes one small file.
pub(crate) fn keep(config: &Config, snapshot: &PodSnapshot, ending: &Ending) {
    if ending.is_rejection || snapshot.is_static() {
        return;
    }
    let pod_dir = config.pod_dir(snapshot.uid());
    if let Err(error) = std::fs::create_dir_all(&pod_dir) {
        tracing::warn!(%error, path = %pod_dir.display(), "why a pod goes was not written");
        return;
    }
    crate::checkpoint::save(&pod_dir.join(FILE), ending);
}

/// What an earlier kubelet has written of a Pod that is not over. Reads one small file.
pub(crate) fn of(config: &Config, snapshot: &PodSnapshot) -> Option<Ending> {
    let is_over = matches!(snapshot.recorded_phase(), "Succeeded" | "Failed");
    let path = config.pod_dir(snapshot.uid()).join(FILE);
    (!is_over && !snapshot.is_static()).then(|| crate::checkpoint::load(&path)).flatten()
}
