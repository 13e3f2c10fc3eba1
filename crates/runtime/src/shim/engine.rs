//! The maker of a Pod's containers: libcontainer in this process, or the binary of another OCI runtime ([`external`]).
//!
//! Only the making, entering, signalling and deleting is the engine's. Pipes, logs, exit codes and adoption are the
//! same for both: a container's first process is this process's child in the end.

mod external;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;

use super::error::{StartError, prepare};
use super::executor::Payload;
use super::layout::{self, remove_if_there};
use crate::oci::Security;
use external::External;

/// The engine of one Pod.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    sandbox: PathBuf,
    /// `None` is libcontainer.
    binary: Option<PathBuf>,
}

/// A container's ends of its standard streams.
pub(super) struct Streams {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// The streams that an exec was started with.
pub(super) struct ExecStreams {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
}

/// A container that is to be created.
pub(super) struct Creation<'a> {
    pub(super) id: &'a str,
    pub(super) security: &'a Security,
    /// `None` with a terminal.
    pub(super) streams: Option<Streams>,
    /// Where the terminal's controlling end is sent.
    pub(super) console: Option<&'a Path>,
    /// The shim's own, which the container's process lets go of.
    pub(super) sockets: &'a [RawFd],
}

/// A process that is to be run in a container.
pub(super) struct Entry<'a> {
    pub(super) id: &'a str,
    pub(super) security: &'a Security,
    /// The OCI `process` document.
    pub(super) process: &'a Path,
    /// `None` with a terminal.
    pub(super) streams: Option<ExecStreams>,
    /// Where the terminal's controlling end is sent.
    pub(super) console: Option<&'a Path>,
    /// As [`Creation::sockets`].
    pub(super) sockets: &'a [RawFd],
}

/// A container that is created and not started.
pub(super) enum Created<'a> {
    BuiltIn(Box<libcontainer::container::Container>, Failure),
    /// With its pid.
    External(External<'a>, &'a str, i32),
}

impl Created<'_> {
    /// Its first process.
    pub(super) fn pid(&self) -> i32 {
        match self {
            Self::BuiltIn(container, _) => container.pid().map(nix_pid).unwrap_or_default(),
            Self::External(_, _, pid) => *pid,
        }
    }

    /// Runs the payload.
    pub(super) fn start(self) -> Result<(), StartError> {
        match self {
            Self::BuiltIn(mut container, failure) => {
                container.start().map_err(create_error)?;
                failure.wait_for_exec()
            }
            Self::External(external, id, _) => external.start(id),
        }
    }
}

impl Engine {
    /// Of the Pod in this directory.
    pub(super) fn new(sandbox: &Path, binary: Option<PathBuf>) -> Self {
        Self { sandbox: sandbox.to_owned(), binary }
    }

    /// The Pod's directory.
    pub(super) fn sandbox(&self) -> &Path {
        &self.sandbox
    }

