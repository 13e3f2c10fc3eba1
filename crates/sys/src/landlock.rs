//! Landlock: a process gives up, for good and for all that it becomes, what it does not need of the file system.
//!
//! Files that are open stay open, and unix sockets can be connected to wherever they are. Source: landlock(7).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::{Doing, Result};

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
/// All that the first version knows.
const FIRST: u64 = (1 << 13) - 1;
/// To rename from one folder into another; since version 2.
const REFER: u64 = 1 << 13;
/// Since version 3.
const TRUNCATE: u64 = 1 << 14;
/// Since version 5.
const IOCTL_DEVICE: u64 = 1 << 15;
/// What can be allowed for a file itself.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE;

/// Since version 4.
const BIND_TCP: u64 = 1;
/// Signals to processes outside; since version 6.
const SIGNALS: u64 = 1 << 1;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;
const RULE_NET_PORT: libc::c_int = 2;

/// The rights below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Files are read, folders listed.
    Read,
    /// Everything but running programs and making devices.
    Write,
}

/// The TCP ports on which a process may listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpPorts {
    /// Here only.
    Only(Vec<u16>),
    /// Wherever its user may.
    OfUser,
}

/// The rights that a process keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Files, and folders with all that is below. What is not there, or cannot be seen, is left out.
    pub paths: Vec<(PathBuf, Access)>,
    /// The TCP ports on which it may listen.
    pub tcp_ports: TcpPorts,
}

#[repr(C)]
struct Ruleset {
    files: u64,
    network: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    access: u64,
    parent: libc::c_int,
}

#[repr(C)]
struct NetPort {
    access: u64,
    port: u64,
}

/// The version of Landlock that the kernel has; `None` if it has none.
pub fn version() -> Option<u32> {
    let nothing = std::ptr::null::<Ruleset>();
    // SAFETY: with this flag the kernel takes no structure, and answers with a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0, CREATE_RULESET_VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

/// Leaves this thread, and what it starts from now on, with what is allowed. Returns the kernel's version of Landlock:
/// older ones leave more. `None` if the kernel has none: nothing is restricted then.
///
/// # Errors
/// `EPERM` without `no_new_privs`; what else the kernel refuses.
pub fn restrict(allowed: &Allowed) -> Result<Option<u32>> {
    let Some(version) = version() else { return Ok(None) };
    let doing = || "restrict what files this process has".to_owned();
    let handled = handled(version);
    let ruleset = Ruleset {
        files: handled,
        network: if version >= 4 && matches!(allowed.tcp_ports, TcpPorts::Only(_)) { BIND_TCP } else { 0 },
        scoped: if version >= 6 { SIGNALS } else { 0 },
    };
    // SAFETY: the structure has the layout and the size that are passed. What an older kernel does not know is 0 in it.
    let made = unsafe {
        let size = size_of::<Ruleset>();
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const ruleset, size, 0)
    };
    let made = libc::c_int::try_from(check(made).doing(doing)?).unwrap_or(-1);
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    let rules = unsafe { OwnedFd::from_raw_fd(made) };
    for (path, access) in &allowed.paths {
        allow_path(&rules, path, access_bits(*access) & handled)
            .doing(|| format!("allow {} to this process", path.display()))?;
    }
    if let TcpPorts::Only(ports) = &allowed.tcp_ports
        && version >= 4
    {
        for port in ports {
            let rule = NetPort { access: BIND_TCP, port: u64::from(*port) };
            add(&rules, RULE_NET_PORT, &rule).doing(|| format!("allow port {port} to this process"))?;
        }
    }
    // SAFETY: takes two integers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) }).doing(doing)?;
    Ok(Some(version))
}

/// What is refused unless it is allowed.
fn handled(version: u32) -> u64 {
    let since = [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEVICE)];
    since.into_iter().filter(|(first, _)| version >= *first).fold(FIRST, |bits, (_, bit)| bits | bit)
}

fn access_bits(access: Access) -> u64 {
    match access {
        Access::Read => READ_FILE | READ_DIR,
        Access::Write => (FIRST | REFER | TRUNCATE) & !(EXECUTE | MAKE_CHAR | MAKE_BLOCK),
    }
}

fn allow_path(rules: &OwnedFd, path: &Path, bits: u64) -> io::Result<()> {
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path);
    let opened = match opened {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Ok(());
        }
        other => other?,
    };
    let access = if opened.metadata()?.is_dir() { bits } else { bits & OF_FILES };
    add(rules, RULE_PATH_BENEATH, &PathBeneath { access, parent: opened.as_raw_fd() })
}

fn add<T>(rules: &OwnedFd, kind: libc::c_int, rule: &T) -> io::Result<()> {
    // SAFETY: callers pass the structure that belongs to the kind; the kernel copies it before it returns.
    let added = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), kind, std::ptr::from_ref(rule), 0)
    };
    check(added).map(drop)
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kernel_is_asked_for_nothing_that_it_does_not_know() {
        assert_eq!(handled(1), FIRST);
        assert_eq!(handled(2), FIRST | REFER);
        assert_eq!(handled(4), FIRST | REFER | TRUNCATE);
        assert_eq!(handled(99), FIRST | REFER | TRUNCATE | IOCTL_DEVICE);
        assert_eq!(access_bits(Access::Write) & (EXECUTE | MAKE_CHAR | MAKE_BLOCK | IOCTL_DEVICE), 0);
    }
}
