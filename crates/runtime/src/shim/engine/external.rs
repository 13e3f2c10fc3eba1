//! An external OCI runtime by its command line: `create`, `start`, `exec`, `kill`, `update`, `delete`.
//!
//! The commands and their options are runc's, which crun and youki have too. A command is killed with the shim that
//! waits for it; what it was about is then begun again by the next shim. Errors are the last one of the command's log.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::libc::SIGKILL;
use serde::Deserialize;
use sys::process::{ChildSetup, set_up_child};

use super::{Creation, Entry, Streams};
use crate::shim::error::{StartError, prepare};
use crate::shim::layout::{self, remove_if_there};

/// Where a command says what went wrong, in a container's directory.
const LOG: &str = "runtime.log";
/// Where a command says which process it made, in a container's directory.
const PID_FILE: &str = "runtime.pid";
/// Most of the log that is read back.
const TAIL_BYTES_MAX: i64 = 16 << 10;

/// The runtime of one Pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct External<'a> {
    pub(super) binary: &'a Path,
    pub(super) sandbox: &'a Path,
}

impl External<'_> {
    /// Returns the pid of the container's first process, which waits for its start.
    pub(super) fn create(&self, creation: Creation<'_>) -> Result<i32, StartError> {
        let Creation { id, streams, console, .. } = creation;
        let dir = layout::container_dir(self.sandbox, id);
        let mut command = self.command(id, "create");
        command.arg("--bundle").arg(&dir);
        self.run_for_pid(command, id, "create", streams, console)
    }

    pub(super) fn start(&self, id: &str) -> Result<(), StartError> {
        self.run(self.command(id, "start"), id, "start")
    }

    pub(super) fn exec(&self, entry: Entry<'_>) -> Result<i32, StartError> {
        let streams = entry.streams.map(|streams| streams.or_nothing()).transpose();
        let mut command = self.command(entry.id, "exec");
        command.arg("--detach").arg("--process").arg(entry.process);
        self.run_for_pid(command, entry.id, "exec", streams.map_err(prepare("streams"))?, entry.console)
    }

    /// No error if the container does not run.
    pub(super) fn kill(&self, id: &str, signal: i32) -> Result<(), StartError> {
        let mut command = self.command(id, "kill");
        command.arg(id).arg(signal.to_string());
        match self.run_whole(command, id, "kill") {
            Err(StartError::External { message, .. }) if is_gone(&message) => Ok(()),
            other => other,
        }
    }

    pub(super) fn update(&self, id: &str, resources: &Path) -> Result<(), StartError> {
        let mut command = self.command(id, "update");
        command.arg("--resources").arg(resources);
        self.run(command, id, "update")
    }

    pub(super) fn delete(&self, id: &str) -> Result<(), StartError> {
        let mut command = self.command(id, "delete");
        command.arg("--force");
        self.run(command, id, "delete")
    }

    fn command(&self, id: &str, verb: &str) -> Command {
        let mut command = Command::new(self.binary);
        command.env_clear().env("PATH", crate::oci::DEFAULT_PATH);
        command.arg("--root").arg(self.sandbox.join(layout::LIBCONTAINER));
        command.arg("--log").arg(layout::container_dir(self.sandbox, id).join(LOG));
        command.args(["--log-format", "json", verb]);
        command
    }

    /// Runs a command whose last argument is the container.
    fn run(&self, mut command: Command, id: &str, verb: &'static str) -> Result<(), StartError> {
        command.arg(id);
        self.run_whole(command, id, verb)
    }

    fn run_whole(&self, mut command: Command, id: &str, verb: &'static str) -> Result<(), StartError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.wait_for(command, id, verb)
    }

    fn run_for_pid(
        &self,
        mut command: Command,
        id: &str,
        verb: &'static str,
        streams: Option<Streams>,
        console: Option<&Path>,
    ) -> Result<i32, StartError> {
        let dir = layout::container_dir(self.sandbox, id);
        let pid_file = dir.join(PID_FILE);
        remove_if_there(&pid_file).map_err(prepare("pid file"))?;
        command.arg("--pid-file").arg(&pid_file);
        // A socket's path may have 107 bytes only, and youki leaves the working directory.
        let dir = File::open(dir).map_err(prepare("container's directory"))?;
        if let Some(name) = console.and_then(Path::file_name) {
            let short = format!("/proc/{}/fd/{}", std::process::id(), dir.as_raw_fd());
            command.arg("--console-socket").arg(Path::new(&short).join(name));
        }
        command.arg(id);
        match streams {
            Some(streams) => command.stdin(streams.stdin).stdout(streams.stdout).stderr(streams.stderr),
            None => command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()),
        };
        self.wait_for(command, id, verb)?;
        let text = std::fs::read_to_string(&pid_file).map_err(prepare("pid file"))?;
        text.trim().parse().map_err(prepare("pid file"))
    }

    fn wait_for(&self, mut command: Command, id: &str, verb: &'static str) -> Result<(), StartError> {
        let log = layout::container_dir(self.sandbox, id).join(LOG);
        remove_if_there(&log).map_err(prepare("log"))?;
        let parent_death_signal = Some(SIGKILL);
        set_up_child(&mut command, ChildSetup { parent_death_signal, ..ChildSetup::default() });
        let ended = command.status().map_err(|error| StartError::External {
            verb,
            message: format!("cannot run {}: {error}", self.binary.display()),
        })?;
        if ended.success() {
            return Ok(());
        }
        let message = last_error(&log).unwrap_or_else(|| format!("{}: {ended}", self.binary.display()));
        Err(StartError::External { verb, message })
    }
}

/// What ended meanwhile. Source: the words of runc, crun and youki.
fn is_gone(message: &str) -> bool {
    ["not running", "already finished", "does not exist", "no such process", "stopped"]
        .iter()
        .any(|words| message.to_lowercase().contains(words))
}

/// The last error that the command has logged.
fn last_error(log: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Line {
        level: String,
        #[serde(alias = "message")]
        msg: String,
    }
    let mut file = std::fs::File::open(log).ok()?;
    let size = i64::try_from(file.metadata().ok()?.len()).ok()?;
    file.seek(SeekFrom::End(-size.min(TAIL_BYTES_MAX))).ok()?;
    let mut text = Vec::new();
    io::Read::by_ref(&mut file).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines.filter(|line| line.level == "error" || line.level == "ERROR").map(|line| line.msg).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_of_a_log_is_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(last_error(&log), None);
        let lines = [
            r#"{"level":"error","msg":"first","time":"t"}"#,
            r#"{"level":"error","msg":"exec: \"nothing\": not found","time":"t"}"#,
            r#"{"level":"warning","msg":"later","time":"t"}"#,
            "no json",
        ];
        std::fs::write(&log, lines.join("\n")).unwrap();
        assert_eq!(last_error(&log).as_deref(), Some("exec: \"nothing\": not found"));
        std::fs::write(&log, r#"{"level":"ERROR","message":"as youki says it","target":"youki"}"#).unwrap();
        assert_eq!(last_error(&log).as_deref(), Some("as youki says it"));
    }
}
