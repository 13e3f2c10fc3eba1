//! AppArmor: which profile a container's process has, and the default one, which is loaded when it is first wanted.
//!
//! A container that asks for nothing has the default profile wherever the host has AppArmor. Whoever asks for a profile
//! on a host without is refused. Names and words are containerd's: Pods and policies know them.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use cri::v1;
use v1::security_profile::ProfileType;

use crate::refusal::Refusal;

/// The name of the default profile, as containerd's: who has loaded one under it before is respected.
const DEFAULT: &str = "cri-containerd.apparmor.d";
/// How references to profiles of the host begin, and must in the field that has no type.
const LOCALHOST: &str = "localhost/";
/// What compiles and loads profiles, below the root. Source: containerd, which asks for this path.
const PARSER: &str = "sbin/apparmor_parser";
/// The profiles that the kernel has: a name and, in parentheses, a mode on each line.
const LOADED: &str = "sys/kernel/security/apparmor/profiles";

/// What a host has of AppArmor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Host {
    /// In the kernel, with the parser beside it.
    is_enabled: bool,
    /// Names of profiles.
    loaded: Vec<String>,
}

/// What a container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    Unconfined,
    Default,
    /// A profile of the host, which is loaded.
    Named(String),
}

/// The profile of a container's process, which is loaded; `None` without one. `root` is the host's.
///
/// # Errors
/// The host has no AppArmor or not that profile, or the default profile cannot be loaded.
pub(crate) fn profile(
    context: &v1::LinuxContainerSecurityContext,
    root: &Path,
) -> Result<Option<String>, Refusal> {
    let host = Host::of(root);
    match decide(context, &host)? {
        Decision::Unconfined => Ok(None),
        Decision::Named(name) => Ok(Some(name)),
        Decision::Default => {
            if !host.has(DEFAULT) {
                load(root).map_err(Refusal::step(format!("load apparmor profile {DEFAULT}")))?;
            }
            Ok(Some(DEFAULT.to_owned()))
        }
    }
}

impl Host {
    fn of(root: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let is_on = read("sys/module/apparmor/parameters/enabled").starts_with('Y');
        // In a container the profiles are another host's.
        let is_host = std::env::var_os("container").is_none_or(|kind| kind.is_empty());
        let is_there = ["sys/kernel/security/apparmor", PARSER].iter().all(|path| root.join(path).exists());
        let names = |text: String| {
            text.lines().filter_map(|line| line.rsplit_once(" (")).map(|(name, _)| name.to_owned()).collect()
        };
        Self { is_enabled: is_on && is_host && is_there, loaded: names(read(LOADED)) }
    }

    fn has(&self, profile: &str) -> bool {
        self.loaded.iter().any(|name| name == profile)
    }
}

fn decide(context: &v1::LinuxContainerSecurityContext, host: &Host) -> Result<Decision, Refusal> {
    let asked = asked(context)?;
    if !host.is_enabled {
        let is_asked_for = asked.is_some_and(|(kind, _)| kind != ProfileType::Unconfined);
        return if is_asked_for {
            Err(Refusal::Unsupported("apparmor is not supported".into()))
        } else {
            Ok(Decision::Unconfined)
        };
    }
    let (kind, reference) = asked.unwrap_or((ProfileType::RuntimeDefault, ""));
    if kind != ProfileType::Localhost && !reference.is_empty() {
        return Err(Refusal::Invalid(
            "apparmor config invalid LocalhostRef must only be set if ProfileType is Localhost".into(),
        ));
    }
    match kind {
        ProfileType::Unconfined => Ok(Decision::Unconfined),
        ProfileType::RuntimeDefault if context.privileged => Ok(Decision::Unconfined),
        ProfileType::RuntimeDefault => Ok(Decision::Default),
        ProfileType::Localhost => {
            let name = reference.strip_prefix(LOCALHOST).unwrap_or(reference);
            match host.has(name) {
                true => Ok(Decision::Named(name.to_owned())),
                false if name.is_empty() => {
                    Err(Refusal::Invalid("nil apparmor profile is not supported".into()))
                }
                false => Err(Refusal::Missing(format!("apparmor profile not found {name}"))),
            }
        }
    }
}

