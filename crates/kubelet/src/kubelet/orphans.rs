//! What an earlier kubelet left of Pods of which neither the API nor the runtime knows any more: directories with
//! volumes, logs, cgroups. They were deleted while no kubelet ran, or by force while one died.
//!
//! Source: `HandlePodCleanups`, `cleanupOrphanedPodCgroups` of upstream's kubelet, and its log garbage collection.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use sys::cgroup::Cgroups;

use crate::kubelet::Kubelet;
use crate::metrics::Level;
use crate::node_resources::cgroups::kubepods;

/// How long the processes of a Pod that is gone may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// Takes back all that is of no Pod in `known`, beside everything else. What it is is found at once: before a Pod that
/// is new can have anything.
pub(crate) fn remove(context: &Arc<Kubelet>, known: &BTreeSet<String>) {
    // Drivers that are to take something back may come a little later.
    for path in entries(&context.config.root_dir.join("pods")) {
        if !known.contains(name_of(&path)) {
            context.tasks.spawn("orphaned directory", remove_directory(context.clone(), path));
        }
    }
    let is_orphaned = |path: &PathBuf| uid_of_logs(name_of(path)).is_some_and(|uid| !known.contains(uid));
    let logs: Vec<PathBuf> = entries(&context.config.pod_logs_dir).into_iter().filter(is_orphaned).collect();
    let cgroups = orphaned_cgroups(&kubepods(&context.config), known);
    context.tasks.spawn("orphaned logs and cgroups", async move {
        let removed = tokio::task::spawn_blocking(move || {
            logs.iter().for_each(|path| warn(crate::volumes::tear_down(path)));
            cgroups.iter().for_each(|path| warn(remove_cgroup(path)));
        });
        warn(removed.await);
    });
}

fn warn(removed: Result<(), impl std::fmt::Display>) {
    if let Err(error) = removed {
        tracing::warn!(%error, "something of a pod that is gone was not removed");
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Of `namespace_name_uid`.
fn uid_of_logs(name: &str) -> Option<&str> {
    let (rest, uid) = name.rsplit_once('_')?;
    rest.contains('_').then_some(uid)
}

/// Of `pod<uid>`.
fn uid_of_cgroup(name: &str) -> Option<&str> {
    name.strip_prefix("pod").filter(|uid| !uid.is_empty())
}

fn orphaned_cgroups(kubepods: &str, known: &BTreeSet<String>) -> Vec<String> {
    let Ok(cgroups) = Cgroups::detect() else { return Vec::new() };
    let classes = [kubepods.to_owned(), format!("{kubepods}/burstable"), format!("{kubepods}/besteffort")];
    let is_orphaned = |name: &String| uid_of_cgroup(name).is_some_and(|uid| !known.contains(uid));
    let of_class = |class: &String| {
        let orphans = cgroups.children(class).into_iter().filter(is_orphaned);
        orphans.map(|name| format!("{class}/{name}")).collect::<Vec<_>>()
    };
    classes.iter().flat_map(of_class).collect()
}

fn remove_cgroup(path: &str) -> sys::Result<()> {
    let cgroups = Cgroups::detect()?;
    cgroups.kill(path, KILL_TIMEOUT)?;
    cgroups.remove(path)
}

async fn remove_directory(context: Arc<Kubelet>, pod_dir: PathBuf) {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60), 0.1);
    let (metrics, mut has_failed) = (&context.metrics, false);
    loop {
        let removed = match crate::volumes::persistent::tear_down(&context.volumes, &pod_dir).await {
            Ok(()) => {
                let pod_dir = pod_dir.clone();
                let removing = tokio::task::spawn_blocking(move || crate::volumes::tear_down(&pod_dir));
                removing.await.unwrap_or_else(|error| Err(error.into()))
            }
            Err(error) => Err(error),
        };
        let Err(error) = removed else {
            metrics.step(Level::OrphanVolumes, &[], 1.0);
            if has_failed {
                metrics.step(Level::OrphanVolumesErrors, &[], -1.0);
            }
            return;
        };
        if !std::mem::replace(&mut has_failed, true) {
            metrics.step(Level::OrphanVolumesErrors, &[], 1.0);
        }
        tracing::warn!(%error, "a directory of a pod that is gone was not removed");
        tokio::time::sleep(backoff.next(&context.random)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_they_are() {
        assert_eq!(uid_of_logs("default_web-1_3f2a-77"), Some("3f2a-77"));
        assert_eq!(uid_of_logs("web_log"), None, "whatever else is there");
        assert_eq!(uid_of_cgroup("pod3f2a-77"), Some("3f2a-77"));
        assert_eq!(uid_of_cgroup("burstable"), None);
    }
}