    fn external(&self) -> Option<External<'_>> {
        let binary = self.binary.as_deref()?;
        Some(External { binary, sandbox: &self.sandbox })
    }

    fn state(&self) -> PathBuf {
        self.sandbox.join(layout::LIBCONTAINER)
    }

    /// Whether something of a container is there: of one that runs, or of an attempt that was cut off.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.state().join(id).exists()
    }

    pub(super) fn create<'a>(&'a self, creation: Creation<'a>) -> Result<Created<'a>, StartError> {
        if let Some(external) = self.external() {
            let id = creation.id;
            let pid = external.create(creation)?;
            return Ok(Created::External(external, id, pid));
        }
        let Creation { id, security, streams, console, sockets } = creation;
        let (failure, failure_in) = Failure::new().map_err(prepare("pipe"))?;
        let payload = Payload::new(security.clone(), failure_in, sockets).map_err(prepare("payload"))?;
        let mut builder = ContainerBuilder::new(id.to_owned(), SyscallType::default())
            .with_executor(payload)
            .with_root_path(self.state())
            .map_err(create_error)?;
        if let Some(streams) = streams {
            builder =
                builder.with_stdin(streams.stdin).with_stdout(streams.stdout).with_stderr(streams.stderr);
        }
        builder = builder.with_console_socket(console);
        let dir = layout::container_dir(&self.sandbox, id);
        match builder.as_init(&dir).with_systemd(false).with_detach(true).build() {
            Ok(built) => Ok(Created::BuiltIn(Box::new(built), failure)),
            Err(error) => Err(failure.said().map_or_else(|| create_error(error), StartError::Payload)),
        }
    }

    /// Runs one more process in a container; returns its pid.
    pub(super) fn exec(&self, entry: Entry<'_>) -> Result<i32, StartError> {
        if let Some(external) = self.external() {
            return external.exec(entry);
        }
        let userns = entry.security.userns.as_ref().map(File::open).transpose();
        let userns = userns.map_err(prepare("user namespace"))?.map(|file| Arc::new(OwnedFd::from(file)));
        let (failure, failure_in) = Failure::new().map_err(prepare("pipe"))?;
        let payload =
            Payload::new(entry.security.clone(), failure_in, entry.sockets).map_err(prepare("payload"))?;
        let payload = payload.entering(userns);
        let mut builder = ContainerBuilder::new(entry.id.to_owned(), SyscallType::default())
            .with_executor(payload)
            .with_root_path(self.state())
            .map_err(create_error)?;
        if let Some(streams) = entry.streams {
            let streams = streams.or_nothing().map_err(prepare("streams"))?;
            builder =
                builder.with_stdin(streams.stdin).with_stdout(streams.stdout).with_stderr(streams.stderr);
        }
        builder = builder.with_console_socket(entry.console);
        let built = builder.as_tenant().with_detach(true).with_process(Some(entry.process)).build();
        remove_if_there(&self.state().join(entry.id).join("console-socket")).map_err(prepare("terminal"))?;
        // One at a time is started, and who was to be told has been; or a shim before this one was killed.
        layout::remove_beginning_with(&self.state().join(entry.id), TENANT_NOTIFY)
            .map_err(prepare("state"))?;
        // The payload runs by now, or has said why not.
        built
            .map(nix_pid)
            .map_err(|error| StartError::Exec(failure.said().unwrap_or_else(|| base::error_chain(&error))))
    }

    /// Removes what libcontainer leaves of execs that have been started, or were cut off with an earlier shim.
    pub(super) fn forget_execs(&self, id: &str) -> io::Result<()> {
        let state = self.state().join(id);
        if state.exists() { layout::remove_beginning_with(&state, TENANT_NOTIFY) } else { Ok(()) }
    }

    /// Sends a signal to a container's first process as the external runtime does it; false if that is not its work.
    pub(super) fn kill(&self, id: &str, signal: i32) -> Result<bool, StartError> {
        self.external().map_or(Ok(false), |external| external.kill(id, signal).map(|()| true))
    }

    /// Changes what a container may use, as the document `resources` says.
    pub(super) fn update(&self, id: &str, resources: &Path) -> Result<(), StartError> {
        self.external().map_or(Ok(()), |external| external.update(id, resources))
    }

    /// Forgets an ended container: the runtime's state and its cgroups.
    pub(super) fn delete(&self, id: &str) -> Result<(), StartError> {
        let state = self.state().join(id);
        if !state.exists() {
            return Ok(());
        }
        if let Some(external) = self.external() {
            external.delete(id)?;
        } else if let Ok(mut container) = libcontainer::container::Container::load(state.clone()) {
            container.delete(true).map_err(create_error)?;
        }
        // What is left is of an attempt that was cut off while it wrote down what it did.
        match state.exists() {
            true => std::fs::remove_dir_all(&state).map_err(prepare("state")),
            false => Ok(()),
        }
    }
}

impl ExecStreams {
    /// What is not wanted is nothing.
    pub(super) fn or_nothing(self) -> io::Result<Streams> {
        let null = || File::open("/dev/null").map(OwnedFd::from);
        let sink = || File::options().write(true).open("/dev/null").map(OwnedFd::from);
        Ok(Streams {
            stdin: self.stdin.map_or_else(null, Ok)?,
            stdout: self.stdout.map_or_else(sink, Ok)?,
            stderr: self.stderr.map_or_else(sink, Ok)?,
        })
    }
}

/// More than a reason has.
const FAILURE_BYTES_MAX: usize = 4096;
/// How the names of the sockets begin by which libcontainer has an exec go on, and which it leaves. Source:
/// libcontainer's `tenant_builder`.
const TENANT_NOTIFY: &str = "tenant-notify-";

/// The reading end of a pipe on which the payload says why it could not be run; it closes when it runs.
pub(super) struct Failure(File);

impl Failure {
    fn new() -> io::Result<(Self, Arc<OwnedFd>)> {
        let (reader, writer) = io::pipe()?;
        Ok((Self(OwnedFd::from(reader).into()), Arc::new(writer.into())))
    }

    fn wait_for_exec(mut self) -> Result<(), StartError> {
        let mut text = String::new();
        self.0.read_to_string(&mut text).map_err(prepare("start"))?;
        if text.is_empty() { Ok(()) } else { Err(StartError::Payload(text)) }
    }

    /// What has been said by now: whoever was to be the payload may be on its way out still.
    fn said(mut self) -> Option<String> {
        sys::descriptors::set_nonblocking(&self.0).ok()?;
        let mut text = vec![0; FAILURE_BYTES_MAX];
        let length = self.0.read(&mut text).ok().filter(|length| *length > 0)?;
        text.truncate(length);
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

/// libcontainer's innermost reason: the outer ones only say that something failed.
fn create_error(error: libcontainer::error::LibcontainerError) -> StartError {
    StartError::Create(base::error_chain(&error))
}

fn nix_pid(pid: impl Into<i32>) -> i32 {
    pid.into()
}
