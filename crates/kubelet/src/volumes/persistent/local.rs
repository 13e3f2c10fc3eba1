//! Folders and devices of the node itself.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{LocalVolumeSource, Pod};

use super::prepared::Prepared;
use super::resolve::Resolved;
use super::{bound, format};
use crate::volumes::Volumes;
use crate::volumes::error::{Specific, VolumeError, at};

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
const PLUGIN: &str = "kubernetes.io/local-volume";
const FOLDER: &str = "kubernetes.io~local-volume";

/// Brings it to where the Pod's containers find it.
pub(super) async fn bring(
    volumes: &Volumes,
    pod: &Pod,
    pod_dir: &Path,
    resolved: &Resolved,
    source: &LocalVolumeSource,
) -> Result<Prepared, VolumeError> {
    let turn = volumes.csi.turn(PLUGIN, &resolved.name);
    let _turn = turn.lock().await;
    set_up(pod, &volumes.config.root_dir, pod_dir, resolved, source).await
}

/// Takes back what a Pod has, and what was mounted for it alone.
///
/// # Errors
/// What is left; to be tried again.
pub(super) async fn tear_down(volumes: &Volumes, pod_dir: &Path) -> Result<(), VolumeError> {
    for name in locals(pod_dir) {
        let turn = volumes.csi.turn(PLUGIN, &name);
        let _turn = turn.lock().await;
        release(&volumes.config.root_dir, pod_dir, &name)?;
    }
    Ok(())
}

/// A folder of the node, or what is on a device of the node, bound to the Pod's own place; or the device itself. Below
/// `root_dir` devices are mounted once, for all Pods.
async fn set_up(
    pod: &Pod,
    root_dir: &Path,
    pod_dir: &Path,
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
    bound::bind(pod, &source, pod_dir, FOLDER, resolved).await
}

/// Where the device of a volume is mounted for all Pods. Source: `pkg/volume/local`.
fn device_mount(root_dir: &Path, name: &str) -> PathBuf {
    root_dir.join("plugins").join(PLUGIN).join("mounts").join(name)
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
fn locals(pod_dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(pod_dir.join("volumes").join(FOLDER));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).collect()
}

/// Takes a Pod's mount back, and when it was the last, that of the device.
fn release(root_dir: &Path, pod_dir: &Path, name: &str) -> Result<(), VolumeError> {
    let path = bound::folder(pod_dir, FOLDER, name)?;
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
            let prepared = set_up(&pod, &root, pod_dir, &resolved, &source).await.unwrap();
            std::fs::write(prepared.path.join(text), text).unwrap();
        }
        let global = device_mount(&root, "pv");
        let mounts = sys::mount::mounts().unwrap();
        let types = mounts.iter().filter(|mount| mount.target.starts_with(&root)).map(|m| m.fs_type.as_str());
        assert_eq!(types.collect::<Vec<_>>(), ["ext4"; 3]);
        release(&root, &pods[0], "pv").unwrap();
        assert!(sys::mount::is_mounted(&global).unwrap(), "another Pod has it");
        release(&root, &pods[1], "pv").unwrap();
        assert!(!global.exists());
        // What is on it stays, whoever comes.
        let prepared = set_up(&pod, &root, &pods[0], &resolved, &source).await.unwrap();
        assert_eq!(std::fs::read_to_string(prepared.path.join("two")).unwrap(), "two");
        release(&root, &pods[0], "pv").unwrap();
        let other = LocalVolumeSource { fs_type: Some("xfs".to_owned()), ..source.clone() };
        let refused = set_up(&pod, &root, &pods[0], &resolved, &other).await.unwrap_err().to_string();
        assert!(
            refused.starts_with("failed to mount the volume as \"xfs\", it already contains ext4."),
            "{refused}"
        );
        sys::loop_device::detach(&image).unwrap();
    }
}
