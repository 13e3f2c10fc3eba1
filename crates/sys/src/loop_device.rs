//! Loop devices: files as block devices. What belongs to a file is found by the kernel's own list, so that nothing has
//! to be remembered.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::{Doing, Error, Result};

/// The kernel's list of block devices.
const DEVICES: &str = "/sys/block";
/// How often another device is tried after somebody else was quicker.
const TRIES_MAX: usize = 16;

/// The device goes when its last user does. Source: `LO_FLAGS_AUTOCLEAR`.
const GOING: u32 = 4;

// Source: linux/loop.h.
mod calls {
    /// What the kernel knows of a device.
    #[derive(Default)]
    #[repr(C)]
    pub(super) struct LoopInfo64 {
        before: [u64; 5],
        numbers: [u32; 3],
        pub(super) flags: u32,
        names: [[u64; 8]; 2],
        key: [u64; 4],
        init: [u64; 2],
    }

    nix::ioctl_write_int_bad!(set_fd, 0x4C00);
    nix::ioctl_none_bad!(clear_fd, 0x4C01);
    nix::ioctl_write_ptr_bad!(set_status64, 0x4C04, LoopInfo64);
    nix::ioctl_read_bad!(get_status64, 0x4C05, LoopInfo64);
    nix::ioctl_none_bad!(set_capacity, 0x4C07);
    nix::ioctl_none_bad!(get_free, 0x4C82);
}

/// The device of `file`, attached now or before. One that was to go stays: a second one beside it, while the first is
/// still mounted somewhere, would be two file systems in one file.
pub fn attach(file: &Path) -> Result<PathBuf> {
    let doing = || format!("attach a loop device to {}", file.display());
    let backing = OpenOptions::new().read(true).write(true).open(file).doing(doing)?;
    for _ in 0..TRIES_MAX {
        if let Some(device) = of(file)? {
            if stays(&device, file)? {
                return Ok(device);
            }
            continue;
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

/// Has a device stay that was to go with its last user; false if it has gone meanwhile.
fn stays(path: &Path, file: &Path) -> Result<bool> {
    let doing = || format!("keep the loop device of {}", file.display());
    // While it is open here it does not go.
    let device = match OpenOptions::new().read(true).write(true).open(path) {
        // It is on its way.
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => return Ok(false),
        opened => opened.doing(doing)?,
    };
    if of(file)?.as_deref() != Some(path) {
        return Ok(false);
    }
    let mut info = calls::LoopInfo64::default();
    // SAFETY: the descriptor is open during the call and the structure is as the kernel has it.
    unsafe { calls::get_status64(device.as_raw_fd(), &raw mut info) }.doing(doing)?;
    if info.flags & GOING != 0 {
        info.flags &= !GOING;
        // SAFETY: as above.
        unsafe { calls::set_status64(device.as_raw_fd(), &raw const info) }.doing(doing)?;
    }
    Ok(true)
}

/// The device that is attached to `file`, if one is.
pub fn of(file: &Path) -> Result<Option<PathBuf>> {
    let wanted = file.canonicalize().doing(|| format!("find {}", file.display()))?;
    let mut attached = attached(Path::new(DEVICES))?.into_iter();
    Ok(attached.find(|(_, backing)| *backing == wanted).map(|(device, _)| device))
}

/// Devices, each with the file that it is attached to; the kernel ends its path with a line's end, whatever is in it.
fn attached(devices: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let doing = || "list the loop devices".to_owned();
    let mut attached = Vec::new();
    for entry in fs::read_dir(devices).doing(doing)? {
        let entry = entry.doing(doing)?;
        let Ok(mut backing) = fs::read(entry.path().join("loop/backing_file")) else { continue };
        if backing.last() == Some(&b'\n') {
            backing.pop();
        }
        attached.push((Path::new("/dev").join(entry.file_name()), OsString::from_vec(backing).into()));
    }
    Ok(attached)
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
    let attached = attached(Path::new(DEVICES))?.into_iter().map(|(_, backing)| backing);
    attached.filter(|backing| backing.starts_with(&folder)).try_for_each(|backing| detach(&backing))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `/sys/block` has of devices: of those without a file nothing says so.
    #[test]
    fn the_file_of_a_device_is_its_path_whatever_bytes_are_in_it() {
        let devices = tempfile::tempdir().unwrap();
        for (device, backing) in [
            ("loop0", Some(&b"/var/lib/a.img\n"[..])),
            ("loop1", None),
            ("loop2", Some(b"/a name with blanks \n")),
            ("loop3", Some(b"/ends with a line\n\n")),
            ("loop4", Some(b"/no \xff text\n")),
            ("loop5", Some(b"/gone.img (deleted)\n")),
            ("loop6", Some(b"")),
            ("loop7", Some(b"/without a line's end")),
        ] {
            let folder = devices.path().join(device).join("loop");
            fs::create_dir_all(&folder).unwrap();
            if let Some(backing) = backing {
                fs::write(folder.join("backing_file"), backing).unwrap();
            }
        }
        fs::create_dir(devices.path().join("sda")).unwrap();
        fs::write(devices.path().join("file"), "").unwrap();
        let mut found = attached(devices.path()).unwrap();
        found.sort();
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let of = |device: &str, backing: &[u8]| (PathBuf::from(device), path(backing));
        let wanted = [
            of("/dev/loop0", b"/var/lib/a.img"),
            of("/dev/loop2", b"/a name with blanks "),
            of("/dev/loop3", b"/ends with a line\n"),
            of("/dev/loop4", b"/no \xff text"),
            of("/dev/loop5", b"/gone.img (deleted)"),
            of("/dev/loop6", b""),
            of("/dev/loop7", b"/without a line's end"),
        ];
        assert_eq!(found, wanted);
        assert!(attached(&devices.path().join("none")).unwrap_err().is_not_found());
    }

    #[test]
    fn a_file_without_a_device_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.img");
        assert!(of(&file).unwrap_err().is_not_found(), "there is no such file");
        fs::write(&file, [0; 512]).unwrap();
        assert_eq!(of(&file).unwrap(), None);
        for _ in 0..2 {
            detach(&file).unwrap();
            grow(&file).unwrap();
            detach_below(folder.path()).unwrap();
        }
        detach_below(&folder.path().join("none")).unwrap();
    }
}
