//! One container in the shim: created and started by the engine, its output pumped, its end recorded.
//!
//! Creation and start are one step (containerd does the same): a process that is created but not started would hold
//! copies of every descriptor that the shim has.
//!
//! Output goes through named pipes that the container holds open for reading too: if this shim dies, the container
//! neither gets a signal nor loses what it writes, and the next shim opens them again ([`Container::adopt`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;

use jiff::Timestamp;
use nix::sys::stat::Mode;
use sys::cgroup::{Cgroups, Version};
use sys::descriptors;
use sys::process::PidFd;

use super::engine::{Creation, Engine, Entry, Streams};
use super::error::{StartError, prepare};
use super::layout::{self, ContainerPlan, Exited, Started, remove_if_there};
use super::logs::{Lines, Log, Stream};

/// Most bytes read from an output at once.
const READ_BYTES: usize = 16 << 10;
/// Most bytes of an output that wait in a pipe when its container ends. Source: the kernel's `fs.pipe-max-size`.
const LEFT_BYTES_MAX: usize = 1 << 20;

/// A container that was started.
pub(super) struct Container {
    pub(super) pid: i32,
    pub(super) plan: ContainerPlan,
    pub(super) outputs: Vec<Output>,
    /// The writing end of the container's stdin.
    pub(super) stdin: Option<OwnedFd>,
    /// The controlling end of the container's terminal.
    pub(super) terminal: Option<OwnedFd>,
    pub(super) exited: bool,
    /// Set if an earlier shim started it: then somebody else reaps it, and this handle says when it ends.
    pub(super) adopted: Option<Adopted>,
    log: Option<Log>,
}

/// A process that is not ours.
pub(super) struct Adopted {
    pub(super) process: PidFd,
    /// It has ended but is not reaped yet: its exit status is known only then.
    pub(super) is_dying: bool,
}

/// One stream of output on its way to the log and to whoever is attached.
pub(super) struct Output {
    pub(super) fd: OwnedFd,
    pub(super) attachments: Vec<Attachment>,
    stream: Stream,
    lines: Lines,
}

/// A copy of an output. While it has bytes pending the output is not read: what an attached client does not take
/// holds the container up, as its terminal would.
pub(super) struct Attachment {
    pub(super) fd: OwnedFd,
    pub(super) pending: Vec<u8>,
}

impl Container {
    /// Creates and starts the container whose plan and specification are in its directory.
    ///
    /// `sockets` are the shim's own, which the container's process lets go of.
    pub(super) fn start(engine: &Engine, id: &str, sockets: &[RawFd]) -> Result<(Self, Started), StartError> {
        let dir = layout::container_dir(engine.sandbox(), id);
        let mut container = Self::planned(&dir)?;
        // Every process that is made has a copy until it becomes the payload or ends.
        let starting = File::create(dir.join(layout::STARTING)).map_err(prepare("lock"))?;
        starting.lock().map_err(prepare("lock"))?;
        let console = container.plan.tty.then(|| dir.join("console.sock"));
        let listener = console.as_deref().map(descriptors::listen_stream_at);
        let listener = listener.transpose().map_err(prepare("terminal"))?;
        let streams = match console {
            None => Some(container.pipes(&dir).map_err(prepare("pipes"))?),
            Some(_) => None,
        };
        // What it sees of them is there before any runtime mounts it.
        let cgroups = Cgroups::detect().map_err(prepare("cgroups"))?;
        if cgroups.version() == Version::V1 {
            cgroups.create(&container.plan.cgroup).map_err(prepare("cgroups"))?;
        }
        let security = container.plan.security.clone();
        let creation = Creation { id, security: &security, streams, console: console.as_deref(), sockets };
        let created = engine.create(creation)?;
        container.pid = created.pid();
        if let (Some(listener), Some(console)) = (listener, &console) {
            container.take_terminal(&listener, console).map_err(prepare("terminal"))?;
        }
        adjust_oom_score(container.pid, container.plan.oom_score_adj);
        created.start()?;
        let started = Started::now(container.pid);
        layout::write_json(&dir.join(layout::STARTED), &started).map_err(prepare("state"))?;
        Ok((container, started))
    }

