//! Security contexts: the container's fields win over the Pod's.

use std::collections::HashMap;

use cri::v1;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, Pod, PodSpec, SELinuxOptions, SeccompProfile, SecurityContext,
};

use super::ImageUser;
use crate::machine::thermal_folders;

/// Paths that say too much about the host. Source: `securitycontext.ConvertToRuntimeMaskedPaths`.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Paths through which the host could be changed.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

fn namespaces(spec: &PodSpec) -> v1::NamespaceOption {
    let of = |is_host: Option<bool>, other: v1::NamespaceMode| {
        i32::from(if is_host == Some(true) { v1::NamespaceMode::Node } else { other })
    };
    let shared = spec.share_process_namespace == Some(true);
    v1::NamespaceOption {
        network: of(spec.host_network, v1::NamespaceMode::Pod),
        pid: of(spec.host_pid, if shared { v1::NamespaceMode::Pod } else { v1::NamespaceMode::Container }),
        ipc: of(spec.host_ipc, v1::NamespaceMode::Pod),
        ..v1::NamespaceOption::default()
    }
}

fn id(value: Option<i64>) -> Option<v1::Int64Value> {
    value.map(|value| v1::Int64Value { value })
}

fn supplemental_groups(spec: &PodSpec) -> (Vec<i64>, i32) {
    let Some(context) = &spec.security_context else { return Default::default() };
    let supplemental = context.supplemental_groups.iter().flatten().copied();
    let groups = context.fs_group.into_iter().chain(supplemental).collect();
    let policy = match context.supplemental_groups_policy.as_deref() {
        Some("Strict") => v1::SupplementalGroupsPolicy::Strict,
        _ => v1::SupplementalGroupsPolicy::Merge,
    };
    (groups, policy.into())
}

/// For the sandbox: privileged if any container is.
pub(super) fn sandbox(spec: &PodSpec) -> v1::LinuxSandboxSecurityContext {
    let context = spec.security_context.clone().unwrap_or_default();
    let (groups, policy) = supplemental_groups(spec);
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let all = all.map(|c| &c.security_context).chain(ephemeral.map(|c| &c.security_context));
    let mut all = all.flatten();
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(spec)),
        run_as_user: id(context.run_as_user),
        run_as_group: id(context.run_as_group),
        supplemental_groups: groups,
        supplemental_groups_policy: policy,
        selinux_options: context.se_linux_options.as_ref().map(selinux),
        privileged: all.any(|c| c.privileged == Some(true)),
        seccomp: Some(v1::SecurityProfile::default()),
        ..v1::LinuxSandboxSecurityContext::default()
    }
}

pub(super) fn sysctls(spec: &PodSpec) -> HashMap<String, String> {
    let context = spec.security_context.as_ref();
    let all = context.and_then(|c| c.sysctls.as_ref()).into_iter().flatten();
    all.map(|s| (resources::sysctls::dotted(&s.name), s.value.clone())).collect()
}

fn seccomp(profile: Option<&SeccompProfile>, is_privileged: bool, has_default: bool) -> v1::SecurityProfile {
    let of = |profile_type: v1::security_profile::ProfileType, localhost_ref: String| v1::SecurityProfile {
        profile_type: profile_type.into(),
        localhost_ref,
    };
    use v1::security_profile::ProfileType;
    if is_privileged {
        return of(ProfileType::Unconfined, String::new());
    }
    match profile.map(|p| p.type_.as_str()) {
        Some("Localhost") => {
            let name = profile.and_then(|p| p.localhost_profile.clone()).unwrap_or_default();
            of(ProfileType::Localhost, name)
        }
        Some("Unconfined") => of(ProfileType::Unconfined, String::new()),
        Some(_) => of(ProfileType::RuntimeDefault, String::new()),
        None if has_default => of(ProfileType::RuntimeDefault, String::new()),
        None => of(ProfileType::Unconfined, String::new()),
    }
}

