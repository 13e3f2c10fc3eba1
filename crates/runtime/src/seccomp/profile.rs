//! Profiles as files have them, and the default one in that form. Source: the OCI runtime specification,
//! `linux.seccomp`; what a Pod's `Localhost` profile is written in.

use std::collections::{BTreeMap, HashSet};
use std::str::FromStr;

use caps::Capability;
use serde::{Deserialize, Serialize};
use sys::payload::Instruction;
use syscalls::Sysno;

use super::{Compare, Condition, ENOSYS, EPERM, ERRNO, Matcher, Program};

/// What is done with each system call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Profile {
    /// What is done with calls that no rule names.
    pub default_action: String,
    /// The error of `SCMP_ACT_ERRNO` and `SCMP_ACT_TRACE`; `EPERM` if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<u32>,
    /// Whose calls are meant; only those of this machine's own architecture are let through.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<String>,
    /// How the filter is installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The rules.
    pub syscalls: Vec<Rule>,
}

/// What is done with some system calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Their names; those that this machine does not have are left out.
    pub names: Vec<String>,
    /// Such as `SCMP_ACT_ALLOW`.
    pub action: String,
    /// As [`Profile::default_errno_ret`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<u32>,
    /// Which must all hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Argument>,
}

/// What an argument must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Argument {
    /// Which one, from 0 on.
    pub index: u32,
    /// What it is compared with, or masked with.
    pub value: u64,
    /// What it is compared with after it was masked.
    pub value_two: u64,
    /// Such as `SCMP_CMP_EQ`.
    pub op: String,
}

impl Profile {
    /// The default profile of a container that keeps these capabilities, for a runtime that compiles it itself.
    pub fn default_for(keep: &HashSet<Capability>) -> Self {
        let program = super::default_program(keep);
        let mut rules: Vec<Rule> = Vec::new();
        for (number, matchers) in &program.matchers {
            let Some(name) = usize::try_from(*number).ok().and_then(Sysno::new) else { continue };
            for matcher in matchers {
                let rule = rule(matcher);
                match rules.iter_mut().find(|known| known.args == rule.args && known.same_action(&rule)) {
                    Some(known) => known.names.push(name.name().to_owned()),
                    None => rules.push(Rule { names: vec![name.name().to_owned()], ..rule }),
                }
            }
        }
        Self {
            default_action: "SCMP_ACT_ERRNO".into(),
            default_errno_ret: Some(EPERM),
            architectures: vec![ARCHITECTURE.into()],
            flags: Vec::new(),
            syscalls: rules,
        }
    }

    /// The filter.
    ///
    /// # Errors
    /// Names what of the profile cannot be carried out.
    pub fn compile(&self) -> Result<Vec<Instruction>, String> {
        let otherwise = action(&self.default_action, self.default_errno_ret)?;
        let mut matchers: BTreeMap<u32, Vec<Matcher>> = BTreeMap::new();
        for rule in &self.syscalls {
            let action = action(&rule.action, rule.errno_ret)?;
            let conditions = rule.args.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
            let known = rule.names.iter().filter_map(|name| Sysno::from_str(name).ok());
            for number in known.filter_map(|name| u32::try_from(name.id()).ok()) {
                let matcher = Matcher { conditions: conditions.clone(), action };
                matchers.entry(number).or_default().push(matcher);
            }
        }
        // What is newer than the profile's author knew is missing, not forbidden: C libraries fall back.
        let beyond = if otherwise & 0xffff_0000 == ERRNO { ERRNO | ENOSYS } else { otherwise };
        let newest = u32::try_from(Sysno::last().id()).unwrap_or_default();
        let filter = Program { matchers, otherwise, newest, beyond }.compile();
        if filter.len() > INSTRUCTIONS_MAX {
            return Err(format!("the seccomp profile has more than {INSTRUCTIONS_MAX} instructions"));
        }
        Ok(filter)
    }
}

/// Most instructions of a filter. Source: the kernel's `BPF_MAXINSNS`.
const INSTRUCTIONS_MAX: usize = 4096;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";

impl Rule {
    fn same_action(&self, other: &Self) -> bool {
        self.action == other.action && self.errno_ret == other.errno_ret
    }
}

/// A matcher of the default profile, whose actions are to allow and to fail.
fn rule(matcher: &Matcher) -> Rule {
    let is_error = matcher.action & 0xffff_0000 == ERRNO;
    Rule {
        names: Vec::new(),
        action: if is_error { "SCMP_ACT_ERRNO" } else { "SCMP_ACT_ALLOW" }.into(),
        errno_ret: is_error.then_some(matcher.action & 0xffff),
        args: matcher.conditions.iter().map(argument).collect(),
    }
}

fn argument(condition: &Condition) -> Argument {
    let (op, value, value_two) = match condition.compare {
        Compare::NotEqual => ("SCMP_CMP_NE", condition.value, 0),
        Compare::Less => ("SCMP_CMP_LT", condition.value, 0),
        Compare::LessOrEqual => ("SCMP_CMP_LE", condition.value, 0),
        Compare::Equal => ("SCMP_CMP_EQ", condition.value, 0),
        Compare::GreaterOrEqual => ("SCMP_CMP_GE", condition.value, 0),
        Compare::Greater => ("SCMP_CMP_GT", condition.value, 0),
        Compare::Masked(mask) => ("SCMP_CMP_MASKED_EQ", mask, condition.value),
    };
    Argument { index: condition.argument, value, value_two, op: op.into() }
}

