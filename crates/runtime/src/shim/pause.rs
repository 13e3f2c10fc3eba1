//! The process that holds a shared PID namespace: its first process, which reaps what others leave.
//!
//! It outlives the shim that started it; the next one finds it by what is written down.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::libc::SIGKILL;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal};
use sys::process::PidFd;

use super::layout::{self, Started};

/// How long it may take to end: longer means that the kernel does not let it.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// A handle on the Pod's pause process.
pub(super) struct Pause(PidFd);

impl Pause {
    /// The one that an earlier shim started, if it runs.
    pub(super) fn find(sandbox: &Path) -> io::Result<Option<Self>> {
        let started: Option<Started> = layout::read_json(&sandbox.join(layout::PAUSE))?;
        let Some(process) = started.and_then(|started| started.process()) else { return Ok(None) };
        let has_ended = process.wait(Duration::ZERO).map_err(io::Error::other)?;
        Ok((!has_ended).then_some(Self(process)))
    }

    /// Starts one in a PID namespace of its own, and names that namespace for containers to enter.
    pub(super) fn start(sandbox: &Path) -> io::Result<Self> {
        let home = File::open("/proc/self/ns/pid")?;
        unshare(CloneFlags::CLONE_NEWPID)?;
        let pause = Command::new("/proc/self/exe")
            .args(["shim", "pause"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // Containers enter the Pod's PID namespace by path; what else the shim starts stays in the host's.
        setns(home, CloneFlags::CLONE_NEWPID)?;
        let pid = i32::try_from(pause.id()).map_err(io::Error::other)?;
        let process = PidFd::open(pid).map_err(io::Error::other)?;
        let link = sandbox.join(layout::PID_NAMESPACE);
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::os::unix::fs::symlink(format!("/proc/{pid}/ns/pid"), link)?;
        // Last: who finds this finds the link too.
        layout::write_json(&sandbox.join(layout::PAUSE), &Started::now(pid))?;
        Ok(Self(process))
    }

    /// A handle of its own on the process.
    pub(super) fn handle(&self) -> io::Result<PidFd> {
        Ok(self.0.as_fd().try_clone_to_owned()?.into())
    }

    /// Kills the process, and with it everything in its namespace, and waits for that. Whose child it is reaps it.
    pub(super) fn end(&self) -> sys::Result<()> {
        self.0.signal(SIGKILL)?;
        self.0.wait(KILL_TIMEOUT).map(drop)
    }
}

/// Ends the pause process that a killed shim left in a sandbox, if there is one.
pub(crate) fn end_left(sandbox: &Path) -> io::Result<()> {
    Pause::find(sandbox)?.map_or(Ok(()), |pause| pause.end().map_err(io::Error::other))
}

/// Reaps until it is killed or told to end.
pub(super) fn run() -> ExitCode {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        signals.add(signal);
    }
    if signals.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => drop(sys::process::reap()),
            _ => return ExitCode::SUCCESS,
        }
    }
}