/// For a container.
pub(super) fn container(
    pod: &PodSpec,
    spec: &Container,
    seccomp_default: bool,
) -> v1::LinuxContainerSecurityContext {
    let own = spec.security_context.clone().unwrap_or_default();
    let shared = pod.security_context.clone().unwrap_or_default();
    let is_privileged = own.privileged == Some(true);
    let (groups, policy) = supplemental_groups(pod);
    let is_unmasked = is_privileged || own.proc_mount.as_deref() == Some("Unmasked");
    let texts = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let (masked, read_only) = match is_unmasked {
        true => (Vec::new(), Vec::new()),
        false => ([texts(&MASKED_PATHS), thermal_folders().to_vec()].concat(), texts(&READONLY_PATHS)),
    };
    let profile = own.seccomp_profile.as_ref().or(shared.seccomp_profile.as_ref());
    v1::LinuxContainerSecurityContext {
        capabilities: capabilities(&own),
        privileged: is_privileged,
        namespace_options: Some(namespaces(pod)),
        run_as_user: id(own.run_as_user.or(shared.run_as_user)),
        run_as_group: id(own.run_as_group.or(shared.run_as_group)),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups,
        supplemental_groups_policy: policy,
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: masked,
        readonly_paths: read_only,
        seccomp: Some(seccomp(profile, is_privileged, seccomp_default)),
        apparmor: own.app_armor_profile.as_ref().or(shared.app_armor_profile.as_ref()).map(apparmor),
        selinux_options: own.se_linux_options.as_ref().or(shared.se_linux_options.as_ref()).map(selinux),
        ..v1::LinuxContainerSecurityContext::default()
    }
}

fn apparmor(profile: &AppArmorProfile) -> v1::SecurityProfile {
    use v1::security_profile::ProfileType;
    let kind = match profile.type_.as_str() {
        "Localhost" => ProfileType::Localhost,
        "Unconfined" => ProfileType::Unconfined,
        _ => ProfileType::RuntimeDefault,
    };
    let localhost_ref = profile.localhost_profile.clone().unwrap_or_default();
    v1::SecurityProfile { profile_type: kind.into(), localhost_ref }
}

fn selinux(options: &SELinuxOptions) -> v1::SeLinuxOption {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    v1::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

fn capabilities(context: &SecurityContext) -> Option<v1::Capability> {
    let capabilities = context.capabilities.as_ref()?;
    Some(v1::Capability {
        add_capabilities: capabilities.add.clone().unwrap_or_default(),
        drop_capabilities: capabilities.drop.clone().unwrap_or_default(),
        add_ambient_capabilities: Vec::new(),
    })
}

/// Whether `runAsNonRoot`, or a group alone, needs to know who the image runs as.
pub(crate) fn needs_image_user(pod: &PodSpec, spec: &Container) -> bool {
    let (non_root, user) = run_as(pod, spec);
    let own = spec.security_context.as_ref().and_then(|c| c.run_as_group);
    let has_group = own.or_else(|| pod.security_context.as_ref().and_then(|c| c.run_as_group)).is_some();
    (non_root || has_group) && user.is_none()
}

fn run_as(pod: &PodSpec, spec: &Container) -> (bool, Option<i64>) {
    let own = spec.security_context.as_ref();
    let shared = pod.security_context.as_ref();
    let non_root = own.and_then(|c| c.run_as_non_root).or_else(|| shared.and_then(|c| c.run_as_non_root));
    let user = own.and_then(|c| c.run_as_user).or_else(|| shared.and_then(|c| c.run_as_user));
    (non_root == Some(true), user)
}

/// A container would run as root, or might, and must not; in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error("{why} (pod: \"{pod}\", container: {container})")]
pub struct RunsAsRoot {
    why: Root,
    /// Name, namespace and uid.
    pod: String,
    container: String,
}

/// By whose will.
#[derive(Debug, thiserror::Error)]
enum Root {
    #[error("container's runAsUser breaks non-root policy")]
    Spec,
    #[error("container has runAsNonRoot and image will run as root")]
    Image,
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({0}), cannot verify user is non-root"
    )]
    Unknown(String),
    #[error(
        "container has runAsNonRoot and image has an invalid user id ({0}). (Must be 1-(2147483647)): must be between 0 \
         and 2147483647, inclusive"
    )]
    Invalid(i64),
}

/// Refuses root where the spec does.
pub(super) fn verify_non_root(
    pod: &Pod,
    pod_spec: &PodSpec,
    spec: &Container,
    image_user: Option<&ImageUser>,
) -> Result<(), RunsAsRoot> {
    let (non_root, user) = run_as(pod_spec, spec);
    if !non_root {
        return Ok(());
    }
    let why = match (user, image_user) {
        (Some(0), _) => Root::Spec,
        (Some(_), _) => return Ok(()),
        (None, Some(ImageUser::Name(name))) => Root::Unknown(name.clone()),
        (None, Some(ImageUser::Uid(uid))) if i32::try_from(*uid).is_ok_and(|uid| uid > 0) => return Ok(()),
        (None, Some(ImageUser::Uid(uid))) if *uid != 0 => Root::Invalid(*uid),
        (None, _) => Root::Image,
    };
    let (name, namespace, uid) = crate::pod::identity::identity(pod);
    let pod = format!("{name}_{namespace}({uid})");
    Err(RunsAsRoot { why, pod, container: spec.name.clone() })
}