/// What the container asks for: a kind, and the reference of `Localhost`. The field that has no type counts if the other
/// is not set.
fn asked(context: &v1::LinuxContainerSecurityContext) -> Result<Option<(ProfileType, &str)>, Refusal> {
    if let Some(profile) = &context.apparmor {
        return Ok(Some((profile.profile_type(), &profile.localhost_ref)));
    }
    #[expect(deprecated, reason = "the kubelets of old fill it in")]
    let text = context.apparmor_profile.as_str();
    match text {
        "" => Ok(None),
        "runtime/default" | "docker/default" => Ok(Some((ProfileType::RuntimeDefault, ""))),
        "unconfined" => Ok(Some((ProfileType::Unconfined, ""))),
        other => match other.strip_prefix(LOCALHOST) {
            Some(name) => Ok(Some((ProfileType::Localhost, name))),
            None => Err(Refusal::Invalid(format!("invalid profile {other:?}"))),
        },
    }
}

/// Has the default profile compiled and put into the kernel.
fn load(root: &Path) -> io::Result<()> {
    let own = std::fs::read_to_string(root.join("proc/self/attr/current")).unwrap_or_default();
    let own = own.trim().rsplit_once(" (").map_or("unconfined", |(name, _)| name).to_owned();
    let text = text(&own, |include| root.join("etc/apparmor.d").join(include).exists());
    // Replaced if somebody else has loaded it by now; no cache, which is for profiles in files.
    let mut command = Command::new(root.join(PARSER));
    command.args(["--replace", "--skip-cache"]).stdin(Stdio::piped());
    let mut parser = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    // It has ended already if that fails, and says why.
    let told = parser.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let ended = parser.wait_with_output()?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        return Err(io::Error::other(format!("{PARSER}: {}: {}", ended.status, said.trim())));
    }
    told
}

/// The default profile, for a runtime that is under the profile `own` itself. `has` knows the host's files for inclusion.
///
/// It allows what is not named: files, network, capabilities. What it keeps a container from is the kernel's own: to
/// write to `/proc` (but for processes and `kernel/shm*`) and to `/sys` (but for cgroups), to mount, to look at or signal
/// who is under another profile. Source: apparmor.d(5), and what containerd's and Docker's profiles are documented to deny.
fn text(own: &str, has: impl Fn(&str) -> bool) -> String {
    let include = |path: &'static str, line: &'static str| if has(path) { line } else { "" };
    let abi = include("abi/3.0", "abi <abi/3.0>,\n");
    let tunables = match has("tunables/global") {
        true => "#include <tunables/global>",
        false => "@{PROC}=/proc/",
    };
    let base = include("abstractions/base", "  #include <abstractions/base>\n");
    format!(
        r#"{abi}{tunables}

profile {DEFAULT} flags=(attach_disconnected, mediate_deleted) {{
{base}
  capability,
  network,
  file,
  umount,
  deny mount,

  # Whoever stops containers: an unconfined host, the runtimes of OCI, this one.
  signal receive peer=unconfined,
  signal receive peer=runc,
  signal receive peer=crun,
  signal receive peer="{own}",
  signal (receive, send) peer={DEFAULT},
  ptrace (read, readby, trace, tracedby) peer={DEFAULT},

  # What lies in /proc itself, and its folders but for those of processes and sys.
  deny @{{PROC}}/* w,
  deny @{{PROC}}/[^0-9s/]*/** w,
  deny @{{PROC}}/s[^y/]*/** w,
  deny @{{PROC}}/sy[^s/]*/** w,
  deny @{{PROC}}/sys[^/]*/** w,

  # Of sys, kernel/shm* alone can be written.
  deny @{{PROC}}/sys/[^k]** w,
  deny @{{PROC}}/sys/k[^e]** w,
  deny @{{PROC}}/sys/ke[^r]** w,
  deny @{{PROC}}/sys/kernel/[^s]** w,
  deny @{{PROC}}/sys/kernel/s[^h]** w,
  deny @{{PROC}}/sys/kernel/sh[^m]** w,

  deny @{{PROC}}/kcore rwklx,
  deny @{{PROC}}/sysrq-trigger rwklx,

  # Of /sys, cgroups alone can be written, and what tells of the machine's insides is not read either.
  deny /sys/[^f/]*/** wklx,
  deny /sys/f[^s/]*/** wklx,
  deny /sys/fs/[^c/]*/** wklx,
  deny /sys/fs/c[^g/]*/** wklx,
  deny /sys/fs/cg[^r/]*/** wklx,
  deny /sys/devices/virtual/powercap/** rwklx,
  deny /sys/firmware/** rwklx,
  deny /sys/kernel/security/** rwklx,
}}
"#
    )
}

#[cfg(test)]
mod tests;
