//! Marks that overlayfs reads in a layer: files and directories that are gone from the layers below.
//!
//! Source: the kernel's documentation of overlayfs, "whiteouts and opaque directories".

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::libc;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::{Doing, Result};

/// Hides what the layers below have at `path`.
pub fn whiteout(path: &Path) -> Result<()> {
    mknod(path, SFlag::S_IFCHR, Mode::empty(), makedev(0, 0))
        .doing(|| format!("make a whiteout at {}", path.display()))
}

/// Hides what the layers below have in the directory `path`.
pub fn make_opaque(path: &Path) -> Result<()> {
    set_attribute(path, "trusted.overlay.opaque", b"y")
}

/// Sets an extended attribute of `path` itself, not of what it links to.
pub fn set_attribute(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    let doing = || format!("set attribute {name} of {}", path.display());
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from).doing(doing)?;
    let c_name = CString::new(name).map_err(io::Error::from).doing(doing)?;
    // SAFETY: two strings that end with zero, and a buffer with its length.
    let set =
        unsafe { libc::lsetxattr(c_path.as_ptr(), c_name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    nix::errno::Errno::result(set).map(drop).doing(doing)
}
