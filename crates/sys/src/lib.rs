//! The kernel's interfaces: network namespaces, netlink, nftables, mounts, cgroups, processes.
//!
//! The only crate with `unsafe`. Everything here is synchronous but
//! what watches ([`folder_watch`], [`netlink::RouteWatch`], [`nftables::TableWatch`]), says in its error what was attempted on what, and
//! knows nothing of Kubernetes. What may block for long (waiting for processes to die) says so.
#![allow(unsafe_code)]

pub mod as_user;
pub mod cgroup;
pub mod denied_calls;
pub mod descriptors;
pub mod folder_watch;
pub mod forwarding;
pub mod landlock;
pub mod loop_device;
pub mod mount;
pub mod neighbours;
pub mod netlink;
pub mod netns;
mod nfproto;
pub mod nftables;
pub mod overlayfs;
pub mod payload;
pub mod process;
pub mod program;
#[cfg(test)]
mod rows;
pub mod tree;
pub mod usage;
pub mod userns;

use std::io;

/// A failed call to the kernel: what was attempted, and the kernel's answer as source.
#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
pub struct Error {
    doing: String,
    #[source]
    source: io::Error,
}

/// The result of a call to the kernel.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that says what was attempted; `doing` is lowercase and names the object.
    pub fn new(doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { doing: doing.into(), source: source.into() }
    }

    pub(crate) fn other(doing: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { doing: doing.into(), source: io::Error::other(reason.into()) }
    }

    /// The kernel's error number, if the kernel gave one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// `true` if the object does not exist (`ENOENT`, `ENODEV`, `ESRCH`).
    pub fn is_not_found(&self) -> bool {
        use nix::libc::{EADDRNOTAVAIL, ENODEV, ENOENT, ENXIO, ESRCH};
        matches!(self.raw_os_error(), Some(ENOENT | ENODEV | ESRCH | ENXIO | EADDRNOTAVAIL))
    }

    /// `true` if the object exists already (`EEXIST`).
    pub fn is_exists(&self) -> bool {
        self.raw_os_error() == Some(nix::libc::EEXIST)
    }
}

/// Adds to a failed call what it was attempted for.
pub(crate) trait Doing<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::new(doing(), source))
    }
}
