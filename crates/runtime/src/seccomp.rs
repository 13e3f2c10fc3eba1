//! Seccomp filters: the default one, and what a profile's file says, compiled to BPF here.
//!
//! By default, what is not listed answers `EPERM`, what is newer than the list `ENOSYS`, so that C libraries fall back.
//! Calls by an interface that the profile does not name answer `ENOSYS`. Source: moby's default profile.

mod interfaces;
mod profile;
mod syscalls;

use std::collections::BTreeMap;

use interfaces::Interface;
use sys::payload::Instruction;

pub use profile::Profile;

const LOAD_WORD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_ABOVE: u16 = 0x25;
const JUMP_AT_LEAST: u16 = 0x35;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// Offsets in `struct seccomp_data`; an argument has 8 bytes, the lower half first.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// `CLONE_NEW*` without `CLONE_NEWTIME`, which clone(2) cannot make.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// vsock reaches the host of a virtual machine.
const AF_VSOCK: u64 = 40;
/// Linux, 32 bit personality, and asking for the current one.
const PERSONALITIES: [u64; 5] = [0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// How an argument is compared. Source: the OCI runtime specification, `linux.seccomp.syscalls.args.op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    NotEqual,
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
    /// Equal after it was masked with this.
    Masked(u64),
}

/// What an argument must be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    argument: u32,
    compare: Compare,
    value: u64,
}

/// What is done if every condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Matcher {
    conditions: Vec<Condition>,
    action: u32,
}

/// What is done with each system call of an interface, by number: the first matcher that holds decides.
struct Program {
    interface: &'static Interface,
    matchers: BTreeMap<u32, Vec<Matcher>>,
    /// If none holds.
    otherwise: u32,
    /// What is done with numbers above all of these.
    beyond: u32,
}

/// The filter of the programs of different interfaces, in the order of [`interfaces::ALL`].
fn compile(programs: &[Program]) -> Vec<Instruction> {
    let nothing = vec![instruction(RETURN, ERRNO | ENOSYS)];
    let mut filter = vec![instruction(LOAD_WORD, ARCHITECTURE)];
    for shared in programs.chunk_by(|a, b| a.interface.architecture == b.interface.architecture) {
        let mut runs: Vec<_> = shared.iter().flat_map(Program::runs).collect();
        let end = shared.iter().map(|program| program.interface.first + interfaces::X32).max();
        runs.extend(end.map(|end| (end, nothing.clone())));
        let mut code = vec![instruction(LOAD_WORD, NUMBER)];
        code.extend(search(&runs));
        let architecture = shared.first().map_or(0, |program| program.interface.architecture);
        filter.push(jump(JUMP_EQUAL, architecture, 1, 0));
        filter.push(instruction(JUMP, length(&code)));
        filter.extend(code);
    }
    filter.extend(nothing);
    filter
}

impl Program {
    /// First number of each run of numbers with the same code, in order.
    fn runs(&self) -> Vec<(u32, Vec<Instruction>)> {
        let mut runs: Vec<(u32, Vec<Instruction>)> = Vec::new();
        let mut push = |number: u32, code: Vec<Instruction>| {
            if runs.last().is_none_or(|(_, last)| *last != code) {
                runs.push((self.interface.first + number, code));
            }
        };
        let mut next = 0;
        for (number, matchers) in &self.matchers {
            if next < *number {
                push(next, vec![instruction(RETURN, self.otherwise)]);
            }
            push(*number, decide(matchers, self.otherwise));
            next = number + 1;
        }
        push(next, vec![instruction(RETURN, self.beyond)]);
        runs
    }
}

/// A binary search over the runs.
fn search(runs: &[(u32, Vec<Instruction>)]) -> Vec<Instruction> {
    let (low, high) = runs.split_at(runs.len() / 2);
    let Some((start, code)) = high.first() else { return Vec::new() };
    if low.is_empty() {
        return code.clone();
    }
    let (low, high) = (search(low), search(high));
    // Conditional jumps reach 255 instructions only.
    let mut code = vec![jump(JUMP_AT_LEAST, *start, 0, 1), instruction(JUMP, length(&low))];
    code.extend(low);
    code.extend(high);
    code
}