    fn planned(dir: &Path) -> Result<Self, StartError> {
        let plan: ContainerPlan = layout::read_json(&dir.join(layout::CONTAINER_PLAN))
            .and_then(|plan| plan.ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(prepare("plan"))?;
        let open = |path: &Path| Log::open(path, plan.log_limits);
        let log = plan.log_path.as_deref().map(open).transpose().map_err(prepare("log"))?;
        let (outputs, stdin, terminal, adopted) = (Vec::new(), None, None, None);
        Ok(Self { pid: 0, plan, outputs, stdin, terminal, exited: false, adopted, log })
    }

    /// Takes over a container that an earlier shim started. `process` is a handle on its first process, if it is
    /// not gone; `input` the writing end of its stdin or the controlling end of its terminal.
    pub(super) fn adopt(
        sandbox: &Path,
        id: &str,
        process: Option<PidFd>,
        input: Option<OwnedFd>,
    ) -> Result<Self, StartError> {
        let dir = layout::container_dir(sandbox, id);
        let mut container = Self::planned(&dir)?;
        let started: Started = layout::read_json(&dir.join(layout::STARTED))
            .and_then(|started| started.ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(prepare("state"))?;
        container.pid = started.pid;
        container.adopted = process.map(|process| Adopted { process, is_dying: false });
        if container.plan.tty {
            if let Some(terminal) = input {
                container.add_terminal(terminal).map_err(prepare("terminal"))?;
            }
        } else {
            container.stdin = input;
            for (name, stream) in [(layout::STDOUT, Stream::Stdout), (layout::STDERR, Stream::Stderr)] {
                let pipe = reading_end(&dir.join(name)).map_err(prepare("pipes"))?;
                container.add_output(pipe, stream).map_err(prepare("pipes"))?;
            }
        }
        Ok(container)
    }

    /// Makes the container's pipes; the shim's ends stay in `self`.
    fn pipes(&mut self, dir: &Path) -> io::Result<Streams> {
        let stdin = if self.plan.stdin {
            let (stdin, stdin_in) = io::pipe()?;
            self.stdin = Some(stdin_in.into());
            stdin.into()
        } else {
            OwnedFd::from(File::open("/dev/null")?)
        };
        let stdout = self.output_pipe(&dir.join(layout::STDOUT), Stream::Stdout)?;
        let stderr = self.output_pipe(&dir.join(layout::STDERR), Stream::Stderr)?;
        Ok(Streams { stdin, stdout, stderr })
    }

    /// Makes a named pipe and returns the container's end, which is open for reading as well.
    fn output_pipe(&mut self, path: &Path, stream: Stream) -> io::Result<OwnedFd> {
        remove_if_there(path)?;
        nix::unistd::mkfifo(path, Mode::from_bits_truncate(0o600))?;
        let pipe = reading_end(path)?;
        let theirs = File::options().read(true).write(true).open(path)?;
        std::os::unix::fs::fchown(&theirs, Some(self.plan.owner.0), Some(self.plan.owner.1))?;
        self.add_output(pipe, stream)?;
        Ok(theirs.into())
    }

    fn take_terminal(&mut self, listener: &OwnedFd, path: &Path) -> io::Result<()> {
        self.add_terminal(receive_terminal(listener, path)?)
    }

    fn add_terminal(&mut self, terminal: OwnedFd) -> io::Result<()> {
        self.add_output(terminal.try_clone()?, Stream::Stdout)?;
        self.terminal = Some(terminal);
        Ok(())
    }

    fn add_output(&mut self, fd: OwnedFd, stream: Stream) -> io::Result<()> {
        descriptors::set_nonblocking(&fd).map_err(io::Error::other)?;
        self.outputs.push(Output { fd, attachments: Vec::new(), stream, lines: Lines::new(stream) });
        Ok(())
    }

    /// Copies output from now on to `fd`.
    pub(super) fn attach(&mut self, fd: OwnedFd, stream: Stream) -> io::Result<()> {
        descriptors::set_nonblocking(&fd).map_err(io::Error::other)?;
        if let Some(output) = self.outputs.iter_mut().find(|output| output.stream == stream) {
            output.attachments.push(Attachment { fd, pending: Vec::new() });
        }
        Ok(())
    }

    /// Moves what output `index` has to log and attachments; an output that ended is dropped.
    pub(super) fn pump(&mut self, index: usize) {
        let Some(output) = self.outputs.get_mut(index) else { return };
        let mut records = Vec::new();
        let open = output.read_once(&mut records);
        if !open {
            output.lines.finish(Timestamp::now(), &mut records);
            self.outputs.remove(index);
        }
        write_log(&mut self.log, &records);
    }

    /// Moves everything that is there, without waiting for more. What comes meanwhile, from processes that outlive the
    /// container, holds nobody up: its turn is later.
    pub(super) fn drain(&mut self) {
        let now = Timestamp::now();
        let (outputs, log) = (&mut self.outputs, &mut self.log);
        let mut chunk = vec![0; READ_BYTES];
        outputs.retain_mut(|output| {
            let mut moved = 0;
            while moved < LEFT_BYTES_MAX {
                let mut records = Vec::new();
                match nix::unistd::read(&output.fd, &mut chunk) {
                    Ok(len) if len > 0 => {
                        moved += len;
                        output.accept(chunk.get(..len).unwrap_or_default(), now, &mut records);
                        write_log(log, &records);
                    }
                    Err(nix::errno::Errno::EINTR) => {}
                    Err(nix::errno::Errno::EAGAIN) => return true,
                    _ => {
                        output.lines.finish(now, &mut records);
                        write_log(log, &records);
                        return output.attachments.iter().any(|attachment| !attachment.pending.is_empty());
                    }
                }
            }
            true
        });
    }

    /// Sends a signal to the first process; no error if it has ended.
    pub(super) fn signal(&self, signal: i32) -> sys::Result<()> {
        match &self.adopted {
            Some(adopted) => adopted.process.signal(signal),
            None => sys::process::kill(self.pid, signal),
        }
    }

    /// What reaches the container's stdin: its terminal, or the pipe to it.
    pub(super) fn input(&self) -> Option<&OwnedFd> {
        self.terminal.as_ref().or(self.stdin.as_ref())
    }

    /// Opens the log file anew.
    pub(super) fn reopen_log(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), Log::reopen)
    }

