//! The shim's loop: children that ended, output to pump, requests to answer. One thread, no timers.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sys::descriptors;
use sys::process::PidFd;

use super::container::{self, Container, Containers};
use super::engine::{Engine, Entry, ExecStreams};
use super::error::{Error, StartError, system};
use super::layout::{self, PodPlan, Started};
use super::logs::Stream;
use super::pause::Pause;
use super::protocol::{Call, Done, Message, PACKET_BYTES_MAX, Refused, Request};
use super::{namespaces, trace};

/// How long whoever reaps an adopted process may take, in milliseconds, before its exit status counts as lost.
const REAP_TIMEOUT_MS: u16 = 1000;
/// How long ended containers may take to leave their cgroup when the shim ends.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

struct Server {
    sandbox: PathBuf,
    engine: Engine,
    listener: OwnedFd,
    signals: SignalFd,
    connections: BTreeMap<u64, OwnedFd>,
    next_connection: u64,
    containers: Containers,
    /// By pid: the connection and request that an exec belongs to.
    execs: BTreeMap<i32, (u64, u64)>,
    pause: Option<Pause>,
    is_ending: bool,
}

/// What a poll entry stands for.
enum Source {
    Signals,
    Listener,
    Connection(u64),
    Output(String, usize),
    Attachments(String, usize),
    Adopted(String),
}

/// Sets the Pod's namespaces up and serves until told to end.
///
/// The first connection and the listening socket are there already: the node process asks before the shim is ready. If it
/// cannot be, whoever has the other end of that connection is told why.
pub(super) fn run(sandbox: &Path, listener: OwnedFd, first: OwnedFd) -> Result<(), Error> {
    let mut server =
        Server::set_up(sandbox, listener).inspect_err(|error| tell_failure(first.as_fd(), error))?;
    server.add_connection(first);
    while !server.is_ending {
        server.turn()?;
    }
    Ok(())
}

/// Says why there will be no shim.
pub(super) fn tell_failure(connection: BorrowedFd<'_>, error: &dyn std::error::Error) {
    let message = Message::Failed { message: base::error_chain(error) };
    let sent = serde_json::to_vec(&message)
        .map_err(io::Error::from)
        .and_then(|bytes| descriptors::send(connection, &bytes, &[]));
    if let Err(error) = sent {
        eprintln!("shim: nobody hears why it cannot begin: {error}");
    }
}

/// Leaves the session and the cgroup of the node process, so that its end is not ours.
fn detach(plan: &PodPlan) -> Result<(), Error> {
    // Fails only for a process that leads its group already; then it has no terminal to lose either.
    if let Err(error) = nix::unistd::setsid() {
        eprintln!("shim: keeps its session: {error}");
    }
    sys::process::become_subreaper().map_err(system("become a subreaper"))?;
    if !plan.shim_cgroup.is_empty() {
        let cgroups = sys::cgroup::Cgroups::detect().map_err(system("find the cgroups"))?;
        cgroups.create(&plan.shim_cgroup).map_err(system("create the shim's cgroup"))?;
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        cgroups.add_process(&plan.shim_cgroup, pid).map_err(system("enter the shim's cgroup"))?;
    }
    std::env::set_current_dir("/").map_err(system("leave the working directory"))
}

