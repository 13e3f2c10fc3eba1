//! Profiles as files have them, and the default one in that form. Source: the OCI runtime specification,
//! `linux.seccomp`; what a Pod's `Localhost` profile is written in.

use std::collections::{BTreeMap, HashMap, HashSet};

use caps::Capability;
use serde::{Deserialize, Serialize};
use sys::payload::Instruction;

use crate::refusal::Refusal;

use super::interfaces::{self, Interface};
use super::{
    AF_VSOCK, Compare, Condition, ENOSYS, EPERM, ERRNO, Matcher, NEW_NAMESPACES, PERSONALITIES, Program,
    syscalls,
};

/// The treatment of each system call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Profile {
    /// The treatment of calls that no rule names.
    pub default_action: String,
    /// The error of `SCMP_ACT_ERRNO` and `SCMP_ACT_TRACE`; `EPERM` if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<u32>,
    /// The architectures whose calls are meant beside this machine's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<String>,
    /// The same, as Docker's profiles have it. Empty once read.
    #[serde(skip_serializing)]
    pub arch_map: Vec<Family>,
    /// The flags with which the filter is installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The rules.
    pub syscalls: Vec<Rule>,
}

/// The architectures of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Family {
    /// The machine's own.
    pub architecture: String,
    /// The architectures that it can run beside that.
    pub sub_architectures: Option<Vec<String>>,
}

/// The treatment of some system calls.
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
    /// The conditions, which must all hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Argument>,
}

/// The condition on an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Argument {
    /// The argument's number, from 0 on.
    pub index: u32,
    /// The value that it is compared with, or masked with.
    pub value: u64,
    /// The value that it is compared with after it was masked.
    pub value_two: u64,
    /// Such as `SCMP_CMP_EQ`.
    pub op: String,
}

impl Profile {
    /// The profile in a file.
    ///
    /// # Errors
    /// What of it cannot be read.
    pub fn read(text: &[u8]) -> serde_json::Result<Self> {
        let mut profile: Self = serde_json::from_slice(text)?;
        let [own, ..] = &interfaces::ALL;
        let of_this = profile.arch_map.drain(..).filter(|family| family.architecture == own.name);
        let more: Vec<String> = of_this.filter_map(|family| family.sub_architectures).flatten().collect();
        if !more.is_empty() {
            profile.architectures.push(own.name.to_owned());
            profile.architectures.extend(more);
        }
        Ok(profile)
    }

    /// The default profile of a container that keeps these capabilities.
    pub fn default_for(keep: &HashSet<Capability>) -> Self {
        let kept = syscalls::BY_CAPABILITY.iter().filter(|(capability, _)| keep.contains(capability));
        let kept: Vec<&str> = kept.flat_map(|(_, names)| names.iter().copied()).collect();
        let allow = |names: &[&str], args: Vec<Argument>| Rule {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            action: "SCMP_ACT_ALLOW".into(),
            errno_ret: None,
            args,
        };
        let first = |op: &str, value: u64, value_two: u64| {
            vec![Argument { index: 0, value, value_two, op: op.into() }]
        };
        let mut rules = vec![allow(&[syscalls::ALWAYS, &kept].concat(), Vec::new())];
        rules.extend(PERSONALITIES.map(|known| allow(&["personality"], first("SCMP_CMP_EQ", known, 0))));
        rules.push(allow(&["socket"], first("SCMP_CMP_NE", AF_VSOCK, 0)));
        if !kept.contains(&"clone") {
            rules.push(allow(&["clone"], first("SCMP_CMP_MASKED_EQ", NEW_NAMESPACES, 0)));
            let unknown = allow(&["clone3"], Vec::new());
            rules.push(Rule { action: "SCMP_ACT_ERRNO".into(), errno_ret: Some(ENOSYS), ..unknown });
        }
        Self {
            default_action: "SCMP_ACT_ERRNO".into(),
            default_errno_ret: Some(EPERM),
            architectures: interfaces::ALL.iter().map(|interface| interface.name.to_owned()).collect(),
            syscalls: rules,
            ..Self::default()
        }
    }

    /// The filter.
    ///
    /// # Errors
    /// Names what of the profile cannot be carried out.
    pub fn compile(&self) -> Result<Vec<Instruction>, Refusal> {
        let otherwise = action(&self.default_action, self.default_errno_ret)?;
        let mut matchers: HashMap<&str, Vec<Matcher>> = HashMap::new();
        for rule in &self.syscalls {
            let action = action(&rule.action, rule.errno_ret)?;
            let conditions = rule.args.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
            for name in &rule.names {
                let matcher = Matcher { conditions: conditions.clone(), action };
                matchers.entry(name).or_default().push(matcher);
            }
        }
        // What is newer than the profile's author knew is missing, not forbidden: C libraries fall back.
        let beyond = if otherwise & 0xffff_0000 == ERRNO { ERRNO | ENOSYS } else { otherwise };
        let program = |interface: &'static Interface| {
            let numbered = |(name, number): interfaces::Call| Some((number, matchers.get(name)?.clone()));
            let matchers: BTreeMap<_, _> = interface.calls().into_iter().filter_map(numbered).collect();
            Program { interface, matchers, otherwise, beyond }
        };
        let is_own = |interface: &Interface| interface.name == interfaces::ALL[0].name;
        let is_named = |interface: &Interface| self.architectures.iter().any(|name| name == interface.name);
        let wanted = interfaces::ALL.iter().filter(|it| is_own(it) || is_named(it));
        let filter = super::compile(&wanted.map(program).collect::<Vec<_>>());
        if filter.len() > INSTRUCTIONS_MAX {
            let why = format!("the seccomp profile has more than {INSTRUCTIONS_MAX} instructions");
            return Err(Refusal::Unsupported(why));
        }
        Ok(filter)
    }
}