    /// Writes down how the container ended; `None` if nobody knows.
    pub(super) fn record_exit(&mut self, sandbox: &Path, id: &str, code: Option<i32>) -> Exited {
        self.drain();
        self.exited = true;
        self.stdin = None;
        self.terminal = None;
        let cgroups = Cgroups::detect();
        let oom_killed = cgroups.is_ok_and(|cgroups| cgroups.oom_kills(&self.plan.cgroup) > 0);
        let message = if code.is_some() { "" } else { "the pod's shim ended before the container" };
        let code = code.unwrap_or(layout::LOST_CODE);
        let exited = Exited {
            code,
            at: now_nanos(),
            oom_killed: oom_killed && code != 0,
            message: message.to_owned(),
        };
        let path = layout::container_dir(sandbox, id).join(layout::EXITED);
        if let Err(error) = layout::write_json(&path, &exited) {
            eprintln!("shim: cannot record the exit of container {id}: {error}");
        }
        exited
    }
}

fn write_log(log: &mut Option<Log>, records: &[u8]) {
    let Some(log) = log.as_mut().filter(|_| !records.is_empty()) else { return };
    if let Err(error) = log.write(records) {
        eprintln!("shim: cannot write a container's log: {error}");
    }
}

impl Output {
    /// Reads once; false if the output ended.
    fn read_once(&mut self, records: &mut Vec<u8>) -> bool {
        let mut chunk = vec![0; READ_BYTES];
        match nix::unistd::read(&self.fd, &mut chunk) {
            Ok(len) if len > 0 => {
                self.accept(chunk.get(..len).unwrap_or_default(), Timestamp::now(), records);
                true
            }
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => true,
            // A terminal whose other end is closed says EIO.
            _ => false,
        }
    }

