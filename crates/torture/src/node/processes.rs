//! The processes of Pods as the host sees them: the proof that no container was started anew.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;

/// Of each Pod, by its name: process ids, and the ticks at which they were started.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Processes(BTreeMap<String, BTreeSet<(u32, String)>>);

impl Processes {
    pub(super) fn of(pods: &[Pod]) -> Self {
        let of = |pod: &Pod| {
            let name = pod.metadata.name.clone().unwrap_or_default();
            (name, processes(pod.metadata.uid.as_deref().unwrap_or_default()))
        };
        Self(pods.iter().map(of).collect())
    }

    pub(super) fn are_all_there(&self) -> bool {
        self.0.values().all(|processes| !processes.is_empty())
    }

    /// What is not the same later.
    pub(super) fn differences(&self, later: &Self) -> Vec<String> {
        let differs = self.0.iter().filter(|(name, before)| later.0.get(*name) != Some(before));
        differs
            .map(|(name, before)| {
                format!("{name}: the processes were {before:?} and are {:?}", later.0.get(name))
            })
            .collect()
    }
}

/// Processes in the Pod's cgroup, and when they were started. What a probe runs is none that stays.
fn processes(pod_uid: &str) -> BTreeSet<(u32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).ok();
        let command = read("cmdline")?;
        // The shim is knarr's own, and may be killed.
        let is_of_pod = read("cgroup")?.contains(pod_uid) && !command.contains("shim");
        let stays = command.contains("sleep") || command.contains("hello");
        // Source: proc_pid_stat(5); the command, in parentheses, may hold blanks.
        let stat = read("stat")?;
        let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
        (is_of_pod && stays).then_some((pid, started))
    });
    found.collect()
}