/// Most instructions of a filter. Source: the kernel's `BPF_MAXINSNS`.
const INSTRUCTIONS_MAX: usize = 4096;

fn condition(argument: &Argument) -> Result<Condition, Refusal> {
    const ARGUMENTS: u32 = 6;
    if argument.index >= ARGUMENTS {
        let why = format!("seccomp: args.index {} must be less than {ARGUMENTS}", argument.index);
        return Err(Refusal::Invalid(why));
    }
    let (compare, value) = match argument.op.as_str() {
        "SCMP_CMP_NE" => (Compare::NotEqual, argument.value),
        "SCMP_CMP_LT" => (Compare::Less, argument.value),
        "SCMP_CMP_LE" => (Compare::LessOrEqual, argument.value),
        "SCMP_CMP_EQ" => (Compare::Equal, argument.value),
        "SCMP_CMP_GE" => (Compare::GreaterOrEqual, argument.value),
        "SCMP_CMP_GT" => (Compare::Greater, argument.value),
        "SCMP_CMP_MASKED_EQ" => (Compare::Masked(argument.value), argument.value_two),
        other => return Err(Refusal::Invalid(format!("seccomp: args.op {other:?} is unknown"))),
    };
    Ok(Condition { argument: argument.index, compare, value })
}

/// Source: seccomp(2), `SECCOMP_RET_*`.
fn action(name: &str, errno: Option<u32>) -> Result<u32, Refusal> {
    let errno = errno.unwrap_or(EPERM) & 0xffff;
    Ok(match name {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => 0,
        "SCMP_ACT_KILL_PROCESS" => 0x8000_0000,
        "SCMP_ACT_TRAP" => 0x0003_0000,
        "SCMP_ACT_ERRNO" => ERRNO | errno,
        "SCMP_ACT_TRACE" => 0x7ff0_0000 | errno,
        "SCMP_ACT_LOG" => 0x7ffc_0000,
        "SCMP_ACT_ALLOW" => super::ALLOW,
        other => {
            let why = format!("seccomp: action {other:?} is not supported by this runtime");
            return Err(Refusal::Unsupported(why));
        }
    })
}

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::super::ALLOW;
    use super::super::tests::{OWN, run};
    use super::*;

    fn check(profile: &str, number: i64, argument: u64, expect: Result<u32, &str>) {
        let profile = Profile::read(profile.as_bytes()).unwrap();
        let ran = profile.compile().map(|filter| run(&filter, OWN, number, argument));
        let ran = ran.map_err(|refusal| refusal.to_string());
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
    #[cfg(target_arch = "x86_64")]
    fn only_the_interfaces_that_a_profile_names_are_let_through() {
        const X86: (u32, i64) = (0x4000_0003, 24);
        const X32: (u32, i64) = (OWN, interfaces::X32 as i64 + 102);
        let docker = |own: &str| {
            format!(
                r#""archMap": [{{"architecture": "{own}", "subArchitectures": ["SCMP_ARCH_X86"]}},
                               {{"architecture": "SCMP_ARCH_RISCV64", "subArchitectures": null}}]"#
            )
        };
        for (said, on_x86, on_x32) in [
            (r#""architectures": []"#, false, false),
            (r#""architectures": ["SCMP_ARCH_X86"]"#, true, false),
            (r#""architectures": ["SCMP_ARCH_X32", "SCMP_ARCH_X86_64"]"#, false, true),
            (docker("SCMP_ARCH_X86_64").as_str(), true, false),
            (docker("SCMP_ARCH_AARCH64").as_str(), false, false),
        ] {
            let text = format!(
                r#"{{"defaultAction": "SCMP_ACT_KILL", {said},
                    "syscalls": [{{"names": ["getuid"], "action": "SCMP_ACT_ALLOW"}}]}}"#
            );
            let profile = Profile::read(text.as_bytes()).unwrap();
            let again: Profile = serde_json::from_str(&serde_json::to_string(&profile).unwrap()).unwrap();
            let filter = again.compile().unwrap();
            assert_eq!(run(&filter, OWN, 102, 0), ALLOW, "{said}");
            let verdict = |is_allowed: bool| if is_allowed { ALLOW } else { ERRNO | ENOSYS };
            assert_eq!(run(&filter, X86.0, X86.1, 0), verdict(on_x86), "{said}");
            assert_eq!(run(&filter, X32.0, X32.1, 0), verdict(on_x32), "{said}");
        }
    }
}