    fn accept(&mut self, bytes: &[u8], now: Timestamp, records: &mut Vec<u8>) {
        self.lines.push(bytes, now, records);
        for attachment in &mut self.attachments {
            attachment.pending.extend_from_slice(bytes);
        }
        self.flush();
    }

    /// Whether every attachment took what it was given.
    pub(super) fn is_flushed(&self) -> bool {
        self.attachments.iter().all(|attachment| attachment.pending.is_empty())
    }

    /// Gives attachments what they can take; those that are gone are dropped.
    pub(super) fn flush(&mut self) {
        self.attachments.retain_mut(Attachment::flush);
    }
}

impl Attachment {
    fn flush(&mut self) -> bool {
        while !self.pending.is_empty() {
            match nix::unistd::write(&self.fd, &self.pending) {
                Ok(len) => drop(self.pending.drain(..len)),
                Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

/// Runs one more process in a container; returns its pid and, if asked for, its terminal, for which it makes the socket.
pub(super) fn exec(engine: &Engine, entry: Entry<'_>) -> Result<(i32, Option<OwnedFd>), StartError> {
    let console = entry.streams.is_none().then(|| entry.process.with_extension("sock"));
    let listener = console.as_deref().map(descriptors::listen_stream_at);
    let listener = listener.transpose().map_err(prepare("terminal"))?;
    let pid = engine.exec(Entry { console: console.as_deref(), ..entry });
    let pid = pid.inspect_err(|_| {
        if let Some(Err(error)) = console.as_deref().map(remove_if_there) {
            eprintln!("shim: {error}");
        }
    })?;
    let terminal = match (listener, &console) {
        (Some(listener), Some(console)) => {
            Some(receive_terminal(&listener, console).map_err(prepare("terminal"))?)
        }
        _ => None,
    };
    Ok((pid, terminal))
}

/// The shim's end of an output pipe. It never waits for the container's end.
fn reading_end(path: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt;
    Ok(File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?.into())
}

fn receive_terminal(listener: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let connection = descriptors::accept(listener.as_fd()).map_err(io::Error::other)?;
    remove_if_there(path)?;
    let (_, mut received) = descriptors::receive(connection.as_fd(), &mut [0; 64])?;
    let terminal = received.pop().ok_or_else(|| io::Error::other("no terminal came from the container"))?;
    descriptors::set_nonblocking(&terminal).map_err(io::Error::other)?;
    Ok(terminal)
}

/// Sets how soon the kernel kills this process for lack of memory. A value below the shim's own may be refused
/// without `CAP_SYS_RESOURCE`; then the shim's own stays.
fn adjust_oom_score(pid: i32, score: Option<i32>) {
    let Some(score) = score else { return };
    let path = format!("/proc/{pid}/oom_score_adj");
    if let Err(error) = std::fs::write(&path, score.clamp(-1000, 1000).to_string())
        && !matches!(error.raw_os_error(), Some(nix::libc::EACCES | nix::libc::EPERM))
    {
        eprintln!("shim: cannot set {path} to {score}: {error}");
    }
}

/// Unix nanoseconds now.
pub(super) fn now_nanos() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// The containers of the Pod by id.
pub(super) type Containers = BTreeMap<String, Container>;
