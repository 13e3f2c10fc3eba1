//! Volumes without a driver: of the node itself, and NFS where the host has the tool for it.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{HostPathVolumeSource, LocalVolumeSource, NFSVolumeSource, Pod};
use sys::mount::BindOptions;

use super::format::{self, ToolError};
use super::resolve::Resolved;
use super::{Prepared, ownership};
use crate::volumes::error::{Specific, VolumeError, at};
use crate::volumes::host_path;

/// What is to be mounted is not on the node.
#[derive(Debug, thiserror::Error)]
enum LocalError {
    #[error("path {0:?} does not exist")]
    Missing(String),
    #[error("path {0:?} is not a block device, which volumeMode Block needs")]
    NoDevice(String),
}

impl Specific for LocalError {}

/// What upstream's plugin is called.
pub(super) const LOCAL: &str = "kubernetes.io/local-volume";
const LOCAL_FOLDER: &str = "kubernetes.io~local-volume";
/// Where `mount` looks for the tools of file systems.
const TOOLS: [&str; 3] = ["/sbin", "/usr/sbin", "/usr/local/sbin"];

pub(super) fn folder(pod_dir: &Path, plugin: &str, name: &str) -> Result<PathBuf, VolumeError> {
    let path = pod_dir.join("volumes").join(plugin).join(name);
    std::fs::create_dir_all(&path).map_err(at("mkdir", &path))?;
    path.canonicalize().map_err(at("find", &path))
}

/// A folder of the node, or what is on a device of the node, bound to the Pod's own place; or the device itself. Below
/// `root_dir` devices are mounted once, for all Pods.
pub(super) async fn local(
    pod: &Pod,
    (root_dir, pod_dir): (&Path, &Path),
    resolved: &Resolved,
    local: &LocalVolumeSource,
) -> Result<Prepared, VolumeError> {
    let mut source = PathBuf::from(&local.path);
    if !source.exists() {
        return Err(LocalError::Missing(local.path.clone()).into());
    }
    let is_block = std::fs::metadata(&source).is_ok_and(|meta| meta.file_type().is_block_device());
    match (resolved.is_device(), is_block) {
        (true, true) => return Ok(Prepared::plain(source, resolved)),
        (true, false) => return Err(LocalError::NoDevice(local.path.clone()).into()),
        (false, true) => source = mount_device(root_dir, resolved, local).await?,
        (false, false) => {}
    }
    let path = folder(pod_dir, LOCAL_FOLDER, &resolved.name)?;
    if !sys::mount::is_mounted(&path)? {
        let options = BindOptions { read_only: resolved.read_only, ..BindOptions::default() };
        sys::mount::bind(&source, &path, options)?;
    }
    if !resolved.read_only {
        ownership::apply_for(pod, &path).await?;
    }
    Ok(Prepared::plain(path, resolved))
}

/// Where the device of a volume is mounted for all Pods. Source: `pkg/volume/local`.
fn device_mount(root_dir: &Path, name: &str) -> PathBuf {
    root_dir.join("plugins").join(LOCAL).join("mounts").join(name)
}

async fn mount_device(
    root_dir: &Path,
    resolved: &Resolved,
    local: &LocalVolumeSource,
) -> Result<PathBuf, VolumeError> {
    let path = device_mount(root_dir, &resolved.name);
    std::fs::create_dir_all(&path).map_err(at("mkdir", &path))?;
    let path = path.canonicalize().map_err(at("find", &path))?;
    if !sys::mount::is_mounted(&path)? {
        let mut options = resolved.mount_options();
        options.extend(resolved.read_only.then(|| "ro".to_owned()));
        format::mount(Path::new(&local.path), &path, local.fs_type.as_deref(), &options).await?;
    }
    Ok(path)
}

/// The volumes of the node's own that a Pod has mounted.
pub(super) fn locals(pod_dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(pod_dir.join("volumes").join(LOCAL_FOLDER));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).collect()
}

/// Takes a Pod's mount back, and when it was the last, that of the device.
pub(super) fn release_local(root_dir: &Path, pod_dir: &Path, name: &str) -> Result<(), VolumeError> {
    let path = folder(pod_dir, LOCAL_FOLDER, name)?;
    sys::mount::detach(&path)?;
    std::fs::remove_dir(&path).map_err(at("remove", &path))?;
    let pods = std::fs::read_dir(root_dir.join("pods")).into_iter().flatten().flatten();
    let is_used = pods.into_iter().any(|pod| locals(&pod.path()).iter().any(|other| other == name));
    let device = device_mount(root_dir, name);
    if is_used || !device.exists() {
        return Ok(());
    }
    sys::mount::unmount(&device)?;
    std::fs::remove_dir(&device).map_err(at("remove", &device))
}

