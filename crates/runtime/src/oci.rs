//! The OCI runtime configuration of a container, made from CRI's configuration and the image's.
//!
//! Pure: what depends on the host comes in with [`Input`].

mod capabilities;
pub(crate) mod dev;
mod mounts;
mod resources;

use std::path::{Path, PathBuf};

use cri::v1;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use resources::limits_document as limits;

pub use capabilities::{DEFAULT_CAPABILITIES, capabilities};

use crate::cdi::Edits;
use crate::devices::HostDevice;
use crate::images::ImageConfig;
use crate::refusal::Refusal;
use crate::seccomp::Profile;
use crate::users::User;

/// Of the specification. crun takes 1.0 alone up to 1.8; what has come since is in the document all the same.
const OCI_VERSION: &str = "1.0.2";

/// `PATH` of containers whose image sets none, as containerd's.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The PID namespace of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PidNamespace {
    /// A new one.
    Own,
    /// The host's.
    Host,
    /// The one at this path.
    Path(PathBuf),
}

/// All that a container's configuration is made from.
#[derive(Debug)]
pub struct Input<'a> {
    /// CRI's configuration.
    pub config: &'a v1::ContainerConfig,
    /// The image's configuration.
    pub image: &'a ImageConfig,
    /// The root file system.
    pub rootfs: &'a Path,
    /// From the root of the hierarchies.
    pub cgroup: &'a str,
    /// The view of cgroups v1 ([`crate::cgroup_view`]): where it is seen, where it is.
    pub cgroup_view: &'a [(String, PathBuf)],
    /// The Pod's host name.
    pub hostname: &'a str,
    /// Files and directories of the sandbox: where the container has them, where they are.
    pub sandbox_files: &'a [(String, PathBuf)],
    /// The PID namespace.
    pub pid_namespace: PidNamespace,
    /// The Pod's user namespace, if it has one.
    pub userns: Option<PathBuf>,
    /// The AppArmor profile of its process, if it has one.
    pub apparmor: Option<String>,
    /// `true` if the host's controllers have the v2 interface.
    pub is_cgroup_v2: bool,
    /// Every capability of this process, `CAP_` names.
    pub all_capabilities: &'a [String],
    /// `true` if another OCI runtime carries the document out, without the shim's part in it ([`Security`]).
    pub is_external: bool,
    /// Devices asked for, or all of the host for a privileged container.
    pub devices: &'a [HostDevice],
    /// The meaning of its devices' names beside that.
    pub edits: &'a Edits,
}

/// The settings that are applied between libcontainer's work and the payload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Security {
    /// Capabilities that the payload keeps, `CAP_` names. libcontainer is given a few more for the way there.
    pub capabilities: Vec<String>,
    /// The seccomp filter.
    pub seccomp: SeccompProfile,
    /// The user namespace that an exec enters last of all, as its user there; libcontainer leaves it out.
    #[serde(default)]
    pub userns: Option<PathBuf>,
}

/// The seccomp filter of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeccompProfile {
    /// None.
    #[default]
    Unconfined,
    /// The runtime's default.
    RuntimeDefault,
    /// What a file says.
    Localhost(Profile),
}

/// A container's configuration and what the shim does beside it.
#[derive(Clone, Debug)]
pub struct Output {
    /// The OCI document.
    pub spec: Value,
    /// The security settings that the shim applies itself.
    pub security: Security,
}

