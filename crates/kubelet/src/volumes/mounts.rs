//! What one container sees: its volume mounts, `/etc/hosts`, and the file for its last words.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, VolumeMount};

use super::error::{Specific, VolumeError, at};
use super::folder::set_mode;
use super::kind::{Content, content, volume_path};
use super::{persistent, sub_path};
use crate::pod::container_config::TERMINATION_MESSAGE_PATH;
use crate::pod::env::expand::expand;

/// A container cannot have what it mounts.
#[derive(Debug, thiserror::Error)]
enum MountError {
    #[error("volume \"{0}\" of the device is not there")]
    NoDevice(String),
    #[error("volume \"{0}\" of the mount is not there")]
    NoVolume(String),
    #[error("missing value for {}", .0.join(", "))]
    NoValue(Vec<String>),
    #[error(transparent)]
    Outside(#[from] sub_path::Outside),
    /// Says nothing of the host's files: the log does.
    #[error("{what} for volumeMount \"{mount}\" of container \"{container}\"")]
    NoSubPath { what: &'static str, mount: String, container: String },
    #[error("volume \"{volume}\" requested recursive read-only mode, but it is {why}")]
    NotRecursive { volume: String, why: String },
    #[error("unknown recursive read-only mode \"{0}\"")]
    RecursiveMode(String),
}

impl Specific for MountError {}

/// What mounts are made from.
pub(crate) struct MountInput<'a> {
    /// The Pod.
    pub(crate) pod: &'a Pod,
    /// The Pod's own directory.
    pub(crate) pod_dir: &'a Path,
    /// The container's environment, for `subPathExpr`.
    pub(crate) env: &'a [(String, String)],
    /// The text of `/etc/hosts`.
    pub(crate) hosts: &'a str,
    /// The container's restart count.
    pub(crate) attempt: u32,
    /// Whether the runtime can make mounts read-only with all that is mounted below them.
    pub(crate) can_be_recursive: bool,
}

/// Where on the node a container's termination message is.
pub(crate) fn termination_log(pod_dir: &Path, container: &str, attempt: u32) -> PathBuf {
    pod_dir.join("containers").join(container).join(format!("{attempt}.msg"))
}

/// The mounts of `container`, with the files and bind mounts behind them made. Blocking.
///
/// # Errors
/// What could not be mounted.
pub(crate) fn make(input: &MountInput<'_>, container: &Container) -> Result<Vec<v1::Mount>, VolumeError> {
    let empty = PodSpec::default();
    let spec = input.pod.spec.as_ref().unwrap_or(&empty);
    let mut mounts = Vec::new();
    for (index, volume_mount) in container.volume_mounts.iter().flatten().enumerate() {
        mounts.push(volume(input, spec, container, index, volume_mount)?);
    }
    if !mounts.iter().any(|m| m.container_path == "/etc/hosts") {
        let path = input.pod_dir.join("etc-hosts");
        write_if_changed(&path, input.hosts, 0o644)?;
        mounts.push(bind(&path, "/etc/hosts"));
    }
    let log = termination_log(input.pod_dir, &container.name, input.attempt);
    if let Some(parent) = log.parent() {
        fs::create_dir_all(parent).map_err(at("mkdir", parent))?;
    }
    write_if_changed(&log, "", 0o666)?;
    let target = container.termination_message_path.as_deref().unwrap_or(TERMINATION_MESSAGE_PATH);
    if !target.is_empty() {
        mounts.push(bind(&log, target));
    }
    Ok(mounts)
}

/// The devices that `container` is given. Source: `Container.volumeDevices`.
///
/// # Errors
/// Which one is not there.
pub(crate) fn devices(pod_dir: &Path, container: &Container) -> Result<Vec<v1::Device>, VolumeError> {
    let wanted = container.volume_devices.iter().flatten();
    wanted
        .map(|device| {
            let found = persistent::find(pod_dir, &device.name).filter(|found| found.is_device);
            let found = found.ok_or_else(|| MountError::NoDevice(device.name.clone()))?;
            Ok(v1::Device {
                container_path: device.device_path.clone(),
                host_path: found.path.display().to_string(),
                permissions: if found.read_only { "r" } else { "mrw" }.to_owned(),
            })
        })
        .collect()
}

fn bind(host: &Path, container: &str) -> v1::Mount {
    v1::Mount {
        host_path: host.display().to_string(),
        container_path: container.to_owned(),
        ..v1::Mount::default()
    }
}

fn write_if_changed(path: &Path, text: &str, mode: u32) -> Result<(), VolumeError> {
    if fs::File::open(path).is_ok_and(|file| says(file, text)) {
        return Ok(());
    }
    fs::write(path, text).map_err(at("write", path))?;
    set_mode(path, mode)
}

/// Whether a file says this and no more. A container may have made it as large as the disk: it is not read to its end.
fn says(file: impl Read, text: &str) -> bool {
    let mut start = Vec::new();
    file.take(text.len() as u64 + 1).read_to_end(&mut start).is_ok() && start == text.as_bytes()
}

fn volume(
    input: &MountInput<'_>,
    spec: &PodSpec,
    container: &Container,
    index: usize,
    volume_mount: &VolumeMount,
) -> Result<v1::Mount, MountError> {
    let volume = spec.volumes.iter().flatten().find(|v| v.name == volume_mount.name);
    let sub = sub_path_of(volume_mount, input.env)?;
    let sub = sub.as_deref();
    if let Some(source) = volume.and_then(|v| v.image.as_ref()) {
        let image =
            v1::ImageSpec { image: source.reference.clone().unwrap_or_default(), ..Default::default() };
        return Ok(v1::Mount {
            container_path: absolute(&volume_mount.mount_path),
            readonly: true,
            image: Some(image),
            image_sub_path: sub.unwrap_or_default().to_owned(),
            ..v1::Mount::default()
        });
    }
    let path = volume
        .and_then(|v| volume_path(input.pod_dir, v))
        .ok_or_else(|| MountError::NoVolume(volume_mount.name.clone()))?;
    let host_path = match sub {
        None => path,
        Some(sub) => {
            let target = input
                .pod_dir
                .join("volume-subpaths")
                .join(&volume_mount.name)
                .join(&container.name)
                .join(index.to_string());
            sub_path::bind(&path, sub, &target)
                .map_err(|error| without_sub_path(&error, volume_mount, container))?;
            target
        }
    };
    let propagation = match volume_mount.mount_propagation.as_deref() {
        Some("HostToContainer") => v1::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => v1::MountPropagation::PropagationBidirectional,
        _ => v1::MountPropagation::PropagationPrivate,
    };
    let is_managed = volume.is_some_and(|volume| content(volume) == Content::Managed);
    let is_read_only =
        persistent::find(input.pod_dir, &volume_mount.name).is_some_and(|found| found.read_only);
    Ok(v1::Mount {
        readonly: volume_mount.read_only == Some(true) || is_managed || is_read_only,
        propagation: propagation.into(),
        recursive_read_only: is_recursive(volume_mount, input.can_be_recursive)?,
        ..bind(&host_path, &absolute(&volume_mount.mount_path))
    })
}

/// Source: `MakeAbsolutePath` of upstream's `pkg/volume/util`.
fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// What part of the volume it is, with the container's variables put in.
fn sub_path_of(mount: &VolumeMount, env: &[(String, String)]) -> Result<Option<String>, MountError> {
    let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let sub = match text(&mount.sub_path_expr) {
        None => text(&mount.sub_path),
        Some(expression) => {
            let missing = RefCell::new(BTreeSet::new());
            let lookup = |name: &str| {
                let value = env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
                if value.as_ref().is_none_or(String::is_empty) {
                    missing.borrow_mut().insert(name.to_owned());
                }
                value
            };
            let expanded = expand(&expression, &lookup);
            let missing: Vec<String> = missing.into_inner().into_iter().collect();
            if !missing.is_empty() {
                return Err(MountError::NoValue(missing));
            }
            Some(expanded).filter(|expanded| !expanded.is_empty())
        }
    };
    sub.as_deref().map_or(Ok(()), sub_path::check)?;
    Ok(sub)
}

fn without_sub_path(error: &sub_path::Error, mount: &VolumeMount, container: &Container) -> MountError {
    let what = match error {
        sub_path::Error::Make(_) => "failed to create subPath directory",
        sub_path::Error::Bind(_) => "failed to prepare subPath",
    };
    let refused =
        MountError::NoSubPath { what, mount: mount.name.clone(), container: container.name.clone() };
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(error = source, said = %refused);
    refused
}

/// Whether what is mounted below is read-only too. Source: `resolveRecursiveReadOnly` of upstream's `pkg/kubelet`.
fn is_recursive(mount: &VolumeMount, is_possible: bool) -> Result<bool, MountError> {
    let refuse =
        |why: &str| Err(MountError::NotRecursive { volume: mount.name.clone(), why: why.to_owned() });
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    if mount.read_only != Some(true) {
        return refuse("not read-only");
    }
    if let Some(propagation) = mount.mount_propagation.as_deref().filter(|name| *name != "None") {
        return refuse(&format!("not compatible with propagation \"{propagation}\""));
    }
    match mode {
        "IfPossible" => Ok(is_possible),
        "Enabled" if is_possible => Ok(true),
        "Enabled" => refuse("not supported by the runtime"),
        other => Err(MountError::RecursiveMode(other.to_owned())),
    }
}

#[cfg(test)]
mod tests;