impl Server {
    fn set_up(sandbox: &Path, listener: OwnedFd) -> Result<Self, Error> {
        let plan: PodPlan = layout::read_json(&sandbox.join(layout::POD_PLAN))
            .and_then(|plan| plan.ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(system("read the pod's plan"))?;
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        layout::write_json(&sandbox.join(layout::SHIM), &Started::now(pid))
            .map_err(system("say who it is"))?;
        trace::install().map_err(system("keep a log"))?;
        detach(&plan)?;
        let pause = namespaces::enter(sandbox, &plan)?;
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.thread_block().map_err(system("block SIGCHLD"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags).map_err(system("watch children"))?;
        Ok(Self {
            sandbox: sandbox.to_owned(),
            engine: Engine::new(sandbox, plan.oci_runtime.clone()),
            listener,
            signals,
            connections: BTreeMap::new(),
            next_connection: 0,
            containers: Containers::new(),
            execs: BTreeMap::new(),
            pause,
            is_ending: false,
        })
    }

    fn add_connection(&mut self, connection: OwnedFd) {
        self.connections.insert(self.next_connection, connection);
        self.next_connection += 1;
    }

    /// Waits for something to happen and deals with all that has.
    fn turn(&mut self) -> Result<(), Error> {
        for source in self.wait()? {
            match source {
                Source::Signals => self.reap()?,
                Source::Listener => self.accept(),
                Source::Connection(id) => self.serve(id),
                Source::Output(id, index) => {
                    if let Some(container) = self.containers.get_mut(&id) {
                        container.pump(index);
                    }
                }
                Source::Attachments(id, index) => {
                    let output = self.containers.get_mut(&id).and_then(|c| c.outputs.get_mut(index));
                    if let Some(output) = output {
                        output.flush();
                    }
                }
                Source::Adopted(id) => self.adopted_ended(&id),
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<Vec<Source>, Error> {
        let mut sources = vec![Source::Signals, Source::Listener];
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        for (id, fd) in &self.connections {
            sources.push(Source::Connection(*id));
            fds.push(PollFd::new(fd.as_fd(), PollFlags::POLLIN));
        }
        for (id, container) in &self.containers {
            for (index, output) in container.outputs.iter().enumerate().rev() {
                if output.is_flushed() {
                    sources.push(Source::Output(id.clone(), index));
                    fds.push(PollFd::new(output.fd.as_fd(), PollFlags::POLLIN));
                    continue;
                }
                for attachment in output.attachments.iter().filter(|a| !a.pending.is_empty()) {
                    sources.push(Source::Attachments(id.clone(), index));
                    fds.push(PollFd::new(attachment.fd.as_fd(), PollFlags::POLLOUT));
                }
            }
        }
        let mut timeout = PollTimeout::NONE;
        for (id, adopted) in self.containers.iter().filter_map(|(id, it)| Some((id, it.adopted.as_ref()?))) {
            sources.push(Source::Adopted(id.clone()));
            // The kernel says that it hangs up once the process is reaped.
            let events = if adopted.is_dying { PollFlags::empty() } else { PollFlags::POLLIN };
            fds.push(PollFd::new(adopted.process.as_fd(), events));
            if adopted.is_dying {
                timeout = REAP_TIMEOUT_MS.into();
            }
        }
        let is_late = match poll(&mut fds, timeout) {
            Ok(ready) => ready == 0,
            Err(nix::errno::Errno::EINTR) => false,
            Err(error) => return Err(system("wait for events")(error)),
        };
        let happened = |source: &Source, fd: &PollFd<'_>| {
            fd.revents().is_some_and(|events| !events.is_empty())
                || is_late && matches!(source, Source::Adopted(id) if self.is_dying(id))
        };
        let sources = sources.into_iter().zip(&fds);
        Ok(sources.filter(|(source, fd)| happened(source, fd)).map(|(source, _)| source).collect())
    }

    fn is_dying(&self, id: &str) -> bool {
        let adopted = self.containers.get(id).and_then(|it| it.adopted.as_ref());
        adopted.is_some_and(|adopted| adopted.is_dying)
    }

    /// A process that another reaps has ended. If nobody knows its exit status yet, it is known once that is done,
    /// or never.
    fn adopted_ended(&mut self, id: &str) {
        let Some(adopted) = self.containers.get_mut(id).and_then(|it| it.adopted.as_mut()) else { return };
        match adopted.process.exit_status() {
            None if !adopted.is_dying => adopted.is_dying = true,
            status => self.container_ended(id, status.map(exit_code)),
        }
    }

    fn accept(&mut self) {
        match descriptors::accept(self.listener.as_fd()) {
            Ok(connection) => self.add_connection(connection),
            Err(error) => eprintln!("shim: {}", base::error_chain(&error)),
        }
    }

    /// Collects children that ended; tells everyone who cares.
    fn reap(&mut self) -> Result<(), Error> {
        while self.signals.read_signal().map_err(system("read a signal"))?.is_some() {}
        for (pid, status) in sys::process::reap() {
            let code = exit_code(status);
            if let Some((connection, exec)) = self.execs.remove(&pid) {
                self.tell(connection, &Message::ExecExited { exec, code }, &[]);
                continue;
            }
            let ended = self.containers.iter().find(|(_, it)| it.pid == pid && !it.exited);
            let Some(id) = ended.map(|(id, _)| id.clone()) else { continue };
            self.container_ended(&id, Some(code));
        }
        Ok(())
    }

    /// Writes down how a container ended and tells everyone.
    fn container_ended(&mut self, id: &str, code: Option<i32>) {
        let Some(ended) = self.containers.get_mut(id) else { return };
        ended.adopted = None;
        let exited = ended.record_exit(&self.sandbox, id, code);
        if ended.plan.shared_pid {
            kill_cgroup(&ended.plan.cgroup);
        }
        let message = Message::ContainerExited { container: id.to_owned(), exited };
        let everyone: Vec<u64> = self.connections.keys().copied().collect();
        everyone.into_iter().for_each(|connection| self.tell(connection, &message, &[]));
    }

    fn serve(&mut self, connection: u64) {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        let Some(fd) = self.connections.get(&connection) else { return };
        let (len, received) = match descriptors::receive(fd.as_fd(), &mut buffer) {
            Ok((len, received)) if len > 0 => (len, received),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            _ => {
                self.connections.remove(&connection);
                return;
            }
        };
        let request: Request = match serde_json::from_slice(buffer.get(..len).unwrap_or_default()) {
            Ok(request) => request,
            Err(error) => {
                eprintln!("shim: a request that cannot be read: {error}");
                self.connections.remove(&connection);
                return;
            }
        };
        let mut reply = Vec::new();
        let id = request.id;
        let result = self.answer(connection, request, received, &mut reply);
        let reply: Vec<BorrowedFd<'_>> = reply.iter().map(AsFd::as_fd).collect();
        self.tell(connection, &Message::Answer { id, result }, &reply);
    }

    fn answer(
        &mut self,
        connection: u64,
        request: Request,
        received: Vec<OwnedFd>,
        reply: &mut Vec<OwnedFd>,
    ) -> Result<Done, Refused> {
        match request.call {
            Call::Start { container } => self.start(container),
            Call::Adopt { container, process } => self.adopt(container, process, received),
            Call::Kill { container, signal, everyone } => self.kill(&container, signal, everyone),
            Call::Delete { container } => {
                self.containers.remove(&container);
                self.engine.delete(&container).map_err(refused)?;
                Ok(Done::Ok)
            }
            Call::Exec { container, process, tty, streams } => {
                let it = running(&self.containers, &container)?;
                let streams = (!tty).then(|| exec_streams(streams, received));
                let process = layout::take_exec(&process).map_err(refused)?;
                let entry = Entry {
                    id: &container,
                    security: &it.plan.security,
                    process: &process,
                    streams,
                    console: None,
                    sockets: &self.sockets(),
                };
                let executed = container::exec(&self.engine, entry);
                layout::remove_if_there(&process).map_err(refused)?;
                let (pid, terminal) = executed.map_err(refused)?;
                self.execs.insert(pid, (connection, request.id));
                reply.extend(terminal);
                Ok(Done::Started { pid, at: container::now_nanos(), ticks: 0 })
            }
            Call::KillExec { exec, signal } => {
                let pid = self.execs.iter().find(|(_, it)| **it == (connection, exec)).map(|(pid, _)| *pid);
                let killed = pid.map_or(Ok(()), |pid| sys::process::kill(pid, signal));
                killed.map(|()| Done::Ok).map_err(refused)
            }
            Call::Attach { container, streams } => self.attach(&container, streams, received, reply),
            Call::CloseStdin { container } => {
                if let Some(it) = self.containers.get_mut(&container) {
                    it.stdin = None;
                }
                Ok(Done::Ok)
            }
            Call::ReopenLog { container } => {
                running(&self.containers, &container)?;
                let it = self.containers.get_mut(&container);
                it.map_or(Ok(()), Container::reopen_log).map_err(refused)?;
                Ok(Done::Ok)
            }
            Call::Update { container, resources } => {
                self.engine.update(&container, &resources).map(|()| Done::Ok).map_err(refused)
            }
            Call::State => {
                let running = self.containers.iter().filter(|(_, it)| !it.exited);
                Ok(Done::Running(running.map(|(id, _)| id.clone()).collect()))
            }
            Call::Shutdown => {
                self.is_ending = true;
                // Before the answer: whoever asked removes our directory next.
                self.end().map_err(refused)?;
                Ok(Done::Ok)
            }
        }
    }

    /// May be repeated: whoever asked first may have died before the answer.
    fn start(&mut self, container: String) -> Result<Done, Refused> {
        if self.containers.contains_key(&container) {
            return self.already_started(&container);
        }
        if self.engine.knows(&container) {
            // An earlier shim ended in the middle of this.
            self.take_back(&container)?;
        }
        let log = self.sandbox.join(layout::SHIM_LOG);
        let mark = trace::mark(&log);
        let started = Container::start(&self.engine, &container, &self.sockets());
        let because = || trace::first_since(&log, mark);
        let (it, started) = started.map_err(|error| self.failed_start(&container, &error, because()))?;
        self.containers.insert(container, it);
        Ok(done_started(&started))
    }

    fn already_started(&self, container: &str) -> Result<Done, Refused> {
        let path = layout::container_dir(&self.sandbox, container).join(layout::STARTED);
        let started: Option<Started> = layout::read_json(&path).map_err(refused)?;
        let started = started.ok_or_else(|| Refused {
            not_found: true,
            message: format!("nobody knows how container {container} was started"),
        })?;
        Ok(done_started(&started))
    }

    /// What a process that is about to become a container must not hold on to: as long as it does, nobody learns
    /// that this shim has died.
    fn sockets(&self) -> Vec<RawFd> {
        self.connections.values().chain([&self.listener]).map(AsRawFd::as_raw_fd).collect()
    }

    /// What an earlier shim has begun ends: a payload that runs by a signal, what is on its way to one by itself. That is
    /// waited for, so that none of it meddles with the next attempt.
    fn take_back(&self, container: &str) -> Result<(), Refused> {
        let dir = layout::container_dir(&self.sandbox, container);
        let plan = layout::read_json::<layout::ContainerPlan>(&dir.join(layout::CONTAINER_PLAN));
        let cgroup = plan.map_err(refused)?.map(|plan| plan.cgroup);
        if let Some(cgroup) = &cgroup {
            kill_cgroup(cgroup);
        }
        match std::fs::File::open(dir.join(layout::STARTING)) {
            Ok(starting) => starting.lock().map_err(refused)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(refused(error)),
        }
        self.engine.delete(container).map_err(refused)
    }

    /// May be repeated.
    fn adopt(&mut self, id: String, process: bool, received: Vec<OwnedFd>) -> Result<Done, Refused> {
        if self.containers.contains_key(&id) {
            return Ok(Done::Ok);
        }
        let mut received = received.into_iter();
        let process = process.then(|| received.next()).flatten().map(PidFd::from);
        let is_gone = process.is_none();
        self.engine.forget_execs(&id).map_err(refused)?;
        let it = Container::adopt(&self.sandbox, &id, process, received.next()).map_err(refused)?;
        self.containers.insert(id.clone(), it);
        if is_gone {
            self.container_ended(&id, None);
        }
        Ok(Done::Ok)
    }

    /// Takes back what a failed start left.
    fn failed_start(&mut self, container: &str, error: &StartError, because: Option<String>) -> Refused {
        if let Err(error) = self.engine.delete(container) {
            eprintln!("shim: {}", base::error_chain(&error));
        }
        let mut refused = refused(error);
        if let Some(because) = because.filter(|_| matches!(error, StartError::Create(_))) {
            refused.message = format!("{}: {because}", refused.message);
        }
        refused
    }

    fn kill(&self, id: &str, signal: i32, everyone: bool) -> Result<Done, Refused> {
        let it = running(&self.containers, id)?;
        if everyone && it.plan.shared_pid {
            kill_cgroup(&it.plan.cgroup);
            return Ok(Done::Ok);
        }
        match self.engine.kill(id, signal) {
            Ok(true) => return Ok(Done::Ok),
            Ok(false) => {}
            // youki has no signals for real-time use, and what cannot be stopped would stay for ever.
            Err(error) => eprintln!("shim: {}", base::error_chain(&error)),
        }
        it.signal(signal).map(|()| Done::Ok).map_err(refused)
    }

    fn attach(
        &mut self,
        id: &str,
        streams: [bool; 2],
        received: Vec<OwnedFd>,
        reply: &mut Vec<OwnedFd>,
    ) -> Result<Done, Refused> {
        running(&self.containers, id)?;
        let Some(it) = self.containers.get_mut(id) else { return Ok(Done::Ok) };
        let mut received = received.into_iter();
        let wanted = [(streams[0], Stream::Stdout), (streams[1], Stream::Stderr)];
        for (_, stream) in wanted.into_iter().filter(|(wanted, _)| *wanted) {
            if let Some(fd) = received.next() {
                it.attach(fd, stream).map_err(refused)?;
            }
        }
        reply.extend(it.input().map(OwnedFd::try_clone).transpose().map_err(refused)?);
        Ok(Done::Ok)
    }

    /// A client that does not take its messages is dropped: it finds the state when it connects again.
    fn tell(&mut self, connection: u64, message: &Message, descriptors: &[BorrowedFd<'_>]) {
        let Some(fd) = self.connections.get(&connection) else { return };
        let sent = serde_json::to_vec(message)
            .map_err(io::Error::from)
            .and_then(|bytes| descriptors::send(fd.as_fd(), &bytes, descriptors));
        if sent.is_err() {
            self.connections.remove(&connection);
        }
    }

    /// Kills what is left.
    fn end(&mut self) -> Result<(), Error> {
        for (id, it) in &self.containers {
            kill_cgroup(&it.plan.cgroup);
            if let Err(error) = self.engine.delete(id) {
                eprintln!("shim: {}", base::error_chain(&error));
            }
        }
        if let Some(pause) = &mut self.pause {
            pause.end().map_err(system("end the pause process"))?;
        }
        Ok(())
    }
}

fn done_started(started: &Started) -> Done {
    Done::Started { pid: started.pid, at: started.at, ticks: started.ticks }
}

fn running<'a>(containers: &'a Containers, id: &str) -> Result<&'a Container, Refused> {
    containers
        .get(id)
        .filter(|it| !it.exited)
        .ok_or_else(|| Refused { not_found: true, message: format!("container {id} is not running") })
}

fn exec_streams(wanted: [bool; 3], received: Vec<OwnedFd>) -> ExecStreams {
    let mut received = received.into_iter();
    let [stdin, stdout, stderr] = wanted.map(|wanted| wanted.then(|| received.next()).flatten());
    ExecStreams { stdin, stdout, stderr }
}

fn kill_cgroup(path: &str) {
    let killed = sys::cgroup::Cgroups::detect().and_then(|cgroups| cgroups.kill(path, KILL_TIMEOUT));
    if let Err(error) = killed {
        eprintln!("shim: {}", base::error_chain(&error));
    }
}

fn refused(error: impl std::error::Error) -> Refused {
    Refused { not_found: false, message: base::error_chain(&error) }
}

/// A wait status as a shell would say it.
fn exit_code(status: i32) -> i32 {
    let signal = status & 0x7f;
    if signal == 0 { (status >> 8) & 0xff } else { 128 + signal }
}
