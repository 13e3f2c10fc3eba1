//! The steps of the container's first process between libcontainer's work and the payload.
//!
//! libcontainer drops to the capabilities of its specification before it calls us. Installing seccomp needs
//! `CAP_SYS_ADMIN` unless `no_new_privs` is set, so the specification has that and `CAP_SETPCAP` added
//! ([`crate::oci::capabilities`]); here the filter is installed, then the capabilities come down to what was asked for.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use caps::{CapSet, Capability};
use libcontainer::oci_spec::runtime::{Mount, Spec, User};
use libcontainer::workload::{Executor, ExecutorError, ExecutorValidationError};
use nix::sched::{CloneFlags, setns};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use sys::mount::Propagation;
use sys::process::PidFd;

use super::program::find;
use crate::oci::{SeccompProfile, Security};

/// The payload could not be run, and nobody could be told.
#[derive(Debug, thiserror::Error)]
#[error("{error}; cannot report it")]
struct Unsaid {
    error: String,
    source: nix::errno::Errno,
}

/// Runs the payload of a container or of an exec in it.
#[derive(Clone)]
pub(super) struct Payload {
    security: Security,
    /// Where to say why the payload could not be run; closes by itself when it runs.
    failure: Arc<OwnedFd>,
    /// It is the container's first process.
    is_init: bool,
    /// The user namespace that is entered last.
    userns: Option<Arc<OwnedFd>>,
    /// The shim, and its sockets.
    shim: (u32, Arc<PidFd>),
    sockets: Vec<RawFd>,
}

impl Executor for Payload {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let Err(error) = self.become_payload(spec) else { return Ok(()) };
        self.say(&error.to_string()).map_err(boxed)?;
        Err(error)
    }

    /// libcontainer calls this in the container's process, which then waits for its start.
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        let (pid, shim) = &self.shim;
        if std::process::id() != *pid {
            sys::payload::depend_on_parent(shim, &self.sockets)
                .map_err(|error| ExecutorValidationError::ArgValidationError(base::error_chain(&error)))?;
        }
        let Err(error) = find(spec).map(|_| ()).map_err(|error| error.to_string()) else { return Ok(()) };
        self.say(&error)
            .map_err(|unsaid| ExecutorValidationError::ArgValidationError(base::error_chain(&unsaid)))?;
        Err(ExecutorValidationError::ArgValidationError(error))
    }
}

impl Payload {
    /// `sockets` are those of this process, the shim.
    pub(super) fn new(security: Security, failure: Arc<OwnedFd>, sockets: &[RawFd]) -> sys::Result<Self> {
        let pid = std::process::id();
        let shim = PidFd::open(i32::try_from(pid).unwrap_or_default())?;
        let shim = (pid, Arc::new(shim));
        Ok(Self { security, failure, is_init: true, userns: None, shim, sockets: sockets.to_vec() })
    }

    /// For an exec, maybe in a Pod with a user namespace.
    pub(super) fn entering(self, userns: Option<Arc<OwnedFd>>) -> Self {
        Self { userns, is_init: false, ..self }
    }

    /// Says why the payload cannot be run.
    fn say(&self, error: &str) -> Result<(), Unsaid> {
        let said = nix::unistd::write(&self.failure, error.as_bytes());
        said.map(drop).map_err(|source| Unsaid { error: error.to_owned(), source })
    }

    fn become_payload(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let process = spec.process().as_ref().ok_or(ExecutorError::InvalidArg)?;
        let args = process.args().as_ref().ok_or(ExecutorError::InvalidArg)?;
        let program = find(spec).map_err(boxed)?;
        let program = c_string(program.to_string_lossy().as_bytes())?;
        let args = args.iter().map(|arg| c_string(arg.as_bytes())).collect::<Result<Vec<_>, _>>()?;
        if let Some(userns) = &self.userns {
            enter(userns, process.user()).map_err(boxed)?;
        }
        if self.is_init {
            set_propagations(spec).map_err(boxed)?;
            let annotations = spec.annotations().as_ref();
            annotations.map_or(Ok(()), crate::oci::dev::put_in_place).map_err(boxed)?;
        }
        sys::payload::reset_signals().map_err(boxed)?;
        sys::payload::outlive_parent().map_err(boxed)?;
        let keep = capabilities(&self.security.capabilities)?;
        let filter = match &self.security.seccomp {
            SeccompProfile::Unconfined => Ok(Vec::new()),
            SeccompProfile::RuntimeDefault => crate::seccomp::Profile::default_for(&keep).compile(),
            SeccompProfile::Localhost(profile) => profile.compile(),
        };
        let filter = filter.map_err(boxed)?;
        let no_new_privileges = process.no_new_privileges().unwrap_or(false);
        if !no_new_privileges && !filter.is_empty() {
            sys::payload::install_seccomp(&filter).map_err(boxed)?;
        }
        drop_to(&keep, process.user().uid() == 0).map_err(boxed)?;
        if no_new_privileges && !filter.is_empty() {
            sys::payload::install_seccomp(&filter).map_err(boxed)?;
        }
        let Err(errno) = nix::unistd::execv(&program, &args);
        Err(ExecutorError::Other(format!("exec: {program:?}: {}", errno.desc().to_lowercase())))
    }
}

