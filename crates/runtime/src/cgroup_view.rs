//! A container's view of its cgroups on a host with the first version: a folder with its own group of each controller.
//!
//! The second version is one file system, which every OCI runtime mounts. Of the first each makes something else, and
//! libcontainer nothing where a process namespace is shared; so it is made of bind mounts, which all make alike.

use std::path::PathBuf;

use sys::cgroup::Cgroups;

/// Where cgroups are seen.
pub(crate) const PLACE: &str = "/sys/fs/cgroup";

/// Where the cgroup at `path` is seen by the names of hierarchies and of controllers, and where it is. Nothing with the
/// second version.
pub(crate) fn of(cgroups: &Cgroups, path: &str) -> Vec<(String, PathBuf)> {
    let mut seen: Vec<(String, PathBuf)> = Vec::new();
    for group in cgroups.groups_of_v1(path) {
        // Controllers that share a hierarchy are found by their own names, too.
        for name in [group.name].into_iter().chain(group.controllers) {
            let place = format!("{PLACE}/{name}");
            if seen.iter().all(|(known, _)| *known != place) {
                seen.push((place, group.dir.clone()));
            }
        }
    }
    seen
}
