//! What the node process and the shim leave for each other in a sandbox's directory.
//!
//! Every file is written whole (temporary name, then rename), so that a reader sees all of it or none.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The shim's socket, in the sandbox's directory.
pub const SOCKET: &str = "shim.sock";
/// What the shim says when something is wrong.
pub const SHIM_LOG: &str = "shim.log";
/// [`PodPlan`].
pub const POD_PLAN: &str = "pod.json";
/// libcontainer's own state.
pub const LIBCONTAINER: &str = "libcontainer";
/// [`ContainerPlan`], in a container's directory.
pub const CONTAINER_PLAN: &str = "plan.json";
/// [`Started`], in a container's directory.
pub const STARTED: &str = "started.json";
/// [`Exited`], in a container's directory.
pub const EXITED: &str = "exited.json";
/// A link to the Pod's shared PID namespace, in the sandbox's directory.
pub const PID_NAMESPACE: &str = "pidns";
/// The OCI runtime configuration, in a container's directory.
pub const SPEC: &str = "config.json";

/// Where a container's files are.
pub fn container_dir(sandbox: &Path, container: &str) -> PathBuf {
    sandbox.join("containers").join(container)
}

/// What the shim needs to know of its Pod before it starts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PodPlan {
    /// The network namespace to live in; `None` is the host's.
    pub netns: Option<PathBuf>,
    /// Set in a UTS namespace of the Pod's own; `None` keeps the host's.
    pub hostname: Option<String>,
    /// Whether the Pod has an IPC namespace of its own.
    pub own_ipc: bool,
    /// Whether the containers share one PID namespace.
    pub shared_pid: bool,
    /// The cgroup that the shim moves to.
    pub shim_cgroup: String,
    /// Kernel parameters of the Pod's namespaces, dotted names.
    pub sysctls: std::collections::BTreeMap<String, String>,
}

/// What the shim needs to know of a container beside its OCI configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ContainerPlan {
    /// The CRI log file; `None` drops the output.
    pub log_path: Option<PathBuf>,
    /// A terminal instead of pipes.
    pub tty: bool,
    /// Whether stdin stays open for attach.
    pub stdin: bool,
    /// From the root of the hierarchies.
    pub cgroup: String,
    /// As asked for; the shim clamps it to what the host allows.
    pub oom_score_adj: Option<i32>,
    /// What the payload may do in the end.
    pub security: Security,
    /// Whether the container is in a PID namespace that others are in too.
    pub shared_pid: bool,
}

/// What is applied between libcontainer's work and the payload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Security {
    /// Capabilities that the payload keeps, `CAP_` names. libcontainer is given a few more for the way there.
    pub capabilities: Vec<String>,
    /// A compiled seccomp filter, `(code, jt, jf, k)`; empty is unconfined.
    pub seccomp: SeccompProfile,
}

/// Which seccomp filter a container gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeccompProfile {
    /// None.
    #[default]
    Unconfined,
    /// The runtime's default.
    RuntimeDefault,
}

/// A container that runs or ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    /// As the host sees it.
    pub pid: i32,
    /// Unix nanoseconds.
    pub at: i64,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// 128 plus the signal's number for a process that was killed.
    pub code: i32,
    /// Unix nanoseconds.
    pub at: i64,
    /// Whether the kernel killed in the container for lack of memory.
    pub oom_killed: bool,
    /// Why it ended if it did not end by itself.
    pub message: String,
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
