//! The default seccomp filter: what Docker and containerd let containers call, compiled to BPF here.
//!
//! What is not listed answers `EPERM`, what is newer than the list `ENOSYS`, so that C libraries fall back. Calls of
//! another architecture's interface (32 bit, x32) answer `ENOSYS`. Source: moby's default profile.

mod syscalls;

use std::collections::{BTreeMap, HashSet};

use caps::Capability;
use sys::payload::Instruction;

const LOAD_WORD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

#[cfg(target_arch = "x86_64")]
const THIS_ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const THIS_ARCHITECTURE: u32 = 0xc000_00b7;

/// Bit of x32's system call numbers; also above every number that there is.
const NUMBERS_END: u32 = 0x4000_0000;
/// `CLONE_NEW*` without `CLONE_NEWTIME`, which clone(2) cannot make.
const NEW_NAMESPACES: u32 = 0x7e02_0000;
/// vsock reaches the host of a virtual machine.
const AF_VSOCK: u32 = 40;
/// Linux, 32 bit personality, and asking for the current one.
const PERSONALITIES: [u32; 5] = [0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// What happens to a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allow,
    Errno(u32),
    /// Only one of [`PERSONALITIES`].
    Personality,
    /// Only without new namespaces.
    Clone,
    /// Any family but vsock.
    Socket,
}

/// The filter for a container that keeps these capabilities.
pub fn default_filter(keep: &HashSet<Capability>) -> Vec<Instruction> {
    let mut verdicts: BTreeMap<u32, Verdict> = BTreeMap::new();
    let mut set = |numbers: &[i64], verdict: Verdict| {
        verdicts.extend(numbers.iter().filter_map(|number| Some((u32::try_from(*number).ok()?, verdict))));
    };
    set(syscalls::ALWAYS, Verdict::Allow);
    set(&[syscalls::PERSONALITY], Verdict::Personality);
    set(&[syscalls::SOCKET], Verdict::Socket);
    set(&[syscalls::CLONE], Verdict::Clone);
    set(&[syscalls::CLONE3], Verdict::Errno(ENOSYS));
    for (capability, numbers) in syscalls::BY_CAPABILITY {
        if keep.contains(capability) {
            set(numbers, Verdict::Allow);
        }
    }
    compile(&verdicts, u32::try_from(syscalls::NEWEST).unwrap_or(NUMBERS_END))
}

/// A check of the architecture, then a binary search over runs of equal verdicts.
fn compile(verdicts: &BTreeMap<u32, Verdict>, newest: u32) -> Vec<Instruction> {
    let mut filter = vec![
        instruction(LOAD_WORD, ARCHITECTURE),
        jump(JUMP_EQUAL, THIS_ARCHITECTURE, 1, 0),
        instruction(RETURN, ERRNO | ENOSYS),
        instruction(LOAD_WORD, NUMBER),
    ];
    filter.extend(search(&runs(verdicts, newest)));
    filter
}

/// First number of each run of numbers with the same verdict, in order.
fn runs(verdicts: &BTreeMap<u32, Verdict>, newest: u32) -> Vec<(u32, Verdict)> {
    let mut runs: Vec<(u32, Verdict)> = Vec::new();
    let mut push = |start: u32, verdict: Verdict| {
        if runs.last().is_none_or(|(_, last)| *last != verdict) {
            runs.push((start, verdict));
        }
    };
    for number in 0..=newest {
        push(number, verdicts.get(&number).copied().unwrap_or(Verdict::Errno(EPERM)));
    }
    push(newest + 1, Verdict::Errno(ENOSYS));
    runs
}

fn search(runs: &[(u32, Verdict)]) -> Vec<Instruction> {
    let (low, high) = runs.split_at(runs.len() / 2);
    let Some(&(start, verdict)) = high.first() else { return Vec::new() };
    if low.is_empty() {
        return decide(verdict);
    }
    let (low, high) = (search(low), search(high));
    // Conditional jumps reach 255 instructions only.
    let far = u32::try_from(low.len()).unwrap_or(u32::MAX);
    let mut code = vec![jump(JUMP_AT_LEAST, start, 0, 1), instruction(JUMP, far)];
    code.extend(low);
    code.extend(high);
    code
}

