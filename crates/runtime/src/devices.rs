//! The devices of a container: those that are asked for, or all of the host's for a privileged one.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use cri::v1;

use crate::refusal::Refusal;

/// What every container has of its own, and what no container is given. Source: the OCI runtime specification, default
/// devices; containerd's list of what a privileged container is spared.
const OWN: [&str; 8] = [
    "/dev/console",
    "/dev/ptmx",
    "/dev/tty",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];
const SPARED: [&str; 6] = ["/dev/pts", "/dev/shm", "/dev/fd", "/dev/mqueue", "/dev/.lxc", "/dev/.udev"];

/// A device node of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDevice {
    /// The path on the host.
    pub source: PathBuf,
    /// The path in the container.
    pub path: String,
    /// Block instead of character.
    pub is_block: bool,
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
    /// Permission bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// And their group.
    pub gid: u32,
    /// The access of the container: `r`, `w`, `m`.
    pub access: String,
}

/// The devices of a container.
///
/// # Errors
/// Names what is not a device.
pub(crate) fn devices(config: &v1::ContainerConfig, is_privileged: bool) -> Result<Vec<HostDevice>, Refusal> {
    let mut devices = Vec::new();
    for wanted in &config.devices {
        let path = Path::new(&wanted.host_path);
        let inside = Path::new(&wanted.container_path);
        match device(path, inside, &wanted.permissions) {
            Some(device) => devices.push(device),
            None if path.is_dir() => {
                below(path, inside, &wanted.permissions, &mut devices)
                    .map_err(Refusal::step(format!("cannot list {}", path.display())))?;
            }
            None => return Err(Refusal::Invalid(format!("{} is not a device", wanted.host_path))),
        }
    }
    if is_privileged {
        let dev = Path::new("/dev");
        below(dev, dev, "rwm", &mut devices).map_err(Refusal::step("cannot list /dev"))?;
    }
    Ok(devices)
}

/// Every device below a folder, which the container has below `inside`.
fn below(folder: &Path, inside: &Path, access: &str, devices: &mut Vec<HostDevice>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let is_left_out = OWN.iter().chain(&SPARED).any(|known| path == Path::new(known));
        // A link such as /dev/stdin is no device of its own.
        if is_left_out || kind.is_symlink() {
            continue;
        }
        let inside = inside.join(entry.file_name());
        if kind.is_dir() {
            below(&path, &inside, access, devices)?;
        } else {
            devices.extend(device(&path, &inside, access));
        }
    }
    Ok(())
}

/// What the host has at `path`, if that is a device.
pub(crate) fn device(path: &Path, inside: &Path, access: &str) -> Option<HostDevice> {
    let metadata = std::fs::metadata(path).ok()?;
    let kind = metadata.file_type();
    (kind.is_block_device() || kind.is_char_device()).then(|| HostDevice {
        source: path.to_owned(),
        path: inside.to_string_lossy().into_owned(),
        is_block: kind.is_block_device(),
        major: nix::sys::stat::major(metadata.rdev()),
        minor: nix::sys::stat::minor(metadata.rdev()),
        mode: metadata.mode() & 0o777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        access: if access.is_empty() { "rwm".to_owned() } else { access.to_owned() },
    })
}
