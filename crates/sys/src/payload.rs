//! The last steps of a process before it becomes a container's payload.
//!
//! For a process with one thread that is about to exec.

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, SigmaskHow, sigaction, sigprocmask};

use crate::{Doing, Error, Result};

/// Gives every signal its default action and blocks none: what a shim ignores or blocks is no business of its
/// containers (Rust ignores `SIGPIPE` from the start).
pub fn reset_signals() -> Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default action runs no code of ours.
        unsafe { sigaction(signal, &default) }.doing(|| format!("reset {signal}"))?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).doing(|| "unblock all signals".into())
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
    let installed = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if installed == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error()).doing(|| "install a seccomp filter".into())
}
