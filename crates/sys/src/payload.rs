//! The last steps of a process before it becomes a container's payload.
//!
//! For a process with one thread that is about to exec.

use std::os::fd::RawFd;
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

use crate::process::PidFd;
use crate::{Doing, Error, Result};

/// Gives every signal its default action and blocks none: what a shim ignores or blocks is no business of its
/// containers (Rust ignores `SIGPIPE` from the start).
///
/// By system call, since the C library keeps two signals for itself and refuses to change them.
pub fn reset_signals() -> Result<()> {
    const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;
    /// At least as large as every architecture's `struct sigaction` in the kernel; all zero is the default action.
    type Action = [u64; 8];
    const MASK_BYTES: usize = 8;
    let default: Action = [0; 8];
    for signal in SIGNALS.filter(|signal| !matches!(*signal, libc::SIGKILL | libc::SIGSTOP)) {
        let none = std::ptr::null_mut::<Action>();
        // SAFETY: the kernel reads one sigaction from `default` and writes nothing; no code of ours becomes a handler.
        let reset =
            unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, MASK_BYTES) };
        nix::errno::Errno::result(reset).doing(|| format!("reset signal {signal}"))?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).doing(|| "unblock all signals".into())
}

/// Ties this process, which was forked and has not become a payload yet, to the one that it waits for: it is killed
/// when that ends, and closes the `sockets` that it has from it, so that their other ends learn of that end.
///
/// The sockets must be copies by fork, which nothing in this process uses.
///
/// # Errors
/// `parent` has ended already.
pub fn depend_on_parent(parent: &PidFd, sockets: &[RawFd]) -> Result<()> {
    crate::process::die_with_parent(libc::SIGKILL)?;
    // Its end from now on is told. The parent's pid says nothing: in another PID namespace it is 0 in any case.
    if parent.wait(Duration::ZERO)? {
        return Err(Error::other("wait for the payload's start", "the process that starts it has ended"));
    }
    for socket in sockets {
        // SAFETY: closing is an integer call; the caller says that nobody in this process uses the descriptor again.
        let closed = unsafe { libc::close(*socket) };
        nix::errno::Errno::result(closed).doing(|| format!("close descriptor {socket}"))?;
    }
    Ok(())
}

/// Undoes the tie of [`depend_on_parent`].
pub fn outlive_parent() -> Result<()> {
    const NONE: i32 = 0;
    crate::process::die_with_parent(NONE)
}

/// One instruction of classic BPF. Source: linux/filter.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Instructions to skip if true.
    pub jump_true: u8,
    /// Instructions to skip if false.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

/// Installs a seccomp filter for this process and all that it becomes.
///
/// # Errors
/// `EACCES` unless the process has `CAP_SYS_ADMIN` or `no_new_privs`.
pub fn install_seccomp(filter: &[Instruction]) -> Result<()> {
    #[repr(C)]
    struct Program {
        len: libc::c_ushort,
        filter: *const Instruction,
    }
    let len = u16::try_from(filter.len())
        .map_err(|_| Error::other("install a seccomp filter", "it has more than 65,535 instructions"))?;
    let program = Program { len, filter: filter.as_ptr() };
    // SAFETY: the kernel copies `len` instructions, whose layout is sock_filter's, before it returns.
    let installed =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if installed == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error()).doing(|| "install a seccomp filter".into())
}