/// A path of the node as it is.
pub(super) fn host_path(resolved: &Resolved, source: &HostPathVolumeSource) -> Result<Prepared, VolumeError> {
    host_path::check(source)?;
    let path = PathBuf::from(&source.path);
    Ok(Prepared::plain(path, resolved))
}

/// A server's folder, mounted by the host's own tool.
pub(super) async fn nfs(
    pod_dir: &Path,
    resolved: &Resolved,
    source: &NFSVolumeSource,
) -> Result<Prepared, VolumeError> {
    let path = folder(pod_dir, "kubernetes.io~nfs", &resolved.name)?;
    if sys::mount::is_mounted(&path)? {
        return Ok(Prepared::plain(path, resolved));
    }
    let mut options = resolved.mount_options();
    if resolved.read_only {
        options.push("ro".to_owned());
    }
    let mut arguments = vec!["-t".to_owned(), "nfs".to_owned()];
    if !options.is_empty() {
        arguments.extend(["-o".to_owned(), options.join(",")]);
    }
    arguments.extend([format!("{}:{}", source.server, source.path), path.display().to_string()]);
    let failed =
        |status: String, output: String| ToolError::Mount { status, arguments: arguments.join(" "), output };
    if !has_tool("mount.nfs") {
        // What mount says then, and what it leaves out.
        let output = format!(
            "mount: {}: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> \
             helper program: this host has no /sbin/mount.nfs. Install the package that has it: nfs-common (Debian), \
             nfs-utils (others).",
            path.display()
        );
        return Err(failed("exit status 32".to_owned(), output).into());
    }
    let mut command = tokio::process::Command::new("mount");
    command.args(&arguments).kill_on_drop(true);
    let output = command.output().await.map_err(|error| failed(error.to_string(), String::new()))?;
    if output.status.success() {
        return Ok(Prepared::plain(path, resolved));
    }
    let status = match output.status.code() {
        Some(code) => format!("exit status {code}"),
        None => output.status.to_string(),
    };
    Err(failed(status, String::from_utf8_lossy(&output.stderr).trim().to_owned()).into())
}

fn has_tool(name: &str) -> bool {
    TOOLS.iter().any(|folder| Path::new(folder).join(name).exists())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolume;

    use super::super::resolve::Source;
    use super::*;

    fn resolved(source: &LocalVolumeSource) -> Resolved {
        let volume: PersistentVolume = serde_saphyr::from_str("{metadata: {name: pv}}").unwrap();
        Resolved {
            name: "pv".to_owned(),
            own_name: "data".to_owned(),
            source: Source::Local(source.clone()),
            volume: Some(volume),
            claim: None,
            read_only: false,
        }
    }

    #[tokio::test]
    async fn a_device_is_formatted_if_it_is_empty_and_mounted_while_pods_have_it() {
        assert!(nix::unistd::geteuid().is_root(), "this test mounts: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let image = root.join("disk.img");
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let device = sys::loop_device::attach(&image).unwrap();
        let source = LocalVolumeSource { path: device.display().to_string(), fs_type: None };
        let (pod, resolved) = (Pod::default(), resolved(&source));
        let pods = ["a", "b"].map(|uid| root.join("pods").join(uid));
        for (pod_dir, text) in pods.iter().zip(["one", "two"]) {
            let prepared = local(&pod, (&root, pod_dir), &resolved, &source).await.unwrap();
            std::fs::write(prepared.path.join(text), text).unwrap();
        }
        let global = device_mount(&root, "pv");
        let mounts = sys::mount::mounts().unwrap();
        let types = mounts.iter().filter(|mount| mount.target.starts_with(&root)).map(|m| m.fs_type.as_str());
        assert_eq!(types.collect::<Vec<_>>(), ["ext4"; 3]);
        release_local(&root, &pods[0], "pv").unwrap();
        assert!(sys::mount::is_mounted(&global).unwrap(), "another Pod has it");
        release_local(&root, &pods[1], "pv").unwrap();
        assert!(!global.exists());
        // What is on it stays, whoever comes.
        let prepared = local(&pod, (&root, &pods[0]), &resolved, &source).await.unwrap();
        assert_eq!(std::fs::read_to_string(prepared.path.join("two")).unwrap(), "two");
        release_local(&root, &pods[0], "pv").unwrap();
        let other = LocalVolumeSource { fs_type: Some("xfs".to_owned()), ..source.clone() };
        let refused = local(&pod, (&root, &pods[0]), &resolved, &other).await.unwrap_err().to_string();
        assert!(
            refused.starts_with("failed to mount the volume as \"xfs\", it already contains ext4."),
            "{refused}"
        );
        sys::loop_device::detach(&image).unwrap();
    }
}
