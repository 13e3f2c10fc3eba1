//! The mounts that a container sees beside its root file system.

use std::path::Path;

use cri::v1::{self, MountPropagation};
use serde_json::{Map, Value, json};

use super::{Input, dev};
use crate::cgroup_view;
use crate::refusal::Refusal;

/// The file systems that every container has.
fn defaults(input: &Input<'_>) -> Vec<Value> {
    let sys = if super::security_context(input.config).privileged { "rw" } else { "ro" };
    let mut mounts = vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", sys]),
    ];
    if input.is_cgroup_v2 {
        mounts.push(mount(
            cgroup_view::PLACE,
            "cgroup",
            "cgroup",
            &["nosuid", "noexec", "nodev", "relatime", sys],
        ));
    }
    if has_cgroup_view(input) {
        // Made read-only when what is below is mounted ([`read_only_paths`]).
        let options = ["nosuid", "noexec", "nodev", "mode=755", "size=64k"];
        mounts.push(mount(cgroup_view::PLACE, "tmpfs", "tmpfs", &options));
        mounts.extend(input.cgroup_view.iter().map(|(place, source)| {
            let options = ["bind", "rprivate", "nosuid", "noexec", "nodev", "relatime", sys];
            mount(place, "bind", &source.to_string_lossy(), &options)
        }));
    }
    mounts
}

/// Whether the container's cgroups are mounts in a file system of ours.
fn has_cgroup_view(input: &Input<'_>) -> bool {
    let is_seen = |mount: &v1::Mount| same_path(&mount.container_path, cgroup_view::PLACE);
    !input.cgroup_view.is_empty() && !input.config.mounts.iter().any(is_seen)
}

/// Paths that nothing is written to: those that are asked for, and the folder of cgroups. A privileged container has none.
pub(super) fn read_only_paths<'a>(input: &Input<'a>, asked: &'a [String]) -> Vec<&'a str> {
    if super::security_context(input.config).privileged {
        return Vec::new();
    }
    let mut paths: Vec<&str> = asked.iter().map(String::as_str).collect();
    if has_cgroup_view(input) {
        paths.push(cgroup_view::PLACE);
        if input.is_external {
            // crun copies what is mounted below before that is read-only.
            paths.extend(input.cgroup_view.iter().map(|(place, _)| place.as_str()));
        }
    }
    paths
}

/// All mounts in the order in which they are made: shorter paths first, so that none hides another. And the document's
/// annotations that go with them.
pub(super) fn mounts(input: &Input<'_>) -> Result<(Vec<Value>, Map<String, Value>), Refusal> {
    let asked = |path: &str| input.config.mounts.iter().any(|mount| same_path(&mount.container_path, path));
    let is_dev_aside = !input.is_external && dev::is_mounted(input.config);
    let is_kept = |path: &str| !asked(path) || is_dev_aside && dev::is_at_or_below(path);
    let mut mounts: Vec<Value> = defaults(input)
        .into_iter()
        .filter(|mount| is_kept(mount["destination"].as_str().unwrap_or_default()))
        .collect();
    let own = mounts.len();
    let is_read_only = super::security_context(input.config).readonly_rootfs;
    for (path, source) in input.sandbox_files.iter().filter(|(path, _)| !asked(path)) {
        let source = source.to_string_lossy();
        let access = if is_read_only && path != "/dev/shm" { "ro" } else { "rw" };
        mounts.push(mount(path, "bind", &source, &["rbind", "rprivate", access]));
    }
    let mut wanted: Vec<&v1::Mount> = input.config.mounts.iter().collect();
    wanted.sort_by_key(|mount| mount.container_path.split('/').filter(|part| !part.is_empty()).count());
    for wanted in wanted {
        let more = input.edits.mount_options.get(&wanted.container_path);
        mounts.push(bind(wanted, more.map(Vec::as_slice).unwrap_or_default())?);
    }
    for device in input.devices.iter().filter(|device| !super::is_in_dev(device)) {
        let access = if device.access.contains('w') { "rw" } else { "ro" };
        let source = device.source.to_string_lossy();
        mounts.push(mount(&device.path, "bind", &source, &["bind", "rprivate", access]));
    }
    let mut annotations = Map::new();
    if is_dev_aside {
        let place = |mount: &Value| mount["destination"].as_str().unwrap_or_default().to_owned();
        let (_, asked) = mounts.split_at_mut(own);
        let mut aside: Vec<&mut Value> =
            asked.iter_mut().filter(|mount| dev::is_at_or_below(&place(mount))).collect();
        aside.sort_by_key(|mount| Path::new(&place(mount)).components().count());
        annotations = dev::set_aside(aside.into_iter());
    }
    Ok((mounts, annotations))
}

pub(super) fn bind(wanted: &v1::Mount, more: &[String]) -> Result<Value, Refusal> {
    let path = &wanted.container_path;
    let refused = |why: String| Err(Refusal::Invalid(why));
    if !path.starts_with('/') {
        return refused(format!("mount path {path:?} must be absolute"));
    }
    if wanted.host_path.is_empty() {
        return refused(format!("mount at {path} has no source on the host"));
    }
    if wanted.recursive_read_only && !wanted.readonly {
        return refused(format!("mount at {path}: recursive_read_only must come with readonly"));
    }
    if wanted.recursive_read_only && wanted.propagation() != MountPropagation::PropagationPrivate {
        return refused(format!("mount at {path}: recursive_read_only must come with private propagation"));
    }
    let propagation = match wanted.propagation() {
        MountPropagation::PropagationPrivate => "rprivate",
        MountPropagation::PropagationHostToContainer => "rslave",
        MountPropagation::PropagationBidirectional => "rshared",
    };
    let access = match (wanted.readonly, wanted.recursive_read_only) {
        (_, true) => "rro",
        (true, false) => "ro",
        (false, false) => "rw",
    };
    let mut options = vec!["rbind", propagation, access];
    if wanted.image.as_ref().is_some_and(|image| !image.image.is_empty()) {
        // Source: `ImageVolumeSource`, core/v1. What the source's mount has of this does not count for the next.
        options.extend(["nosuid", "nodev", "noexec"]);
    }
    options.extend(more.iter().map(String::as_str));
    Ok(mount(path, "bind", &wanted.host_path, &options))
}

/// Mounts reach a container, or the host from it, only if the root does not hold them back. Where several kinds are
/// asked for, the shim sees to each mount ([`crate::shim`]): libcontainer gives all of them the root's.
pub(super) fn rootfs_propagation(config: &v1::ContainerConfig) -> &'static str {
    let wanted = |propagation| config.mounts.iter().any(|it| it.propagation() == propagation);
    if wanted(MountPropagation::PropagationBidirectional) {
        return "shared";
    }
    if wanted(MountPropagation::PropagationHostToContainer) { "slave" } else { "private" }
}

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Value {
    json!({ "destination": destination, "type": kind, "source": source, "options": options })
}

fn same_path(a: &str, b: &str) -> bool {
    a.trim_end_matches('/') == b.trim_end_matches('/')
}