/// Becomes the user in the user namespace; before, this process was the host's user of that number.
fn enter(userns: &OwnedFd, user: &User) -> nix::Result<()> {
    let gid = |gid: u32| Gid::from_raw(gid);
    setns(userns, CloneFlags::CLONE_NEWUSER)?;
    let groups: Vec<Gid> = user.additional_gids().iter().flatten().map(|id| gid(*id)).collect();
    setgroups(&groups)?;
    setresgid(gid(user.gid()), gid(user.gid()), gid(user.gid()))?;
    let uid = Uid::from_raw(user.uid());
    setresuid(uid, uid, uid)
}

/// Gives each bind mount the propagation that it asks for: libcontainer leaves all with the root's.
fn set_propagations(spec: &Spec) -> sys::Result<()> {
    let root = spec.linux().as_ref().and_then(|linux| linux.rootfs_propagation().as_deref());
    if root == Some("private") {
        return Ok(());
    }
    propagations(spec.mounts().as_deref().unwrap_or_default())
        .into_iter()
        .try_for_each(|(target, propagation)| sys::mount::set_propagation_of_all(target, propagation))
}

/// What mounts ask for, but for those that are not to be seen: one that comes later lies over them (Calico has the host's
/// `/sys/fs` in place of that with the container's cgroups).
fn propagations(mounts: &[Mount]) -> Vec<(&Path, Propagation)> {
    let mut wanted = Vec::new();
    for (number, mount) in mounts.iter().enumerate() {
        let target = mount.destination().as_path();
        let mut later = mounts.iter().skip(number + 1);
        if later.any(|other| target.starts_with(other.destination())) {
            continue;
        }
        let options = mount.options().iter().flatten();
        wanted.extend(options.filter_map(|option| match option.as_str() {
            "rprivate" => Some((target, Propagation::Private)),
            "rslave" => Some((target, Propagation::Slave)),
            _ => None,
        }));
    }
    wanted
}

/// Lowers all sets to `keep`. What is not root gets nothing that is in force, as execve(2) would have it; the
/// bounding set still bounds what set-uid programs can give.
fn drop_to(keep: &HashSet<Capability>, is_root: bool) -> Result<(), caps::errors::CapsError> {
    let bounding = caps::read(None, CapSet::Bounding)?;
    for capability in bounding.difference(keep) {
        caps::drop(None, CapSet::Bounding, *capability)?;
    }
    caps::clear(None, CapSet::Inheritable)?;
    let none = HashSet::new();
    let held = if is_root { keep } else { &none };
    let permitted = caps::read(None, CapSet::Permitted)?;
    let held: HashSet<_> = held.intersection(&permitted).copied().collect();
    caps::set(None, CapSet::Effective, &held)?;
    caps::set(None, CapSet::Permitted, &held)
}

fn capabilities(names: &[String]) -> Result<HashSet<Capability>, ExecutorError> {
    let parse =
        |name: &String| name.parse().map_err(|_| ExecutorError::Other(format!("unknown capability {name}")));
    names.iter().map(parse).collect()
}

fn c_string(bytes: &[u8]) -> Result<CString, ExecutorError> {
    CString::new(bytes).map_err(|_| ExecutorError::InvalidArg)
}

fn boxed(error: impl std::error::Error + Send + Sync + 'static) -> ExecutorError {
    ExecutorError::Other(base::error_chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_covered_by_a_later_mount_is_left_as_it_is() {
        let mount = |target: &str, option: &str| {
            let mut mount = Mount::default();
            mount.set_destination(target.into()).set_options(Some(vec![option.to_owned()]));
            mount
        };
        let mounts = [
            mount("/sys/fs/cgroup/cpu", "rprivate"),
            mount("/sys/fs", "rprivate"),
            mount("/sys/fs", "rshared"),
            mount("/sys/fs2", "rslave"),
            mount("/data", "rprivate"),
            mount("/data/inner", "rslave"),
        ];
        let found: Vec<_> =
            propagations(&mounts).into_iter().map(|(target, how)| (target.to_str(), how)).collect();
        let expected = [
            (Some("/sys/fs2"), Propagation::Slave),
            (Some("/data"), Propagation::Private),
            (Some("/data/inner"), Propagation::Slave),
        ];
        assert_eq!(found, expected);
    }
}
