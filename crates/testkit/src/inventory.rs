//! What a cluster has on this machine at a moment, kind by kind, and what of it is too much.
//!
//! Looked at from outside, by `/proc`, `/sys` and the kernel's own lists: a thing of the cluster is one that lies in its
//! folder, names its folder, runs in its cgroups or is in its network namespace. [`leaks`] is pure: what is there
//! afterwards and was not before. Nothing here knows how knarr names anything, but for where it may write as it likes.

pub(crate) mod kernel;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use sys::netns::NetNs;

use crate::leftovers::{cgroups_of, names_elsewhere, processes};

/// A kind of thing that can be left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A process that names the folder or is in one of the cgroups.
    Process,
    /// Something mounted below the folder.
    Mount,
    /// A network namespace that a process is in.
    NetworkNamespace,
    /// A network interface.
    Link,
    /// An entry of the routing table.
    Route,
    /// A folder of a cgroup hierarchy.
    Cgroup,
    /// A table, chain, rule, set or element of nftables.
    Rule,
    /// An address that is reserved.
    Lease,
    /// A socket in the folder.
    Socket,
    /// A loop device whose file is in the folder.
    LoopDevice,
    /// Any other file, link or folder.
    File,
}

/// Things by kind and name, with how many there are of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(BTreeMap<(Kind, String), usize>);

impl Inventory {
    /// Adds one.
    pub fn add(&mut self, kind: Kind, name: impl Into<String>) {
        *self.0.entry((kind, name.into())).or_default() += 1;
    }

    /// The number of things of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.0.iter().filter(|((of, _), _)| *of == kind).map(|(_, count)| count).sum()
    }
}

/// The things that are there `after` and were not `before`: a line each.
#[must_use]
pub fn leaks(before: &Inventory, after: &Inventory) -> Vec<String> {
    let more = after.0.iter().filter_map(|((kind, name), count)| {
        let known = before.0.get(&(*kind, name.clone())).copied().unwrap_or_default();
        let many = count.checked_sub(known).filter(|many| *many > 0)?;
        Some(if many == 1 { format!("{kind:?} {name}") } else { format!("{kind:?} {name}, {many} times") })
    });
    more.collect()
}

/// Whose things are looked for.
#[derive(Debug)]
pub struct Inspector<'a> {
    /// The cluster's folder.
    pub data_dir: &'a Path,
    /// The network namespace that stands for its host.
    pub namespace: &'a NetNs,
    /// The paths that it may write as it likes: their beginnings, below the folder.
    pub ignored: &'a [&'a str],
    /// The things that were seen so far.
    pub seen: &'a mut Seen,
}

/// The things of a cluster that are found only by who has seen them while the cluster had them.
#[derive(Debug, Default)]
pub struct Seen {
    /// The roots of its cgroups, which outlive what is in them.
    pub(crate) cgroups: BTreeSet<PathBuf>,
    /// Where beside its folder its network namespaces were mounted.
    pub(crate) names: BTreeSet<PathBuf>,
}

impl Inspector<'_> {
    /// Everything that the cluster has now.
    ///
    /// # Errors
    /// If the machine cannot be asked.
    pub fn look(&mut self) -> Result<Inventory> {
        let mut found = Inventory::default();
        let mut pids = self.note();
        // What runs in one hierarchy's cgroup shows another's, in which only containers are.
        for root in self.seen.cgroups.clone() {
            kernel::cgroups(&root, &mut Inventory::default(), &mut pids);
        }
        self.note_cgroups(&pids);
        self.note_namesakes()?;
        for root in self.seen.cgroups.iter() {
            kernel::cgroups(root, &mut found, &mut pids);
        }
        kernel::of_processes(&pids, self.namespace, &mut found)?;
        kernel::of_host(self.data_dir, self.namespace, &mut found)?;
        for name in self.seen.names.iter().filter(|path| path.exists()) {
            found.add(Kind::Mount, name.display().to_string());
        }
        self.files(self.data_dir, &mut found)?;
        Ok(found)
    }

    /// Notes the cgroups of the processes that name the folder; returns those processes.
    pub(crate) fn note(&mut self) -> BTreeSet<String> {
        let pids: BTreeSet<String> = processes(self.data_dir).map(|(pid, _)| pid).collect();
        self.note_cgroups(&pids);
        self.seen.names.extend(names_elsewhere(self.data_dir));
        pids
    }

    /// Notes the first folder of each process's cgroup, in each hierarchy in which that is not our own as well.
    fn note_cgroups(&mut self, pids: &BTreeSet<String>) {
        let own: BTreeSet<PathBuf> = cgroups_of("self").filter_map(|path| root_of(&path)).collect();
        for pid in pids {
            let roots = cgroups_of(pid).filter_map(|path| root_of(&path));
            self.seen.cgroups.extend(roots.filter(|root| !own.contains(root)));
        }
    }

    /// Notes the noted folders' namesakes in every other hierarchy: there may be some in which nothing runs any more, or
    /// ever ran.
    fn note_namesakes(&mut self) -> Result<()> {
        let own: BTreeSet<PathBuf> = cgroups_of("self").filter_map(|path| root_of(&path)).collect();
        let names: BTreeSet<_> = self.seen.cgroups.iter().filter_map(|root| root.file_name()).collect();
        let mounts = sys::mount::mounts()?;
        let hierarchies = mounts.iter().filter(|it| matches!(it.fs_type.as_str(), "cgroup" | "cgroup2"));
        let namesakes = hierarchies.flat_map(|it| names.iter().map(|name| it.target.join(name)));
        let found: Vec<PathBuf> = namesakes.filter(|path| path.is_dir() && !own.contains(path)).collect();
        self.seen.cgroups.extend(found);
        Ok(())
    }

    /// What lies below `folder`, apart from what is mounted there.
    fn files(&self, folder: &Path, found: &mut Inventory) -> Result<()> {
        let mounted: BTreeSet<PathBuf> =
            sys::mount::mounts()?.into_iter().map(|mount| mount.target).collect();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            // Whatever goes away while it is looked at is not there.
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let (Ok(kind), Ok(relative)) = (entry.file_type(), path.strip_prefix(self.data_dir)) else {
                    continue;
                };
                let name = relative.to_string_lossy().into_owned();
                if self.ignored.iter().any(|ignored| name.starts_with(ignored)) {
                    continue;
                }
                found.add(kind_of(kind, &path), name);
                if kind.is_dir() && !mounted.contains(&path) {
                    folders.push(path);
                }
            }
        }
        Ok(())
    }
}

/// A file whose name is an address is a reservation, as upstream's `host-local` has it.
fn kind_of(kind: fs::FileType, path: &Path) -> Kind {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match kind {
        _ if kind.is_socket() => Kind::Socket,
        _ if kind.is_file() && name.parse::<std::net::IpAddr>().is_ok() => Kind::Lease,
        _ => Kind::File,
    }
}

/// `/sys/fs/cgroup/memory/a` of `/sys/fs/cgroup/memory/a/b`; none of a hierarchy's own root.
fn root_of(cgroup: &str) -> Option<PathBuf> {
    let hierarchy = kernel::hierarchy(Path::new(cgroup))?;
    let first = Path::new(cgroup).strip_prefix(&hierarchy).ok()?.components().next()?;
    Some(hierarchy.join(first))
}

#[cfg(test)]
mod tests;
