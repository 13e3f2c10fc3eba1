//! The files that the node process and the shim leave for each other in a sandbox's directory.
//!
//! Every file is written whole (temporary name, then rename), so that a reader sees all of it or none.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::oci::Security;

/// The shim's socket, in the sandbox's directory.
pub const SOCKET: &str = "shim.sock";
/// [`Started`] of the shim itself, in the sandbox's directory. A new shim writes it before all else.
pub const SHIM: &str = "shim.json";
/// The shim's log, of things that are wrong.
pub const SHIM_LOG: &str = "shim.log";
/// [`PodPlan`].
pub const POD_PLAN: &str = "pod.json";
/// The state of libcontainer, or of the external OCI runtime.
pub const LIBCONTAINER: &str = "libcontainer";
/// [`ContainerPlan`], in a container's directory.
pub const CONTAINER_PLAN: &str = "plan.json";
/// [`Started`], in a container's directory.
pub const STARTED: &str = "started.json";
/// [`Exited`], in a container's directory.
pub const EXITED: &str = "exited.json";
/// The Pod's shared PID namespace, in the sandbox's directory: a link, or the namespace itself with a user namespace.
pub const PID_NAMESPACE: &str = "pidns";
/// The IPC namespace of a Pod with a user namespace, in the sandbox's directory.
pub const IPC_NAMESPACE: &str = "ipcns";
/// The user namespace of a Pod that has one, in the sandbox's directory.
pub const USERNS: &str = "userns";
/// The UTS namespace of a Pod with a user namespace, in the sandbox's directory.
pub const UTS_NAMESPACE: &str = "utsns";
/// [`Started`] of the process that holds the shared PID namespace, in the sandbox's directory.
pub const PAUSE: &str = "pause.json";
/// The pipe of the container's standard output, in a container's directory.
pub const STDOUT: &str = "stdout";
/// The pipe of the container's standard error, in a container's directory.
pub const STDERR: &str = "stderr";
/// The OCI runtime configuration, in a container's directory.
pub const SPEC: &str = "config.json";

/// Exit code of a container whose end nobody saw, as containerd's.
pub const LOST_CODE: i32 = 255;

/// Held locked by everything that takes part in a start until it is a payload or gone, in a container's directory.
pub const STARTING: &str = "starting";

/// The folder of a container's files.
pub fn container_dir(sandbox: &Path, container: &str) -> PathBuf {
    sandbox.join("containers").join(container)
}

/// The facts that the shim needs to know of its Pod before it starts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PodPlan {
    /// The network namespace to live in; `None` is the host's.
    pub netns: Option<PathBuf>,
    /// Set in a UTS namespace of the Pod's own; `None` keeps the host's.
    pub hostname: Option<String>,
    /// `true` if the Pod has an IPC namespace of its own.
    pub own_ipc: bool,
    /// `true` if the Pod has a user namespace, whose IPC and UTS namespaces are kept at [`IPC_NAMESPACE`] and
    /// [`UTS_NAMESPACE`].
    #[serde(default)]
    pub has_userns: bool,
    /// `true` if the containers share one PID namespace.
    pub shared_pid: bool,
    /// The cgroup that the shim moves to.
    pub shim_cgroup: String,
    /// The binary of an external OCI runtime that makes the containers; `None` is libcontainer in the shim.
    #[serde(default)]
    pub oci_runtime: Option<PathBuf>,
    /// Kernel parameters of the Pod's namespaces, dotted names.
    pub sysctls: std::collections::BTreeMap<String, String>,
}

/// The facts that the shim needs to know of a container beside its OCI configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ContainerPlan {
    /// The CRI log file; `None` drops the output.
    pub log_path: Option<PathBuf>,
    /// The limits of the log; `None` leaves that to whoever asks for it to be opened anew.
    #[serde(default)]
    pub log_limits: Option<LogLimits>,
    /// The owner of the output pipes, so that `/dev/stdout` can be opened by a container that is not root.
    #[serde(default)]
    pub owner: (u32, u32),
    /// A terminal instead of pipes.
    pub tty: bool,
    /// `true` if stdin stays open for attach.
    pub stdin: bool,
    /// From the root of the hierarchies.
    pub cgroup: String,
    /// As asked for; the shim clamps it to what the host allows.
    pub oom_score_adj: Option<i32>,
    /// The rights of the payload in the end.
    pub security: Security,
    /// `true` if the container is in a PID namespace that others are in too.
    pub shared_pid: bool,
}

/// The size at which a log file is rotated away, and the number that are kept. Source: the kubelet's
/// `containerLogMaxSize` and `containerLogMaxFiles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    /// Size in bytes at which a file is rotated.
    pub file_bytes_max: u64,
    /// Files with the one that is written; at least 2.
    pub files_max: usize,
}

/// A process that runs or ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// As the host sees it.
    pub pid: i32,
    /// Unix nanoseconds.
    pub at: i64,
    /// See [`sys::process::start_time`]; 0 if it ended before that could be read.
    #[serde(default)]
    pub ticks: u64,
}

impl Started {
    /// The process with this pid, which has just been started.
    pub fn now(pid: i32) -> Self {
        let at = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
        Self { pid, at, ticks: sys::process::start_time(pid).unwrap_or_default() }
    }

    /// A handle on the process; `None` if it is gone.
    pub fn process(&self) -> Option<sys::process::PidFd> {
        sys::process::PidFd::open_same(self.pid, self.ticks).ok().flatten()
    }
}

/// The end of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// 128 plus the signal's number for a process that was killed.
    pub code: i32,
    /// Unix nanoseconds.
    pub at: i64,
    /// `true` if the kernel killed in the container for lack of memory.
    pub oom_killed: bool,
    /// The reason for its end if it did not end by itself.
    pub message: String,
}

/// Takes the document of an exec away from whoever asked for it: as long as it has its name, nobody has begun.
/// Returns its new name.
pub fn take_exec(process: &Path) -> io::Result<PathBuf> {
    let taken = process.with_extension("taken");
    fs::rename(process, &taken)?;
    Ok(taken)
}

/// The prefix of files that belong to one exec, in a container's directory.
pub const EXEC: &str = "exec-";

/// Removes a file; there need not be one.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the files directly in `folder` whose names begin so.
pub fn remove_beginning_with(folder: &Path, prefix: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Reads a file written by [`write_json`]; `None` if there is none.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file whole. It survives the death of any process, not a power cut: what it says is void then anyway.
pub fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write_whole(path, &serde_json::to_vec(value)?)
}

/// Writes `bytes` under a temporary name and renames it to `path`.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    fs::rename(&temporary, path)
}
