//! Pods with a user namespace: root inside is nobody outside.
//!
//! The namespaces are made with the sandbox and kept at files in its directory. Image layers are mounted with their
//! owners mapped, and so is what CRI says of each mount; what a container writes into its own layer belongs to the host's
//! users that its own are. A container's first process has no rights over the host's files: the way to its own leads
//! through directories that the namespace's root group may pass. Source: KEP-127, CRI's `UserNamespace`.

use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use cri::v1;
use sys::userns::Mapping;

use crate::refusal::Refusal;
use crate::state::Sandbox;

/// The sources of mounts, in a container's directory.
const SOURCES: &str = "mounts";
/// The image's layers with mapped owners while the root is mounted, in a container's directory.
const LAYERS: &str = "layers";

impl Sandbox {
    /// Whom its users are outside; `None` without a namespace of its own.
    ///
    /// # Errors
    /// CRI's configuration cannot be carried out.
    pub(crate) fn mapping(&self) -> Result<Option<Mapping>, Refusal> {
        let Some(options) = self.namespaces().userns_options else { return Ok(None) };
        let invalid = |why: String| Refusal::Invalid(format!("user namespace: {why}"));
        match options.mode() {
            v1::NamespaceMode::Pod => {}
            v1::NamespaceMode::Node if options.uids.is_empty() && options.gids.is_empty() => return Ok(None),
            v1::NamespaceMode::Node => return Err(invalid("mode NODE must have no mappings".to_owned())),
            other => return Err(invalid(format!("mode {} is not supported", other.as_str_name()))),
        }
        let one = |name: &str, mappings: &[v1::IdMapping]| match mappings {
            [only] if only.container_id == 0 && only.length > 0 => Ok(*only),
            _ => Err(invalid(format!("{name} must be one mapping of the container's users from 0 on"))),
        };
        let (uids, gids) = (one("uids", &options.uids)?, one("gids", &options.gids)?);
        if uids.length != gids.length {
            return Err(invalid("uids and gids must have the same length".to_owned()));
        }
        if !self.record.handler.is_empty() {
            let handler = &self.record.handler;
            let why = format!("runtime handler {handler:?} does not support user namespaces");
            return Err(Refusal::Unsupported(why));
        }
        Ok(Some(Mapping { first_uid: uids.host_id, first_gid: gids.host_id, length: uids.length }))
    }
}

/// Lets the namespace's root pass through `folder`, and nobody else.
pub(crate) fn open_to(folder: &Path, mapping: Mapping) -> io::Result<()> {
    chown(folder, Some(0), Some(mapping.first_gid))?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o710))
}

/// Mounts a container's root: the layers below `store`, topmost first, with their owners mapped.
pub(crate) fn mount_rootfs(
    dir: &Path,
    store: &Path,
    layers: &[PathBuf],
    userns: &Path,
    mapping: Mapping,
) -> io::Result<()> {
    let mapped = dir.join(LAYERS);
    std::fs::create_dir(&mapped)?;
    open_to(dir, mapping)?;
    sys::userns::bind(store, &mapped, Some(userns)).map_err(io::Error::other)?;
    let below = |layer: &PathBuf| layer.strip_prefix(store).map(|path| mapped.join(path));
    let lower = layers.iter().map(below).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    let (upper, work) = (dir.join("upper"), dir.join("work"));
    chown(&upper, Some(mapping.first_uid), Some(mapping.first_gid))?;
    let mounted = sys::mount::overlay(&lower, Some((&upper, &work)), &dir.join("rootfs"));
    // The overlay keeps what it needs of it.
    sys::mount::detach(&mapped).map_err(io::Error::other)?;
    mounted.map_err(io::Error::other)
}

/// Mounts the sources of a container's mounts where its root may go, with the owners that CRI says; the mounts of
/// `config` then lead there.
pub(crate) fn mount_sources(
    dir: &Path,
    userns: &Path,
    mapping: Mapping,
    config: &mut v1::ContainerConfig,
) -> io::Result<()> {
    let folder = dir.join(SOURCES);
    std::fs::create_dir(&folder)?;
    open_to(&folder, mapping)?;
    for (number, mount) in config.mounts.iter_mut().enumerate() {
        let source = Path::new(&mount.host_path);
        let target = folder.join(number.to_string());
        if source.is_dir() {
            std::fs::create_dir(&target)?;
        } else {
            std::fs::write(&target, "")?;
        }
        let userns = (!mount.uid_mappings.is_empty()).then_some(userns);
        sys::userns::bind(source, &target, userns).map_err(io::Error::other)?;
        mount.host_path = target.to_string_lossy().into_owned();
    }
    Ok(())
}