fn condition(argument: &Argument) -> Result<Condition, String> {
    const ARGUMENTS: u32 = 6;
    if argument.index >= ARGUMENTS {
        return Err(format!("seccomp: args.index {} must be less than {ARGUMENTS}", argument.index));
    }
    let (compare, value) = match argument.op.as_str() {
        "SCMP_CMP_NE" => (Compare::NotEqual, argument.value),
        "SCMP_CMP_LT" => (Compare::Less, argument.value),
        "SCMP_CMP_LE" => (Compare::LessOrEqual, argument.value),
        "SCMP_CMP_EQ" => (Compare::Equal, argument.value),
        "SCMP_CMP_GE" => (Compare::GreaterOrEqual, argument.value),
        "SCMP_CMP_GT" => (Compare::Greater, argument.value),
        "SCMP_CMP_MASKED_EQ" => (Compare::Masked(argument.value), argument.value_two),
        other => return Err(format!("seccomp: args.op {other:?} is unknown")),
    };
    Ok(Condition { argument: argument.index, compare, value })
}

/// Source: seccomp(2), `SECCOMP_RET_*`.
fn action(name: &str, errno: Option<u32>) -> Result<u32, String> {
    let errno = errno.unwrap_or(EPERM) & 0xffff;
    Ok(match name {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => 0,
        "SCMP_ACT_KILL_PROCESS" => 0x8000_0000,
        "SCMP_ACT_TRAP" => 0x0003_0000,
        "SCMP_ACT_ERRNO" => ERRNO | errno,
        "SCMP_ACT_TRACE" => 0x7ff0_0000 | errno,
        "SCMP_ACT_LOG" => 0x7ffc_0000,
        "SCMP_ACT_ALLOW" => super::ALLOW,
        other => return Err(format!("seccomp: action {other:?} is not supported by this runtime")),
    })
}

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::super::tests::run;
    use super::super::{ALLOW, THIS_ARCHITECTURE};
    use super::*;

    fn check(profile: &str, number: i64, argument: u64, expect: Result<u32, &str>) {
        let profile: Profile = serde_json::from_str(profile).unwrap();
        let ran = profile.compile().map(|filter| run(&filter, THIS_ARCHITECTURE, number, argument));
        assert_eq!(ran, expect.map_err(str::to_owned), "{number} {argument:#x}");
    }

    #[test]
    fn a_profile_does_what_it_says() {
        let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 13, "syscalls": [
            {"names": ["read", "not_of_this_machine"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5},
            {"names": ["exit"], "action": "SCMP_ACT_KILL_PROCESS"},
            {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]},
            {"names": ["socket"], "action": "SCMP_ACT_LOG", "args": [{"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}]}
        ]}"#;
        check(text, libc::SYS_read, 0, Ok(ALLOW));
        check(text, libc::SYS_write, 0, Ok(ERRNO | 13));
        #[cfg(target_arch = "x86_64")]
        check(text, libc::SYS_mkdir, 0, Ok(ERRNO | 5));
        check(text, libc::SYS_exit, 0, Ok(0x8000_0000));
        check(text, libc::SYS_socket, 1, Ok(ALLOW));
        check(text, libc::SYS_socket, 2, Ok(0x7ffc_0000));
        check(text, libc::SYS_socket, 3, Ok(ERRNO | 13));
        check(text, 2000, 0, Ok(ERRNO | ENOSYS));
        let unknown = r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#;
        check(unknown, 0, 0, Err("seccomp: action \"SCMP_ACT_NOTIFY\" is not supported by this runtime"));
    }

    #[test]
    fn arguments_are_compared_with_all_their_bits() {
        const BIG: u64 = 0x1_0000_0005;
        let around = [4, 5, 6, 0xffff_ffff, BIG - 1, BIG, BIG + 1, BIG + (1 << 32)];
        type Holds = fn(u64) -> bool;
        let compared: [(&str, Holds); 7] = [
            ("SCMP_CMP_NE", |it| it != BIG),
            ("SCMP_CMP_LT", |it| it < BIG),
            ("SCMP_CMP_LE", |it| it <= BIG),
            ("SCMP_CMP_EQ", |it| it == BIG),
            ("SCMP_CMP_GE", |it| it >= BIG),
            ("SCMP_CMP_GT", |it| it > BIG),
            ("SCMP_CMP_MASKED_EQ", |it| it & BIG == 5),
        ];
        for (op, holds) in compared {
            let text = format!(
                r#"{{"defaultAction": "SCMP_ACT_KILL", "syscalls": [{{"names": ["socket"], "action": "SCMP_ACT_ALLOW",
                    "args": [{{"index": 0, "value": {BIG}, "valueTwo": 5, "op": "{op}"}}]}}]}}"#
            );
            for argument in around {
                check(&text, libc::SYS_socket, argument, Ok(if holds(argument) { ALLOW } else { 0 }));
            }
        }
    }

    #[test]
    fn the_default_profile_says_what_the_default_filter_does() {
        let keep = HashSet::from([Capability::CAP_SYS_CHROOT]);
        let filter = Profile::default_for(&keep).compile().unwrap();
        let direct = crate::seccomp::default_filter(&keep);
        for number in 0..=i64::from(super::super::syscalls::NEWEST as i32) {
            for argument in [0, 1, 40, 0x0008, 0x0002_0000, 0x1000_0000, 0xffff_ffff] {
                let ran = |filter: &[Instruction]| run(filter, THIS_ARCHITECTURE, number, argument);
                assert_eq!(ran(&filter), ran(&direct), "{number} {argument:#x}");
            }
        }
    }
}
