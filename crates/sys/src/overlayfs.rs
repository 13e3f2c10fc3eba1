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

const OPAQUE: &str = "trusted.overlay.opaque";
/// Longest value, and longest list of names. Source: the kernel's `XATTR_SIZE_MAX`.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// Hides what the layers below have at `path`.
pub fn whiteout(path: &Path) -> Result<()> {
    mknod(path, SFlag::S_IFCHR, Mode::empty(), makedev(0, 0))
        .doing(|| format!("make a whiteout at {}", path.display()))
}

/// Hides what the layers below have in the directory `path`.
pub fn make_opaque(path: &Path) -> Result<()> {
    set_attribute(path, OPAQUE, b"y")
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

/// `true` if the directory `path` hides what the layers below have in it.
pub fn is_opaque(path: &Path) -> Result<bool> {
    Ok(attribute(path, OPAQUE)?.is_some_and(|value| value == b"y"))
}

/// The extended attributes of `path`, but for those that are marks for overlayfs.
pub fn attributes(path: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let doing = || format!("list attributes of {}", path.display());
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from).doing(doing)?;
    let mut names = vec![0_u8; ATTRIBUTE_BYTES_MAX];
    // SAFETY: a string that ends with zero, and a buffer with its length.
    let listed = unsafe { libc::llistxattr(c_path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    let length = match nix::errno::Errno::result(listed) {
        Err(nix::errno::Errno::EOPNOTSUPP) => 0,
        listed => usize::try_from(listed.doing(doing)?).unwrap_or_default(),
    };
    let names = names.get(..length).unwrap_or_default().split(|byte| *byte == 0);
    let names = names.filter_map(|name| std::str::from_utf8(name).ok());
    let names = names.filter(|name| !name.is_empty() && !name.starts_with("trusted.overlay."));
    let pairs = names.map(|name| Ok(attribute(path, name)?.map(|value| (name.to_owned(), value))));
    pairs.filter_map(Result::transpose).collect()
}

fn attribute(path: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    use nix::errno::Errno;
    let doing = || format!("read attribute {name} of {}", path.display());
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from).doing(doing)?;
    let c_name = CString::new(name).map_err(io::Error::from).doing(doing)?;
    let mut value = vec![0_u8; ATTRIBUTE_BYTES_MAX];
    // SAFETY: two strings that end with zero, and a buffer with its length.
    let read =
        unsafe { libc::lgetxattr(c_path.as_ptr(), c_name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    match Errno::result(read) {
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
        read => {
            value.truncate(usize::try_from(read.doing(doing)?).unwrap_or_default());
            Ok(Some(value))
        }
    }
}
