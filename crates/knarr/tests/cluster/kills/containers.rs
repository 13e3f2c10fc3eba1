//! The processes of Pods as the host sees them: the proof that no container was started anew.

use std::collections::{BTreeMap, BTreeSet};

use super::client::Client;

/// Of each Pod, by its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Containers(BTreeMap<String, Container>);

#[derive(Debug, PartialEq, Eq)]
struct Container {
    id: String,
    restarts: i32,
    /// Process ids, and the ticks at which they were started.
    processes: BTreeSet<(u32, String)>,
}

impl Containers {
    /// Those of a Deployment.
    pub(crate) fn of(client: &Client, app: &'static str) -> Self {
        let pods = client.pods(app).into_iter().map(|pod| {
            let uid = pod.metadata.uid.unwrap_or_default();
            let status = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
            let [container] = status.as_slice() else { panic!("one container: {status:?}") };
            let id = container.container_id.clone().unwrap_or_default();
            let processes = processes(&uid);
            assert!(!processes.is_empty(), "no process of Pod {uid} is in a cgroup of its name");
            let container = Container { id, restarts: container.restart_count, processes };
            (pod.metadata.name.unwrap_or_default(), container)
        });
        Self(pods.collect())
    }
}

/// Processes in the Pod's cgroup, and when they were started.
fn processes(pod_uid: &str) -> BTreeSet<(u32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let found = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).ok();
        // The shim is knarr's own, and may be killed.
        let is_of_pod = read("cgroup")?.contains(pod_uid) && !read("cmdline")?.contains("shim");
        // Source: proc_pid_stat(5); the command, in parentheses, may hold blanks.
        let stat = read("stat")?;
        let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
        is_of_pod.then_some((pid, started))
    });
    found.collect()
}
