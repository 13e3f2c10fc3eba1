//! What a cluster could leave behind on its host, as text, so that before and after can be compared.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use sys::nftables::TableFamily;

use crate::layout::Layout;

/// One line for each thing found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leftovers(BTreeSet<String>);

impl Leftovers {
    /// Looks at processes, mounts, links, nft tables, cgroups, network namespaces and files of the cluster.
    pub(crate) fn look(layout: &Layout) -> Result<Self> {
        let root = layout.root().to_string_lossy().into_owned();
        let id = layout.cluster_id();
        let mut found = BTreeSet::new();
        found.extend(processes(&root, &id));
        // Network namespaces are bind mounts below the data directory, and under names that others see.
        let is_name = |target: &Path| {
            let name = target.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(&format!("cni-knarr-{id}-")) || name.starts_with(&format!("knarr-{id}-"))
        };
        for mount in sys::mount::mounts()? {
            if mount.target.starts_with(layout.root()) || is_name(&mount.target) {
                found.insert(format!("mount {}", mount.target.display()));
            }
        }
        for link in sys::netlink::Route::open()?.links()? {
            found.insert(format!("link {}", link.name));
        }
        for family in [TableFamily::Ipv4, TableFamily::Ipv6] {
            let tables = sys::nftables::table_names_of(family)?;
            found.extend(tables.into_iter().map(|table| format!("nft table {table}")));
        }
        found.extend(cgroups(&id));
        if layout.root().exists() {
            found.insert(format!("files in {root}"));
        }
        Ok(Self(found))
    }

    /// What is here and was not there `before`.
    pub(crate) fn beyond(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

/// Processes that name the data directory, or live in a cgroup of the cluster; not ourselves.
fn processes(root: &str, id: &str) -> Vec<String> {
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let cgroup = String::from_utf8_lossy(&read("cgroup")).into_owned();
        if pid != own && (command.contains(root) || cgroup.contains(&format!("knarr-{id}"))) {
            found.push(format!("process {pid} ({})", command.trim()));
        }
    }
    found
}

fn cgroups(id: &str) -> Vec<String> {
    let mut found = Vec::new();
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        let path = hierarchy.path().join(format!("knarr-{id}"));
        if path.exists() {
            found.push(format!("cgroup {}", path.display()));
        }
    }
    found
}