fn decide(matchers: &[Matcher], otherwise: u32) -> Vec<Instruction> {
    let mut code = Vec::new();
    for matcher in matchers {
        // From the back, since each condition that fails jumps to the end.
        let mut rest = vec![instruction(RETURN, matcher.action)];
        for condition in matcher.conditions.iter().rev() {
            let mut checked = test(condition);
            checked.push(instruction(JUMP, length(&rest)));
            checked.append(&mut rest);
            rest = checked;
        }
        code.append(&mut rest);
        if matcher.conditions.is_empty() {
            return code;
        }
    }
    code.push(instruction(RETURN, otherwise));
    code
}

/// Skips the one instruction that follows if the condition holds.
fn test(condition: &Condition) -> Vec<Instruction> {
    let low = instruction(LOAD_WORD, FIRST_ARGUMENT + 8 * condition.argument);
    let high = instruction(LOAD_WORD, FIRST_ARGUMENT + 8 * condition.argument + 4);
    let (upper, lower) = halves(condition.value);
    let equal = |operand: u32, yes: u8, no: u8| jump(JUMP_EQUAL, operand, yes, no);
    match condition.compare {
        Compare::Equal => vec![high, equal(upper, 0, 2), low, equal(lower, 1, 0)],
        Compare::NotEqual => vec![high, equal(upper, 0, 3), low, equal(lower, 0, 1)],
        Compare::Masked(mask) => {
            let (mask_upper, mask_lower) = halves(mask);
            let and = |mask: u32| instruction(AND, mask);
            vec![high, and(mask_upper), equal(upper, 0, 3), low, and(mask_lower), equal(lower, 1, 0)]
        }
        Compare::GreaterOrEqual => {
            let last = jump(JUMP_AT_LEAST, lower, 1, 0);
            vec![high, jump(JUMP_ABOVE, upper, 4, 0), equal(upper, 0, 2), low, last]
        }
        Compare::Greater => {
            let last = jump(JUMP_ABOVE, lower, 1, 0);
            vec![high, jump(JUMP_ABOVE, upper, 4, 0), equal(upper, 0, 2), low, last]
        }
        Compare::Less => {
            let last = jump(JUMP_AT_LEAST, lower, 0, 1);
            vec![high, jump(JUMP_ABOVE, upper, 3, 0), equal(upper, 0, 3), low, last]
        }
        Compare::LessOrEqual => {
            let last = jump(JUMP_ABOVE, lower, 0, 1);
            vec![high, jump(JUMP_ABOVE, upper, 3, 0), equal(upper, 0, 3), low, last]
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
fn halves(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}

fn length(code: &[Instruction]) -> u32 {
    u32::try_from(code.len()).unwrap_or(u32::MAX)
}

fn instruction(code: u16, operand: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, operand }
}

fn jump(code: u16, operand: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code, jump_true, jump_false, operand }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;

    use caps::Capability;
    use nix::libc;

    use super::*;

    #[cfg(target_arch = "x86_64")]
    pub(super) const OWN: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    pub(super) const OWN: u32 = 0xc000_00b7;

    fn default_filter(keep: &HashSet<Capability>) -> Vec<Instruction> {
        Profile::default_for(keep).compile().unwrap()
    }

    const HIGH: u32 = FIRST_ARGUMENT + 4;

    /// What the kernel would make of the filter.
    pub(super) fn run(filter: &[Instruction], architecture: u32, number: i64, argument: u64) -> u32 {
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
                        FIRST_ARGUMENT => halves(argument).1,
                        HIGH => halves(argument).0,
                        other => panic!("load of {other}"),
                    };
                    continue;
                }
                AND => {
                    accumulator &= it.operand;
                    continue;
                }
                JUMP => {
                    at += it.operand as usize;
                    continue;
                }
                RETURN => return it.operand,
                JUMP_EQUAL => accumulator == it.operand,
                JUMP_AT_LEAST => accumulator >= it.operand,
                JUMP_ABOVE => accumulator > it.operand,
                other => panic!("code {other}"),
            };
            at += usize::from(if taken { it.jump_true } else { it.jump_false });
        }
    }

    #[test]
    fn calls_get_the_verdict_of_the_profile() {
        let check = |keep: &[Capability], number: i64, argument: u64, expect: u32| {
            let filter = default_filter(&keep.iter().copied().collect());
            assert!(filter.len() < 4096, "{}", filter.len());
            assert_eq!(run(&filter, OWN, number, argument), expect, "{number} {argument:#x} {keep:?}");
        };
        let (eperm, enosys) = (ERRNO | EPERM, ERRNO | ENOSYS);
        check(&[], libc::SYS_read, 0, ALLOW);
        check(&[], libc::SYS_execve, 0, ALLOW);
        check(&[], libc::SYS_mount, 0, eperm);
        check(&[Capability::CAP_SYS_ADMIN], libc::SYS_mount, 0, ALLOW);
        check(&[], libc::SYS_chroot, 0, eperm);
        check(&[Capability::CAP_SYS_CHROOT], libc::SYS_chroot, 0, ALLOW);
        check(&[], libc::SYS_clone, libc::SIGCHLD as u64, ALLOW);
        check(&[], libc::SYS_clone, libc::CLONE_NEWUSER as u64, eperm);
        check(&[Capability::CAP_SYS_ADMIN], libc::SYS_clone, libc::CLONE_NEWNS as u64, ALLOW);
        check(&[], libc::SYS_clone3, 0, enosys);
        check(&[], libc::SYS_socket, libc::AF_INET as u64, ALLOW);
        check(&[], libc::SYS_socket, AF_VSOCK, eperm);
        check(&[], libc::SYS_personality, 0xffff_ffff, ALLOW);
        check(&[], libc::SYS_personality, 1, eperm);
        check(&[], libc::SYS_kexec_load, 0, eperm);
        check(&[], 5000, 0, enosys);
        check(&[], i64::from(interfaces::X32) << 1, 0, enosys);
        let filter = default_filter(&HashSet::new());
        assert_eq!(run(&filter, 0x1234, libc::SYS_read, 0), enosys);
    }

    #[test]
    fn every_listed_call_is_allowed_by_every_interface_and_no_other() {
        let filter = default_filter(&HashSet::new());
        for interface in &interfaces::ALL {
            for (name, number) in interface.calls() {
                let listed = syscalls::ALWAYS.contains(&name);
                let is_special = ["clone", "clone3", "socket", "personality"].contains(&name);
                if !is_special {
                    let verdict =
                        run(&filter, interface.architecture, i64::from(interface.first + number), 0);
                    assert_eq!(verdict == ALLOW, listed, "{} {name}", interface.name);
                }
            }
        }
    }

    #[test]
    fn every_listed_name_is_of_an_interface_of_some_machine() {
        const OF_ARM: [&str; 8] = [
            "arm_fadvise64_64",
            "arm_sync_file_range",
            "breakpoint",
            "cacheflush",
            "recv",
            "send",
            "set_tls",
            "sync_file_range2",
        ];
        let known: HashSet<&str> =
            interfaces::ALL.iter().flat_map(|it| it.calls()).map(|(name, _)| name).collect();
        let of_capabilities = syscalls::BY_CAPABILITY.iter().flat_map(|(_, names)| names.iter());
        let unknown: Vec<&&str> =
            syscalls::ALWAYS.iter().chain(of_capabilities).filter(|name| !known.contains(**name)).collect();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(unknown, OF_ARM.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_call_is_judged_alike_whatever_its_number_is() {
        const X86: u32 = 0x4000_0003;
        const ON_X32: i64 = interfaces::X32 as i64;
        let filter = default_filter(&HashSet::new());
        let (eperm, enosys) = (ERRNO | EPERM, ERRNO | ENOSYS);
        for (what, [own, x32, x86], argument, expect) in [
            ("getuid", [102, 102, 24], 0, ALLOW),
            ("rt_sigaction", [13, 512, 174], 0, ALLOW),
            ("execve", [59, 520, 11], 0, ALLOW),
            ("mount", [165, 165, 21], 0, eperm),
            ("unshare", [272, 272, 310], 0, eperm),
            ("clone of a process", [56, 56, 120], 17, ALLOW),
            ("clone of a namespace", [56, 56, 120], 0x1000_0000, eperm),
            ("clone3", [435, 435, 435], 0, enosys),
            ("socket of AF_INET", [41, 41, 359], 2, ALLOW),
            ("socket of AF_VSOCK", [41, 41, 359], AF_VSOCK, eperm),
            ("what is newer", [463, 463, 463], 0, enosys),
        ] {
            assert_eq!(run(&filter, OWN, own, argument), expect, "{what}");
            assert_eq!(run(&filter, X86, x86, argument), expect, "{what}: x86");
            // What lies below x32's own numbers is forbidden, what is above is unknown to both.
            let on_x32 = run(&filter, OWN, ON_X32 + x32, argument);
            assert!(on_x32 == expect || expect == enosys && on_x32 == eperm, "{what}: x32 {on_x32:#x}");
        }
        assert_eq!(run(&filter, X86, 199, 0), ALLOW, "getuid32");
    }
}