fn decide(verdict: Verdict) -> Vec<Instruction> {
    let allow = instruction(RETURN, ALLOW);
    let deny = instruction(RETURN, ERRNO | EPERM);
    let argument = instruction(LOAD_WORD, FIRST_ARGUMENT);
    match verdict {
        Verdict::Allow => vec![allow],
        Verdict::Errno(number) => vec![instruction(RETURN, ERRNO | number)],
        Verdict::Clone => vec![argument, jump(JUMP_ANY_BIT, NEW_NAMESPACES, 0, 1), deny, allow],
        Verdict::Socket => vec![argument, jump(JUMP_EQUAL, AF_VSOCK, 0, 1), deny, allow],
        Verdict::Personality => {
            let mut code = vec![argument];
            code.extend(PERSONALITIES.iter().flat_map(|known| [jump(JUMP_EQUAL, *known, 0, 1), allow]));
            code.push(deny);
            code
        }
    }
}

fn instruction(code: u16, operand: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, operand }
}

fn jump(code: u16, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code, jump_true, jump_false, operand }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::libc;

    /// What the kernel would make of the filter.
    fn run(filter: &[Instruction], architecture: u32, number: i64, argument: u32) -> u32 {
        let mut accumulator = 0;
        let mut at = 0;
        loop {
            let it = filter[at];
            at += 1;
            let taken = match it.code {
                LOAD_WORD => {
                    accumulator = match it.operand {
                        NUMBER => number as u32,
                        ARCHITECTURE => architecture,
                        FIRST_ARGUMENT => argument,
                        other => panic!("load of {other}"),
                    };
                    continue;
                }
                JUMP => {
                    at += it.operand as usize;
                    continue;
                }
                RETURN => return it.operand,
                JUMP_EQUAL => accumulator == it.operand,
                JUMP_AT_LEAST => accumulator >= it.operand,
                JUMP_ANY_BIT => accumulator & it.operand != 0,
                other => panic!("code {other}"),
            };
            at += usize::from(if taken { it.jump_true } else { it.jump_false });
        }
    }

    #[test]
    fn calls_get_the_verdict_of_the_profile() {
        let check = |keep: &[Capability], number: i64, argument: u32, expect: u32| {
            let filter = default_filter(&keep.iter().copied().collect());
            assert!(filter.len() < 4096, "{}", filter.len());
            assert_eq!(
                run(&filter, THIS_ARCHITECTURE, number, argument),
                expect,
                "{number} {argument:#x} {keep:?}"
            );
        };
        let (eperm, enosys) = (ERRNO | EPERM, ERRNO | ENOSYS);
        check(&[], libc::SYS_read, 0, ALLOW);
        check(&[], libc::SYS_execve, 0, ALLOW);
        check(&[], libc::SYS_mount, 0, eperm);
        check(&[Capability::CAP_SYS_ADMIN], libc::SYS_mount, 0, ALLOW);
        check(&[], libc::SYS_chroot, 0, eperm);
        check(&[Capability::CAP_SYS_CHROOT], libc::SYS_chroot, 0, ALLOW);
        check(&[], libc::SYS_clone, libc::SIGCHLD as u32, ALLOW);
        check(&[], libc::SYS_clone, libc::CLONE_NEWUSER as u32, eperm);
        check(&[Capability::CAP_SYS_ADMIN], libc::SYS_clone, libc::CLONE_NEWNS as u32, ALLOW);
        check(&[], libc::SYS_clone3, 0, enosys);
        check(&[], libc::SYS_socket, libc::AF_INET as u32, ALLOW);
        check(&[], libc::SYS_socket, AF_VSOCK, eperm);
        check(&[], libc::SYS_personality, 0xffff_ffff, ALLOW);
        check(&[], libc::SYS_personality, 1, eperm);
        check(&[], libc::SYS_kexec_load, 0, eperm);
        check(&[], 5000, 0, enosys);
        check(&[], i64::from(NUMBERS_END), 0, enosys);
        let filter = default_filter(&HashSet::new());
        assert_eq!(run(&filter, 0x4000_0003, libc::SYS_read, 0), enosys);
    }

    #[test]
    fn every_listed_number_is_allowed_and_no_other() {
        let filter = default_filter(&HashSet::new());
        for number in 0..=syscalls::NEWEST {
            let listed = syscalls::ALWAYS.contains(&number);
            let special = [syscalls::CLONE, syscalls::CLONE3, syscalls::SOCKET, syscalls::PERSONALITY]
                .contains(&number);
            if !special {
                assert_eq!(run(&filter, THIS_ARCHITECTURE, number, 0) == ALLOW, listed, "{number}");
            }
        }
    }
}
