//! Network namespaces that live at a path: made, entered, deleted.
//!
//! A thread that enters a namespace is never reused: each call runs on a thread of its own, so that no task of a
//! thread pool ever wakes up in the wrong network.

mod folder;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

pub use folder::NetNsFolder;

use crate::{Doing, Error, Result};

/// A handle on a network namespace; keeps it alive while open.
#[derive(Debug)]
pub struct NetNs(OwnedFd);

impl NetNs {
    /// Makes a namespace with `lo` up and keeps it at `path`, whose directory must exist.
    ///
    /// # Errors
    /// `EEXIST` if there is a file at `path` already.
    pub fn create(path: &Path) -> Result<Self> {
        let doing = || format!("create network namespace {}", path.display());
        OpenOptions::new().write(true).create_new(true).open(path).doing(doing)?;
        let made = on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).doing(doing)?;
            crate::netlink::Route::open()?.loopback_up()?;
            mount(Some("/proc/thread-self/ns/net"), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .doing(doing)
        });
        match made.and_then(|()| Self::open(path)) {
            Ok(ns) => Ok(ns),
            Err(error) => {
                delete(path)?;
                Err(error)
            }
        }
    }

    /// Makes a namespace, with `lo` up, that lives as long as a handle or a process in it.
    pub fn anonymous() -> Result<Self> {
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).doing(|| "create a network namespace".into())?;
            crate::netlink::Route::open()?.loopback_up()?;
            Self::current()
        })
    }

    /// Opens the namespace at `path`, also one of `/proc/<pid>/ns/net`.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).doing(|| format!("open network namespace {}", path.display()))?;
        Ok(Self(file.into()))
    }

    /// The calling thread's namespace.
    pub fn current() -> Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Runs `f` inside the namespace, on a thread of its own, and waits for it.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_own_thread(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET).doing(|| "enter a network namespace".into())?;
            f()
        })
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes the namespace away from `path`; it ends with its last process. No error if it is gone already.
pub fn delete(path: &Path) -> Result<()> {
    crate::mount::detach(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing(|| format!("delete network namespace {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Writes `value` to `/proc/sys/<key>` (`net/ipv4/ip_forward`) unless it is there already.
///
/// Keys below `net` belong to the calling thread's network namespace.
pub fn set_sysctl(key: &str, value: &str) -> Result<()> {
    if sysctl(key)? == value {
        return Ok(());
    }
    fs::write(format!("/proc/sys/{key}"), value).doing(|| format!("set sysctl {key} to {value}"))
}

/// Reads `/proc/sys/<key>`.
pub fn sysctl(key: &str) -> Result<String> {
    let value = fs::read_to_string(format!("/proc/sys/{key}")).doing(|| format!("read sysctl {key}"))?;
    Ok(value.trim_end().to_owned())
}

fn on_own_thread<T: Send>(f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let spawned = thread::Builder::new().name("netns".into()).spawn_scoped(scope, f);
        let handle = spawned.doing(|| "start a thread".into())?;
        handle
            .join()
            .unwrap_or_else(|_| Err(Error::other("work in a network namespace", "the thread panicked")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_only_lo_up_and_is_gone_after_delete() {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ns");
        let ns = NetNs::create(&path).unwrap();
        assert!(NetNs::create(&path).unwrap_err().is_exists());
        let links = ns.run(|| crate::netlink::Route::open()?.links()).unwrap();
        assert_eq!(links.iter().map(|l| (l.name.as_str(), l.is_up)).collect::<Vec<_>>(), [("lo", true)]);
        ns.run(|| set_sysctl("net/ipv4/ip_forward", "1")).unwrap();
        assert_eq!(ns.run(|| sysctl("net/ipv4/ip_forward")).unwrap(), "1");
        delete(&path).unwrap();
        delete(&path).unwrap();
        assert!(!path.exists());
    }
}