/// Makes the configuration for a process of `user`.
///
/// # Errors
/// The request cannot be carried out.
pub(crate) fn spec(input: &Input<'_>, user: &User) -> Result<Output, Refusal> {
    let security = security(input)?;
    let process = process(input, user, &security)?;
    let context = security_context(input.config);
    let privileged = context.privileged;
    let (mounts, annotations) = mounts::mounts(input)?;
    let mut linux = json!({
        "cgroupsPath": input.cgroup,
        "rootfsPropagation": mounts::rootfs_propagation(input.config),
        "namespaces": namespaces(input),
        "resources": resources::resources(input),
        "devices": input.devices.iter().filter(|it| is_in_dev(it)).map(device).collect::<Vec<_>>(),
        "maskedPaths": if privileged { &[][..] } else { &context.masked_paths[..] },
        "readonlyPaths": mounts::read_only_paths(input, &context.readonly_paths),
    });
    if input.is_external
        && let Some(profile) = external_seccomp(&security)
    {
        linux["seccomp"] = json!(profile);
    }
    let spec = json!({
        "ociVersion": OCI_VERSION,
        "root": { "path": input.rootfs, "readonly": context.readonly_rootfs },
        "process": process,
        "mounts": mounts,
        "linux": linux,
    });
    let mut spec = spec;
    if !annotations.is_empty() {
        spec["annotations"] = Value::Object(annotations);
    }
    if !input.edits.hooks.is_empty() {
        spec["hooks"] = Value::Object(input.edits.hooks.clone());
    }
    Ok(Output { spec, security })
}

/// The OCI process of an exec in a container whose process was `process`.
pub fn exec_process(process: &Value, command: &[String], tty: bool) -> Value {
    let mut process = process.clone();
    process["args"] = json!(command);
    process["terminal"] = json!(tty);
    let env = process["env"].as_array().cloned().unwrap_or_default();
    let mut env: Vec<Value> = env.into_iter().filter(|var| tty || var != "TERM=xterm").collect();
    if tty && !env.iter().any(|var| var.as_str().is_some_and(|var| var.starts_with("TERM="))) {
        env.push(json!("TERM=xterm"));
    }
    process["env"] = json!(env);
    process
}

fn process(input: &Input<'_>, user: &User, security: &Security) -> Result<Value, Refusal> {
    let config = input.config;
    let args = args(config, input.image);
    if args.is_empty() {
        return Err(Refusal::Invalid("no command specified".into()));
    }
    let cwd = [config.working_dir.as_str(), input.image.working_dir.as_str(), "/"];
    let cwd = cwd.into_iter().find(|cwd| !cwd.is_empty()).unwrap_or("/");
    let capabilities = match input.is_external {
        true => security.capabilities.clone(),
        false => capabilities::with_way_there(&security.capabilities),
    };
    let groups: Vec<u32> = user.groups.iter().chain(&input.edits.groups).copied().collect();
    let mut process = json!({
        "terminal": config.tty,
        "user": { "uid": user.uid, "gid": user.gid, "additionalGids": groups },
        "args": args,
        "env": env(input, &user.home),
        "cwd": cwd,
        "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
    });
    // Not told as false: for youki that is a wish, too, and one that it cannot fulfil together with seccomp.
    if security_context(config).no_new_privs {
        process["noNewPrivileges"] = json!(true);
    }
    if let Some(profile) = &input.apparmor {
        process["apparmorProfile"] = json!(profile);
    }
    Ok(process)
}

/// Command and arguments: CRI's command replaces the image's entrypoint and its command both.
fn args(config: &v1::ContainerConfig, image: &ImageConfig) -> Vec<String> {
    if !config.command.is_empty() {
        return [config.command.as_slice(), &config.args].concat();
    }
    let arguments = if config.args.is_empty() { &image.cmd } else { &config.args };
    [image.entrypoint.as_slice(), arguments].concat()
}

