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

/// Those that no other of them has forked: a fork has its parent's command line until it runs something else.
pub(super) fn without_forks(pids: &[i32]) -> Vec<i32> {
    let is_fork = |pid: i32| {
        let parent = u32::try_from(pid).ok().and_then(|pid| stat(pid, 1)).and_then(|pid| pid.parse().ok());
        parent.is_some_and(|parent| pids.contains(&parent))
    };
    pids.iter().copied().filter(|pid| !is_fork(*pid)).collect()
}

/// A field of `/proc/PID/stat`, counted from the one after the command, which may hold blanks. Source: proc_pid_stat(5).
fn stat(pid: u32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(field).map(str::to_owned)
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
        let started = stat(pid, 19)?;
        (is_of_pod && stays).then_some((pid, started))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::process::Command;

    use super::*;

    #[test]
    fn a_fork_is_not_taken_for_its_parent() {
        let own = i32::try_from(std::process::id()).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(without_forks(&[pid, own]), [own]);
        assert_eq!(without_forks(&[pid]), [pid], "its parent is none of them");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
