//! Security contexts of Pods and containers: users, profiles, system controls, and what each operating system has.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;

use super::At;
use super::pod_view::containers;
use crate::sysctls::{Namespace, dotted};

const ID_MAX: i64 = i32::MAX as i64;
const SYSCTL_BYTES_MAX: usize = 253;
const PROFILE_BYTES_MAX: usize = 4095;
const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
const NOT_FOR_WINDOWS: &str = "cannot be set for a windows pod";
const WINDOWS_ONLY: &str = "windows options cannot be set for a linux pod";

/// The security context of a Pod, and the fields of the spec that it once held.
pub(super) fn pod(spec: &At<'_>, errors: &mut FieldErrors) {
    let context = spec.get("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        context.get(field).between(0, ID_MAX, errors);
    }
    context.get("supplementalGroups").items().for_each(|group| group.between(0, ID_MAX, errors));
    if spec.get("hostPID").flag() && spec.get("shareProcessNamespace").flag() {
        let at =
            At { path: context.path.child("shareProcessNamespace"), ..spec.get("shareProcessNamespace") };
        errors.push(at.invalid("ShareProcessNamespace and HostPID cannot both be enabled"));
    }
    sysctls(spec, errors);
    context.get("fsGroupChangePolicy").if_one_of(&["Always", "OnRootMismatch"], errors);
    seccomp(&context.get("seccompProfile"), errors);
    windows_options(&context.get("windowsOptions"), errors);
    app_armor(&context.get("appArmorProfile"), errors);
    context.get("supplementalGroupsPolicy").if_one_of(&["Merge", "Strict"], errors);
    // `MountOption` comes with the gate SELinuxMount.
    context.get("seLinuxChangePolicy").if_one_of(&["Recursive"], errors);
}

/// The security context of a container.
pub(super) fn container(context: &At<'_>, host_users: bool, errors: &mut FieldErrors) {
    context.get("runAsUser").between(0, ID_MAX, errors);
    context.get("runAsGroup").between(0, ID_MAX, errors);
    let mount = context.get("procMount");
    mount.if_one_of(&["Default", "Unmasked"], errors);
    if host_users && mount.text() == "Unmasked" {
        errors.push(mount.invalid("`hostUsers` must be false to use `Unmasked`"));
    }
    seccomp(&context.get("seccompProfile"), errors);
    escalation(context, errors);
    windows_options(&context.get("windowsOptions"), errors);
    app_armor(&context.get("appArmorProfile"), errors);
}

