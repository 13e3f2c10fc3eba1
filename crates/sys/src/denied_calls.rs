//! A seccomp filter for a server: what it never needs of the kernel answers `EPERM`.
//!
//! It names what is refused, not what is allowed: C libraries and kernels bring new calls that a server may need, while
//! what breaks out of a process is known.

use nix::libc;

use crate::payload::{Instruction, install_seccomp};
use crate::{Error, Result};

const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = ERRNO | 1;
const ENOSYS: u32 = ERRNO | 38;

/// Offsets in `struct seccomp_data`; both machines put the lower half of an argument first.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// `AUDIT_ARCH_*`: the one interface that this program was made for.
#[cfg(target_arch = "x86_64")]
const OWN_ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const OWN_ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OWN_ARCHITECTURE: Option<u32> = None;

/// Numbers from here on are x32's on x86.
const X32: u32 = 0x4000_0000;
/// `CLONE_NEW*`.
const NEW_NAMESPACES: u32 = 0x7e02_0080;
/// Families of sockets: unix, IPv4, IPv6, and netlink, which the C library resolves names with.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// What is refused whatever its arguments are.
const DENIED: &[libc::c_long] = &[
    // Other programs, and other processes' memory.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_personality,
    // Namespaces, mounts, files by number.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // Wide and often broken parts of the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_fanotify_init,
    // The machine itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];

/// Refuses the calls to this thread and all that it starts, for good. False if there is no filter for this machine.
///
/// # Errors
/// `EACCES` without `no_new_privs`; if the kernel has no seccomp.
pub fn refuse() -> Result<bool> {
    let Some(architecture) = OWN_ARCHITECTURE else { return Ok(false) };
    let filter = filter(architecture)
        .ok_or_else(|| Error::other("refuse system calls", "the filter is too long for its jumps"))?;
    install_seccomp(&filter)?;
    Ok(true)
}

fn step(code: u16, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code, jump_true, jump_false, operand }
}

/// Each check falls through to the next, or returns at once: no jump is longer than over the checks of one call.
fn filter(architecture: u32) -> Option<Vec<Instruction>> {
    let number = |call: libc::c_long| u32::try_from(call).ok();
    let give = |answer: u32| step(RETURN, answer, 0, 0);
    let mut steps = vec![
        step(LOAD_WORD, ARCHITECTURE, 0, 0),
        step(JUMP_IF_EQUAL, architecture, 1, 0),
        give(EPERM),
        step(LOAD_WORD, NUMBER, 0, 0),
        step(JUMP_IF_AT_LEAST, X32, 0, 1),
        give(EPERM),
    ];
    for call in DENIED {
        steps.extend([step(JUMP_IF_EQUAL, number(*call)?, 0, 1), give(EPERM)]);
    }
    // The C library falls back to clone, whose flags can be looked at.
    steps.extend([step(JUMP_IF_EQUAL, number(libc::SYS_clone3)?, 0, 1), give(ENOSYS)]);
    steps.extend([
        step(JUMP_IF_EQUAL, number(libc::SYS_clone)?, 0, 4),
        step(LOAD_WORD, FIRST_ARGUMENT, 0, 0),
        step(JUMP_IF_ANY_BIT, NEW_NAMESPACES, 0, 1),
        give(EPERM),
        give(ALLOW),
    ]);
    let families = u8::try_from(FAMILIES.len()).ok()?;
    steps.push(step(JUMP_IF_EQUAL, number(libc::SYS_socket)?, 0, families + 2));
    steps.push(step(LOAD_WORD, FIRST_ARGUMENT, 0, 0));
    for (left, family) in (1..=families).rev().zip(FAMILIES) {
        steps.push(step(JUMP_IF_EQUAL, u32::try_from(family).ok()?, left, 0));
    }
    steps.extend([give(EPERM), give(ALLOW)]);
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do with a call.
    fn judge(filter: &[Instruction], architecture: u32, call: libc::c_long, argument: u32) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let step = filter[at];
            let jump = |holds: bool| usize::from(if holds { step.jump_true } else { step.jump_false });
            at += 1;
            at += match step.code {
                LOAD_WORD => {
                    word = match step.operand {
                        NUMBER => u32::try_from(call).unwrap(),
                        ARCHITECTURE => architecture,
                        FIRST_ARGUMENT => argument,
                        other => panic!("nothing is loaded from {other}"),
                    };
                    0
                }
                JUMP_IF_EQUAL => jump(word == step.operand),
                JUMP_IF_AT_LEAST => jump(word >= step.operand),
                JUMP_IF_ANY_BIT => jump(word & step.operand != 0),
                RETURN => return step.operand,
                other => panic!("there is no operation {other}"),
            };
        }
    }

    #[test]
    fn what_breaks_out_is_refused_and_what_serves_is_not() {
        let Some(own) = OWN_ARCHITECTURE else { return };
        let filter = filter(own).unwrap();
        let check = |name: &str, call: libc::c_long, argument: u32, expected: u32| {
            assert_eq!(judge(&filter, own, call, argument), expected, "{name}");
        };
        for call in DENIED {
            check("denied", *call, 0, EPERM);
        }
        check("a thread", libc::SYS_clone, 0x003d_0f00, ALLOW);
        check("a user namespace", libc::SYS_clone, 0x1000_0000, EPERM);
        check("a namespace among others", libc::SYS_clone, 0x4002_0011, EPERM);
        check("clone3", libc::SYS_clone3, 0, ENOSYS);
        for (family, expected) in [
            (libc::AF_UNIX, ALLOW),
            (libc::AF_INET, ALLOW),
            (libc::AF_INET6, ALLOW),
            (libc::AF_NETLINK, ALLOW),
        ]
        .into_iter()
        .chain([
            (libc::AF_PACKET, EPERM),
            (libc::AF_VSOCK, EPERM),
            (libc::AF_ALG, EPERM),
            (0, EPERM),
        ]) {
            check("a socket", libc::SYS_socket, u32::try_from(family).unwrap(), expected);
        }
        for call in [libc::SYS_read, libc::SYS_openat, libc::SYS_futex, libc::SYS_mmap, libc::SYS_accept4] {
            check("a server's", call, libc::AF_PACKET as u32, ALLOW);
        }
        assert_eq!(judge(&filter, own ^ 1, libc::SYS_read, 0), EPERM, "another machine's interface");
        check("x32", libc::c_long::from(X32) + libc::SYS_read, 0, EPERM);
    }
}
