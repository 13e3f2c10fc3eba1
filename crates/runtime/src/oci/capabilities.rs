//! The capabilities that a container keeps.

use cri::v1;

use crate::refusal::Refusal;

/// What a process needs to install seccomp and to lower its own bounding set.
const WAY_THERE: [&str; 2] = ["CAP_SYS_ADMIN", "CAP_SETPCAP"];

/// The capabilities that a container keeps unless told otherwise: Docker's and containerd's set.
pub const DEFAULT_CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// The capabilities of a container, sorted. `all` is what this process can give.
///
/// # Errors
/// Names a capability that nobody knows. Source: CRI's `Capability`, names with or without `CAP_`.
pub fn capabilities(
    context: &v1::LinuxContainerSecurityContext,
    all: &[String],
) -> Result<Vec<String>, Refusal> {
    if context.privileged {
        return Ok(sorted(all.to_vec()));
    }
    let mut kept: Vec<String> = DEFAULT_CAPABILITIES.iter().map(|name| (*name).to_owned()).collect();
    let Some(wanted) = &context.capabilities else {
        return Ok(sorted(kept));
    };
    let is_all = |name: &String| name.eq_ignore_ascii_case("ALL");
    if wanted.add_capabilities.iter().any(is_all) {
        kept = all.to_vec();
    }
    if wanted.drop_capabilities.iter().any(is_all) {
        kept.clear();
    }
    for name in wanted.add_capabilities.iter().filter(|name| !is_all(name)) {
        kept.push(full_name(name)?);
    }
    for name in wanted.drop_capabilities.iter().filter(|name| !is_all(name)) {
        let dropped = full_name(name)?;
        kept.retain(|name| *name != dropped);
    }
    kept.retain(|name| all.contains(name));
    Ok(sorted(kept))
}

/// What libcontainer leaves a process until the shim's executor takes over.
pub(super) fn with_way_there(kept: &[String]) -> Vec<String> {
    let mut names = kept.to_vec();
    names.extend(WAY_THERE.iter().map(|name| (*name).to_owned()));
    sorted(names)
}

fn full_name(name: &str) -> Result<String, Refusal> {
    let upper = name.to_ascii_uppercase();
    let full = if upper.starts_with("CAP_") { upper } else { format!("CAP_{upper}") };
    let known: Result<caps::Capability, _> = full.parse();
    known.map(|_| full).map_err(|_| Refusal::Invalid(format!("unknown capability {name:?}")))
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}
