//! Loop devices: files as block devices. What belongs to a file is found by the kernel's own list, so that nothing has
//! to be remembered.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::{Doing, Error, Result};

/// How often another device is tried after somebody else was quicker.
const TRIES_MAX: usize = 16;

// Source: linux/loop.h.
mod calls {
    nix::ioctl_write_int_bad!(set_fd, 0x4C00);
    nix::ioctl_none_bad!(clear_fd, 0x4C01);
    nix::ioctl_none_bad!(set_capacity, 0x4C07);
    nix::ioctl_none_bad!(get_free, 0x4C82);
}

/// The device of `file`, attached now or before.
pub fn attach(file: &Path) -> Result<PathBuf> {
    let doing = || format!("attach a loop device to {}", file.display());
    let backing = OpenOptions::new().read(true).write(true).open(file).doing(doing)?;
    for _ in 0..TRIES_MAX {
        if let Some(device) = of(file)? {
            return Ok(device);
        }
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control").doing(doing)?;
        // SAFETY: the call takes no argument and the descriptor is open.
        let number = unsafe { calls::get_free(control.as_raw_fd()) }.doing(doing)?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = OpenOptions::new().read(true).write(true).open(&path).doing(doing)?;
        // SAFETY: both descriptors are open during the call; the kernel takes its own reference.
        match unsafe { calls::set_fd(device.as_raw_fd(), backing.as_raw_fd()) } {
            Ok(_) => return Ok(path),
            Err(Errno::EBUSY) => {}
            Err(error) => return Err(error).doing(doing),
        }
    }
    Err(Error::other(doing(), "every device that was free was taken by others"))
}

/// The device that is attached to `file`, if one is.
pub fn of(file: &Path) -> Result<Option<PathBuf>> {
    let doing = || "list the loop devices".to_owned();
    let wanted = file.canonicalize().doing(|| format!("find {}", file.display()))?;
    for entry in fs::read_dir("/sys/block").doing(doing)? {
        let entry = entry.doing(doing)?;
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        if Path::new(backing.trim_end_matches('\n')) == wanted {
            return Ok(Some(Path::new("/dev").join(entry.file_name())));
        }
    }
    Ok(None)
}

/// Takes the device of `file` away; no error if there is none. One in use goes when its last user does.
pub fn detach(file: &Path) -> Result<()> {
    let doing = || format!("detach the loop device of {}", file.display());
    let Some(path) = of(file)? else { return Ok(()) };
    let device = File::open(&path).doing(doing)?;
    // SAFETY: the call takes no argument and the descriptor is open.
    match unsafe { calls::clear_fd(device.as_raw_fd()) } {
        Ok(_) | Err(Errno::ENXIO) => Ok(()),
        Err(error) => Err(error).doing(doing),
    }
}

/// Has the device of `file` take the file's new size; no error if there is none.
pub fn grow(file: &Path) -> Result<()> {
    let doing = || format!("grow the loop device of {}", file.display());
    let Some(path) = of(file)? else { return Ok(()) };
    let device = File::open(&path).doing(doing)?;
    // SAFETY: the call takes no argument and the descriptor is open.
    unsafe { calls::set_capacity(device.as_raw_fd()) }.doing(doing)?;
    Ok(())
}

/// Takes away the devices of all files below `folder`.
pub fn detach_below(folder: &Path) -> Result<()> {
    let Ok(folder) = folder.canonicalize() else { return Ok(()) };
    let doing = || "list the loop devices".to_owned();
    for entry in fs::read_dir("/sys/block").doing(doing)? {
        let entry = entry.doing(doing)?;
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let backing = PathBuf::from(backing.trim_end_matches('\n'));
        if backing.starts_with(&folder) {
            detach(&backing)?;
        }
    }
    Ok(())
}