/// The image's environment with CRI's on top.
fn env(input: &Input<'_>, home: &str) -> Vec<String> {
    let mut env: Vec<(String, String)> = vec![("PATH".to_owned(), DEFAULT_PATH.to_owned())];
    if !input.hostname.is_empty() {
        env.push(("HOSTNAME".to_owned(), input.hostname.to_owned()));
    }
    if input.config.tty {
        env.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    let from_image = input.image.env.iter().filter_map(|var| var.split_once('='));
    let from_cri = input.config.envs.iter().map(|var| (var.key.as_str(), var.value.as_str()));
    for (key, value) in from_image.chain(from_cri) {
        match env.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => value.clone_into(known),
            None => env.push((key.to_owned(), value.to_owned())),
        }
    }
    if !env.iter().any(|(key, _)| key == "HOME") {
        env.push(("HOME".to_owned(), home.to_owned()));
    }
    env.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// Network, IPC and UTS namespaces come from the shim, which is in them.
fn namespaces(input: &Input<'_>) -> Vec<Value> {
    let mut namespaces = vec![json!({ "type": "mount" })];
    match &input.pid_namespace {
        PidNamespace::Own => namespaces.push(json!({ "type": "pid" })),
        PidNamespace::Path(path) => namespaces.push(json!({ "type": "pid", "path": path })),
        PidNamespace::Host => {}
    }
    if let Some(path) = &input.userns {
        namespaces.push(json!({ "type": "user", "path": path }));
    }
    if input.is_cgroup_v2 && !security_context(input.config).privileged {
        namespaces.push(json!({ "type": "cgroup" }));
    }
    namespaces
}

/// A node elsewhere is the host's, mounted: runtimes make nodes in `/dev` alone.
fn is_in_dev(device: &HostDevice) -> bool {
    Path::new(&device.path).starts_with("/dev")
}

fn device(device: &HostDevice) -> Value {
    json!({
        "path": device.path,
        "type": if device.is_block { "b" } else { "c" },
        "major": device.major,
        "minor": device.minor,
        "fileMode": device.mode,
        "uid": device.uid,
        "gid": device.gid,
    })
}

/// The filter as a document: an external runtime compiles it.
fn external_seccomp(security: &Security) -> Option<Profile> {
    match &security.seccomp {
        SeccompProfile::Unconfined => None,
        SeccompProfile::RuntimeDefault => {
            let keep = security.capabilities.iter().filter_map(|name| name.parse().ok()).collect();
            Some(Profile::default_for(&keep))
        }
        SeccompProfile::Localhost(profile) => Some(profile.clone()),
    }
}

/// The profile in a file of the host. `localhost/` before its path is from before the field had a type.
fn localhost_profile(reference: &str) -> Result<Profile, Refusal> {
    let path = Path::new(reference.strip_prefix("localhost/").unwrap_or(reference));
    let doing = || format!("cannot load seccomp profile {:?}", path.display());
    if !path.is_absolute() {
        return Err(Refusal::step(doing())("the path must be absolute"));
    }
    let text = std::fs::read(path).map_err(Refusal::step(doing()))?;
    let profile = Profile::read(&text).map_err(Refusal::step(doing()))?;
    // What is wrong with it is told now, not when the container's process exists.
    profile.compile().map_err(Refusal::step(doing()))?;
    Ok(profile)
}

fn security(input: &Input<'_>) -> Result<Security, Refusal> {
    use v1::security_profile::ProfileType;
    let context = security_context(input.config);
    let profile = context.seccomp.as_ref().map_or(ProfileType::Unconfined, v1::SecurityProfile::profile_type);
    let seccomp = match profile {
        _ if context.privileged => SeccompProfile::Unconfined,
        ProfileType::Unconfined => SeccompProfile::Unconfined,
        ProfileType::RuntimeDefault => SeccompProfile::RuntimeDefault,
        ProfileType::Localhost => {
            let reference = context.seccomp.as_ref().map_or("", |profile| profile.localhost_ref.as_str());
            SeccompProfile::Localhost(localhost_profile(reference)?)
        }
    };
    let capabilities = capabilities::capabilities(&context, input.all_capabilities)?;
    Ok(Security { capabilities, seccomp, userns: input.userns.clone() })
}

pub(crate) fn security_context(config: &v1::ContainerConfig) -> v1::LinuxContainerSecurityContext {
    config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