fn escalation(context: &At<'_>, errors: &mut FieldErrors) {
    let escalation = context.get("allowPrivilegeEscalation");
    if !escalation.is_set() || escalation.flag() {
        return;
    }
    if context.get("privileged").flag() {
        errors
            .push(context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true"));
    }
    for _ in context.get("capabilities").get("add").texts().filter(|added| *added == "CAP_SYS_ADMIN") {
        errors.push(
            context.invalid(
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            ),
        );
    }
}

/// A seccomp profile.
fn seccomp(profile: &At<'_>, errors: &mut FieldErrors) {
    if !profile.is_set() {
        return;
    }
    let (kind, localhost) = (profile.get("type"), profile.get("localhostProfile"));
    if kind.text().is_empty() {
        errors.push(kind.required("type is required when seccompProfile is set"));
    } else {
        kind.if_one_of(PROFILES, errors);
    }
    match kind.text() {
        "Localhost" if !localhost.is_set() => {
            errors.push(localhost.required("must be set when seccomp type is Localhost"));
        }
        "Localhost" => localhost.inner_path(errors),
        _ if localhost.is_set() => {
            errors.push(FieldError::invalid(
                &localhost.path,
                profile.value,
                "can only be set when seccomp type is Localhost",
            ));
        }
        _ => {}
    }
}

/// An AppArmor profile.
fn app_armor(profile: &At<'_>, errors: &mut FieldErrors) {
    const REQUIRED: &str = "must be set when AppArmor type is Localhost";
    if !profile.is_set() {
        return;
    }
    let (kind, localhost) = (profile.get("type"), profile.get("localhostProfile"));
    match kind.text() {
        "Localhost" => {
            let text = localhost.text();
            if text.trim() != text {
                errors.push(localhost.invalid("must not be padded with whitespace"));
            } else if text.is_empty() {
                errors.push(localhost.required(REQUIRED));
            }
            if text.len() > PROFILE_BYTES_MAX {
                errors.push(FieldError::too_long(&localhost.path, PROFILE_BYTES_MAX));
            }
        }
        "RuntimeDefault" | "Unconfined" if localhost.is_set() => {
            errors.push(localhost.invalid("can only be set when AppArmor type is Localhost"));
        }
        "" => errors.push(kind.required("type is required when appArmorProfile is set")),
        _ => kind.if_one_of(PROFILES, errors),
    }
}

fn sysctls(spec: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for sysctl in spec.get("securityContext").get("sysctls").items() {
        let name = sysctl.get("name");
        let text = name.text();
        if text.is_empty() {
            errors.push(name.required(""));
        } else if !is_sysctl(text) {
            errors.push(name.invalid(&format!(
                "must have at most {SYSCTL_BYTES_MAX} characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            )));
        } else if !seen.insert(text) {
            errors.push(name.duplicate());
        }
        let whose = Namespace::of(&dotted(text));
        if spec.get("hostNetwork").flag() && whose == Some(Namespace::Net) {
            errors.push(name.invalid("may not be specified when 'hostNetwork' is true"));
        } else if spec.get("hostIPC").flag() && whose == Some(Namespace::Ipc) {
            errors.push(name.invalid("may not be specified when 'hostIPC' is true"));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let is_edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_segment = |segment: &str| {
        let bytes = segment.as_bytes();
        matches!((bytes.first(), bytes.last()), (Some(&a), Some(&b)) if is_edge(a) && is_edge(b))
            && bytes.iter().all(|&b| is_edge(b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= SYSCTL_BYTES_MAX && name.split(['.', '/']).all(is_segment)
}

fn windows_options(options: &At<'_>, errors: &mut FieldErrors) {
    const SPEC_BYTES_MAX: usize = 64 * 1024;
    let (name, spec) = (options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec"));
    if name.is_set() {
        errors.extend(name.all(names::dns1123_subdomain(name.text())));
    }
    if spec.is_set() && spec.is_empty() {
        errors.push(spec.invalid("gmsaCredentialSpec cannot be an empty string"));
    } else if spec.len() > SPEC_BYTES_MAX {
        errors.push(spec.invalid("gmsaCredentialSpec size must be under 64 KiB"));
    }
    if let Some(user) = options.some("runAsUserName") {
        let rules = windows_user(user.text());
        errors.extend(rules.iter().map(|rule| user.invalid(&format!("runAsUserName{rule}"))));
    }
}

/// `DOMAIN\user`; the domain is optional.
fn windows_user(text: &str) -> Vec<&'static str> {
    if text.is_empty() {
        return vec![" cannot be an empty string"];
    }
    if text.chars().any(|c| c.is_ascii_control()) {
        return vec![" cannot contain control characters"];
    }
    let (domain, user) = match text.split('\\').collect::<Vec<_>>().as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec![" cannot contain more than one backslash"],
    };
    let mut rules = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            rules.push("'s Domain length must be under 256 characters");
        }
        if !is_windows_domain(domain) {
            rules.push("'s Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        rules.push("'s User cannot be empty");
    } else if user.len() > 104 {
        rules.push("'s User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        rules.push("'s User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        rules.push("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    rules
}

fn is_windows_domain(domain: &str) -> bool {
    let is_net_bios = (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|']);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    is_net_bios || domain.split('.').all(is_label)
}

/// Host process containers come all together, and on the host's network.
pub(super) fn host_process(spec: &At<'_>, errors: &mut FieldErrors) {
    let of_pod = is_host_process(spec);
    let (mut count, mut host_processes) = (0, 0);
    for container in containers(spec) {
        count += 1;
        let own = is_host_process(&container);
        if of_pod.is_set() && own.is_set() && of_pod.flag() != own.flag() {
            errors.push(own.invalid(&format!(
                "pod hostProcess value must be identical if both are specified, was {}",
                of_pod.flag()
            )));
        }
        host_processes += usize::from(if own.is_set() { own.flag() } else { of_pod.flag() });
    }
    if host_processes == 0 {
        return;
    }
    if host_processes != count {
        errors.push(FieldError::invalid(
            &spec.path,
            "",
            "If pod contains any hostProcess containers then all containers must be HostProcess containers",
        ));
    }
    if !spec.get("hostNetwork").flag() {
        errors.push(FieldError::invalid(
            &spec.path.child("hostNetwork"),
            false,
            "hostNetwork must be true if pod contains any hostProcess containers",
        ));
    }
}

fn is_host_process<'a>(at: &At<'a>) -> At<'a> {
    at.get("securityContext").get("windowsOptions").get("hostProcess")
}

/// A Pod with a user namespace of its own has its own other namespaces too.
pub(super) fn host_users(spec: &At<'_>, errors: &mut FieldErrors) {
    let users = spec.get("hostUsers");
    if !users.is_set() || users.flag() {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.get(field).flag() {
            let path = spec.path.child(shown);
            errors.push(FieldError::forbidden(&path, "when `hostUsers` is false"));
        }
    }
    for devices in containers(spec).map(|container| container.get("volumeDevices")) {
        if !devices.is_empty() {
            errors.push(devices.forbidden("when `hostUsers` is false"));
        }
    }
}

/// What the named operating system has not.
pub(super) fn operating_system(spec: &At<'_>, errors: &mut FieldErrors) {
    let Some(os) = spec.some("os") else { return };
    let name = os.get("name");
    match name.text() {
        "" => errors.push(name.required("cannot be empty")),
        "linux" => {
            forbid(&spec.get("securityContext"), &["windowsOptions"], WINDOWS_ONLY, errors);
            for container in containers(spec) {
                forbid(&container.get("securityContext"), &["windowsOptions"], WINDOWS_ONLY, errors);
            }
        }
        "windows" => windows(spec, errors),
        text => errors.push(FieldError::not_supported(&os.path, text, &["linux", "windows"])),
    }
}

fn windows(spec: &At<'_>, errors: &mut FieldErrors) {
    let context = spec.get("securityContext");
    forbid(&context, &["appArmorProfile", "seLinuxOptions"], NOT_FOR_WINDOWS, errors);
    forbid(spec, &["hostUsers"], NOT_FOR_WINDOWS, errors);
    for field in ["hostPID", "hostIPC"] {
        if spec.get(field).flag() {
            errors.push(spec.get(field).forbidden(NOT_FOR_WINDOWS));
        }
    }
    forbid(&context, &["seccompProfile", "fsGroup", "fsGroupChangePolicy"], NOT_FOR_WINDOWS, errors);
    if !context.get("sysctls").is_empty() {
        errors.push(context.get("sysctls").forbidden(NOT_FOR_WINDOWS));
    }
    forbid(spec, &["shareProcessNamespace"], NOT_FOR_WINDOWS, errors);
    let of_pod =
        ["runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy"];
    forbid(&context, &of_pod, NOT_FOR_WINDOWS, errors);
    let of_container = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    for container in containers(spec) {
        forbid(&container.get("securityContext"), &of_container, NOT_FOR_WINDOWS, errors);
    }
}

fn forbid(at: &At<'_>, fields: &[&str], detail: &str, errors: &mut FieldErrors) {
    errors.extend(fields.iter().filter_map(|field| at.some(field)).map(|at| at.forbidden(detail)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_windows_user_may_have_a_domain() {
        for good in ["ContainerUser", "NT AUTHORITY\\SYSTEM", "corp.example\\bob"] {
            assert!(windows_user(good).is_empty(), "{good}");
        }
        for bad in ["", "a\\b\\c", "a\n", "a/b", "x\\", "..", "-a-.b/\\c"] {
            assert!(!windows_user(bad).is_empty(), "{bad}");
        }
    }

    #[test]
    fn a_sysctls_parts_are_lower_case_and_not_empty() {
        assert!(is_sysctl("kernel.shm_rmid_forced") && !is_sysctl("a..b") && !is_sysctl("A.b"));
    }
}
